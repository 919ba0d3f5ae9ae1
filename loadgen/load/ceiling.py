"""This host's ceiling at a shape: a ladder of chunk rates, each played for a moment by the built-in sink to a real worker.

The worker's own code runs: CellLoop, its transport, its evidence. A rate is held while the client's lag and CPU keep their
bounds and the chunks really came. One request goes out for every 256 chunks.
"""

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from loadgen.calibration import Ceiling, Shape
from loadgen.job import CellJob, CellRun
from loadgen.load.cell import CellLoop
from loadgen.load.place import on_core
from loadgen.metrics import Window
from loadgen.metrics.client import chunk_rates
from loadgen.plan import Cell
from loadgen.prompts.bodies import LoadPrompts, load_message
from loadgen.prompts.prepare import Prepared, chat_options
from loadgen.prompts.salts import DEFAULT_ALPHABET, SaltKey
from loadgen.prompts.settings import LengthSource
from loadgen.prompts.sources import Source
from loadgen.questions import load_questions
from loadgen.schedule import Shard
from loadgen.sink import Sink, running_sink, truth
from loadgen.spec import Limits, Load

_STEP_S = 0.7
_RAMP_S = 0.25
_REQUEST_CHUNKS = 256
# A client that keeps up has a tenth of it, one that does not ten times as much; a neighbour's moments lie between.
_LAG_MS = 5.0
_BUSY_CORE = 0.9
# Late with a core that is idle half the time: other programs, or the hypervisor, had it.
_HALF_BUSY = 0.5
_OFFERED = 0.95  # of the rate asked for must have come
_LEAST_RATE, _MOST_RATE = 250.0, 400_000.0
_CLOSE = 1.3  # a ladder ends when the lowest rate that failed is so near the highest that was held
# A second look, because a neighbour's moment looks like a ceiling.
_TRIES = 2
_EMPTY_EVENT_BYTES = 440  # of the sink's event with its running usage and framing, less the text


@dataclass(frozen=True, slots=True)
class Step:
    """One rate, played: what came, and what it cost. `broke`: the bound that it broke; None: held."""

    rate: float
    came: float
    lag_p99_ms: float | None
    cpu: float
    event_bytes: int
    broke: str | None


def next_rate(steps: Sequence[Step], first: float) -> float | None:
    """The next rung: doubling or halving from `first`, then between what held and what failed; None at the end."""
    held = max((step.rate for step in steps if step.broke is None), default=None)
    failed = min((step.rate for step in steps if step.broke is not None), default=None)
    if held is None and failed is None:
        return min(max(first, _LEAST_RATE), _MOST_RATE)
    if failed is None:
        assert held is not None
        return held * 2 if held * 2 <= _MOST_RATE else None
    if held is None:
        return failed / 2 if failed / 2 >= _LEAST_RATE else None
    return math.sqrt(held * failed) if failed / held > _CLOSE else None


def measure_ceiling(
    shape: Shape, first_rate: float, say: Callable[[Step], None], cores: Sequence[int]
) -> Ceiling:
    """The ceiling at a shape, in some ten seconds. The client has the last of `cores`, the sink the first.

    `say` hears of each step. Raises RunFailed when the sink cannot be made or started.
    """
    text_bytes = max(1, shape.event_bytes - _EMPTY_EVENT_BYTES)
    is_apart = len(cores) > 1
    steps: list[Step] = []
    with running_sink("-w", str(text_bytes), "-n", str(_REQUEST_CHUNKS)) as sink, on_core(cores[-1]):
        os.sched_setaffinity(sink.pid, {cores[0]})
        while (rate := next_rate(steps, first_rate)) is not None:
            steps.append(_best_of_tries(sink, shape, rate))
            say(steps[-1])
    return _ceiling(shape, steps, is_apart=is_apart)


def _best_of_tries(sink: Sink, shape: Shape, rate: float) -> Step:
    step = _play(sink, shape, rate)
    for _ in range(_TRIES - 1):
        if step.broke is None:
            break
        step = _play(sink, shape, rate)
    return step


def _ceiling(shape: Shape, steps: Sequence[Step], *, is_apart: bool) -> Ceiling:
    held = [step for step in steps if step.broke is None]
    failed = [step for step in steps if step.broke is not None]
    best = max(held, key=lambda step: step.rate) if held else None
    limit = min(failed, key=lambda step: step.rate).broke if failed else None
    event_bytes = steps[-1].event_bytes or shape.event_bytes
    return Ceiling(
        shape=replace(shape, event_bytes=event_bytes),
        chunks_per_s=best.came if best else 0.0,
        limit=limit or "sink",
        lag_p99_ms=best.lag_p99_ms if best else None,
        cpu=best.cpu if best else 0.0,
        is_lower_bound=not is_apart or limit in (None, "sink", "others"),
    )


def _play(sink: Sink, shape: Shape, rate: float) -> Step:
    interval_us = max(1, round(shape.streams / rate * 1e6))
    truth.reset(sink.url, iv=interval_us)
    run = _run(sink.url, shape)
    window = Window(run.window_start_ns, run.window_end_ns, 1.0)
    came = max(chunk_rates(run.requests, window).values(), default=0.0)
    evidence = run.evidence
    lag_ms = evidence.loop_lag_p99_ms if evidence.read_lag_p99_ms is None else evidence.read_lag_p99_ms
    event_bytes = evidence.event_bytes or 0
    broken = _broken(shape.streams / interval_us * 1e6, came, lag_ms, evidence.cpu)
    return Step(rate, came, lag_ms, evidence.cpu, event_bytes, broken)


def _broken(rate: float, came: float, lag_ms: float | None, cpu: float) -> str | None:
    if cpu > _BUSY_CORE:
        return "cpu"
    if lag_ms is not None and lag_ms > _LAG_MS:
        return "lag" if cpu > _HALF_BUSY else "others"
    return None if came >= _OFFERED * rate else "sink"


def _run(url: str, shape: Shape) -> CellRun:
    job = _job(url, shape)
    key = SaltKey(job.run_id, job.cell.cell_id, job.repeat, job.seed)
    text = ("word " * (shape.context_bytes // 5 + 1))[: shape.context_bytes]
    prompts = LoadPrompts([(load_message(text),)], chat_options(job), key, DEFAULT_ALPHABET)
    prepared = Prepared(prompts, LengthSource.DATASET, None)
    return CellLoop(job, load_questions(prepared, job), None).run()


def _job(url: str, shape: Shape) -> CellJob:
    load = Load(
        concurrency=[shape.streams],
        ramp_s=_RAMP_S,
        warmup_requests_per_stream=0,
        warmup_until_stationary=False,
        measure_requests_per_stream=0,
        measure_min_requests=0,
        measure_min_s=_STEP_S,
        measure_max_s=_STEP_S,
        drain_max_s=0.01,
    )
    cell = Cell("calibration", "load", "sink", "sink", "text", None, _REQUEST_CHUNKS, 0.0, shape.streams)
    return CellJob(
        cell=cell,
        repeat=0,
        run_id="calibration",
        seed=1,
        shard=Shard(0, 1, shape.streams),
        worker="calibration",
        endpoint=url,
        api_key_env=None,
        model="default",
        server_id="sink",
        time_scale=1.0,
        load=load,
        limits=Limits(responses_per_cell=0),
        corpus=Source(),
    )
