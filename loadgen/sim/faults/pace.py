"""Streams whose content is right and whose times are not what a naive client takes them for."""

import asyncio
import time
from dataclasses import replace

from loadgen.clock import monotonic_ns
from loadgen.records import Outcome
from loadgen.sim.door import Door
from loadgen.sim.faults.events import Kind, edited, without
from loadgen.sim.faults.house import House
from loadgen.sim.faults.scenario import scenario
from loadgen.sim.faults.stage import Stage


@scenario(
    Outcome.TIMEOUT_FIRST_BYTE,
    "Ended by the client's limit on the first byte; with a wait below the limit, ok and a long TTFT.",
    shows="vllm#51030; pools that run dry behind it",
)
async def slow_headers(stage: Stage, wait_s: float = 3600.0) -> None:
    """The request is taken and nothing comes for `wait_s`; then a whole stream."""
    await asyncio.sleep(wait_s)
    await stage.stream(stage.events)


@scenario(
    Outcome.TIMEOUT_FIRST_BYTE,
    "A head that never ends is no response.",
    shows="tools whose limit starts anew with each byte",
)
async def endless_head(stage: Stage, pause_s: float = 0.2) -> None:
    """Header lines for ever, one each `pause_s`; the head never ends."""
    await stage.send(b"HTTP/1.1 200 OK\r\n")
    while True:
        await asyncio.sleep(pause_s)
        await stage.send(b"x-more: 1\r\n")


@scenario(
    Outcome.OK,
    "TTFT at the first text, not at the role.",
    shows="vllm#3759/#3768",
)
async def early_role(stage: Stage, wait_s: float = 2.0) -> None:
    """Head and role at once, the first token `wait_s` later."""
    events = stage.events
    await stage.begin()
    await stage.play(event for event in events if event.kind is Kind.ROLE)
    await asyncio.sleep(wait_s)
    await stage.play(without(events, Kind.ROLE))
    await stage.end()


@scenario(
    Outcome.TOTAL_TIMEOUT,
    "Ended by the limit on the whole request (or cut with its cell), in bounded memory.",
    shows="vllm#51030; clients whose only limit is on silence",
)
async def flood(stage: Stage, pause_s: float = 0.001) -> None:
    """Text for ever, an event each `pause_s`, whatever max_tokens says; the running count grows with it."""
    events = stage.events
    texts = [event for event in events if event.kind is Kind.TEXT] or [events[0]]
    await stage.begin()
    await stage.play(event for event in events if event.kind is Kind.ROLE)
    tokens = 0
    while True:
        for text in texts:
            tokens += stage.pace.tokens
            await stage.send(stage.frame(edited(text, lambda value: _count(value, tokens)).data), tokens)  # noqa: B023 - called at once
            await asyncio.sleep(pause_s)


@scenario(
    Outcome.OK,
    "Outside the measured window; the warm-up goes on until the server is steady.",
    shows="evalscope#1627/#1641, NeMo-Guardrails#2321/#2323",
)
async def slow_start(stage: Stage, lasts_s: float = 1.0, factor: float = 10.0) -> None:
    """In the first `lasts_s` after a second of quiet, all waits are `factor` times as long."""
    if monotonic_ns() - stage.house.busy_since_ns < lasts_s * 1e9:
        _slow_down(stage, factor)
    await stage.stream(stage.events)


@scenario(
    Outcome.OK,
    "In flight stays at the target until the last request is sent; no waves.",
    shows="llmperf#43/#56/#59, evalscope#1101",
)
async def bimodal(stage: Stage, every: int = 4, factor: float = 10.0) -> None:
    """One request in `every` has waits `factor` times as long."""
    if stage.entry.number % every == 0:
        _slow_down(stage, factor)
    await stage.stream(stage.events)


@scenario(
    Outcome.OK,
    "Under a constant rate p99 from the plan shows the freeze; from the send it does not.",
    shows="guidellm#1048, wrk2 (coordinated omission)",
    is_server_wide=True,
)
async def freeze(house: House, _door: Door, every_s: float = 10.0, lasts_s: float = 2.0) -> None:
    """The whole server stops for `lasts_s` at the end of each `every_s`: no byte is sent or read, connections wait in the kernel."""
    while True:
        await asyncio.sleep(max(0.0, every_s - lasts_s))
        from_ns = monotonic_ns()
        time.sleep(lasts_s)  # noqa: ASYNC251 - this is the fault: the event loop stands still
        house.log.fault("freeze", from_ns, monotonic_ns())


def _slow_down(stage: Stage, factor: float) -> None:
    pace = stage.pace
    stage.pace = replace(pace, first_s=pace.first_s * factor, gap_s=pace.gap_s * factor)


def _count(value: dict[str, object], tokens: int) -> None:
    usage = value.get("usage")
    if isinstance(usage, dict):
        usage.update(completion_tokens=tokens, total_tokens=usage["prompt_tokens"] + tokens)
