"""A cell's job, as far as prompts look at it, and its prompts made ready."""

import asyncio
from typing import Any

from loadgen.job import CellJob
from loadgen.plan import Cell
from loadgen.prompts.corpus import builtin_paragraphs
from loadgen.prompts.prepare import Prepared, PromptMaker
from loadgen.prompts.settings import PromptSettings
from loadgen.prompts.sources import Source
from loadgen.schedule import Shard
from loadgen.spec import Limits, Load

TEXT = Source("short", builtin_paragraphs()[:400])


def job(
    url: str, context: int | None = 60, source: Source = TEXT, model: str = "m", **settings: Any
) -> CellJob:
    cell = Cell(
        f"p.s.text.ctx{context}", "load", "p", "s", "text", context, 16, 0.0, 1,
        prompts=PromptSettings(source.name, **settings),
    )  # fmt: skip
    return CellJob(
        cell=cell,
        repeat=0,
        run_id="run",
        seed=1,
        shard=Shard(0, 1, 1),
        worker="w0",
        endpoint=url,
        api_key_env=None,
        model=model,
        server_id="life",
        time_scale=1.0,
        load=Load(concurrency=[1]),
        limits=Limits(),
        corpus=source,
    )


def made(jobs: list[CellJob], maker: PromptMaker | None = None) -> list[Prepared]:
    maker = maker or PromptMaker()
    asyncio.run(maker.prepare(jobs, None))
    return [maker.make(job) for job in jobs]
