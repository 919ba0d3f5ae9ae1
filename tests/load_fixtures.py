"""Cells run against scripted servers, with requests made by hand: no prompt has to be fitted."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from scripted_server import Script, ScriptedServer, scripted

from loadgen.chat_request import ChatOptions
from loadgen.job import CellJob, CellRun
from loadgen.load.cell import CellLoop
from loadgen.plan import Cell
from loadgen.prompts.bodies import LoadPrompts
from loadgen.prompts.conversations import Conversations
from loadgen.prompts.datasets import Message
from loadgen.prompts.salts import DEFAULT_ALPHABET, SaltKey
from loadgen.prompts.sources import Source
from loadgen.questions import Questions
from loadgen.schedule import Shard
from loadgen.spec import Limits, Load


def load(**values: Any) -> Load:
    """Two requests a stream and nothing to wait for; bounds that end a hanging test."""
    usual = {
        "ramp_s": 0,
        "warmup_until_stationary": False,
        "warmup_max_s": 5,
        "measure_min_s": 0,
        "measure_max_s": 5,
        "drain_max_s": 5,
        "measure_min_requests": 1,
    }
    asked = {} if "rate" in values else {"concurrency": [1]}
    return Load(**{**asked, **usual, **values})


def job(url: str, streams: int = 4, rate: float | None = None, **values: Any) -> CellJob:
    concurrency = None if rate else streams
    cell = Cell("p.s.text.c", "load", "p", "s", "text", 30, 16, 0.0, concurrency)
    if rate:
        cell = replace(cell, rate=rate, arrivals="constant")
    usual: dict[str, Any] = {
        "repeat": 0,
        "run_id": "run",
        "seed": 1,
        "shard": Shard(0, 1, 0 if rate else streams),
        "worker": "w0",
        "api_key_env": None,
        "model": "m",
        "server_id": "life",
        "time_scale": 1.0,
        "load": load(**({"rate": [rate], "arrivals": "constant"} if rate else {})),
        "limits": Limits(idle_timeout_s=5, first_byte_timeout_s=5, request_timeout_s=20),
        "corpus": Source(),
    }
    return CellJob(cell=cell, endpoint=url, **{**usual, **values})


def questions(asked: CellJob, turns: int = 1, think_time_s: float = 0) -> Questions:
    """Request n of the cell asks "n"; its salt makes it its own."""
    options = ChatOptions("m", 16, 0.0)
    prompts = LoadPrompts(
        [(Message("user", "say"),)], options, SaltKey("run", "cell", 0, 1), DEFAULT_ALPHABET
    )
    talk = Conversations(prompts, turns, lambda _, turn: f"more {turn}", think_time_s) if turns > 1 else None
    return Questions(
        parts=prompts.parts,
        body_bytes=prompts.body_bytes,
        message=str,
        problem=lambda _: None,
        max_tokens=lambda _: 16,
        target_prompt_tokens=lambda _: None,
        indexes=asked.shard.indexes(),
        conversations=talk,
    )


def run_cell(
    script: Script,
    *,
    turns: int = 1,
    think_time_s: float = 0,
    meanwhile: Callable[[CellLoop, ScriptedServer], Any] | None = None,
    **values: Any,
) -> tuple[CellRun, ScriptedServer, list[dict[str, Any]]]:
    """A cell; its rows. `meanwhile` runs in the server's loop beside it."""

    async def work() -> tuple[CellRun, ScriptedServer, list[dict[str, Any]]]:
        async with scripted(script) as server:
            asked = job(server.url, **values)
            loop = CellLoop(asked, questions(asked, turns, think_time_s), None)
            running = asyncio.create_task(asyncio.to_thread(loop.run))
            if meanwhile:
                await meanwhile(loop, server)
            cell_run = await asyncio.wait_for(running, 30)
            return cell_run, server, cell_run.requests.to_pylist()

    return asyncio.run(work())


def said(body: bytes) -> list[tuple[str, str]]:
    """The messages of a request: role and text."""
    return [(message["role"], message["content"]) for message in json.loads(body)["messages"]]
