"""`loadgen calibrate`: which shapes to measure, the table of their ceilings, and the file that `loadgen run` reads them from."""

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from loadgen.calibration import (
    BYTES_PER_TOKEN,
    TYPICAL_EVENT_BYTES,
    TYPICAL_STREAMS,
    Calibration,
    Ceiling,
    Shape,
    host_key,
    read_calibration,
    write_calibration,
)
from loadgen.client import raise_open_files
from loadgen.errors import RunFailed
from loadgen.load.ceiling import Step, measure_ceiling
from loadgen.plan import Cell, make_plan
from loadgen.spec import Sweep

_FIRST_RATE = 10_000.0
_CONTEXT_BYTES = 4000
_OTHER_FILES = 128
_ROW = "{:>8}  {:>11}  {:>13}  {:>9}  {:>11}  {:>5}  {}"
_HEAD = ("streams", "event bytes", "context bytes", "chunks/s", "lag p99 ms", "CPU", "limit")
_LIMITS = {
    "cpu": "CPU of the core",
    "lag": "lag",
    "others": "other programs or the hypervisor took the core: the client may hold more",
    "sink": "the sink: the client may hold more",
}


def shapes_of(sweep: Sweep) -> list[Shape]:
    """The shapes of a worker in a sweep's cells: each number of streams with the shortest and longest prompts."""
    cells = [
        execution.cell for _, execution in make_plan(sweep).executions() if execution.cell.kind == "load"
    ]
    contexts = [(cell.context_tokens or 0) * BYTES_PER_TOKEN for cell in cells]
    streams = {-(-_streams(sweep, cell) // sweep.clients.workers_per_platform) for cell in cells}
    return [
        Shape(count, TYPICAL_EVENT_BYTES, context)
        for count in sorted(streams)
        for context in sorted({min(contexts), max(contexts)})
    ]


def given_shape(streams: int | None, event_bytes: int | None, context_bytes: int | None) -> Shape:
    """A shape as asked for; what was left open is typical."""
    return Shape(
        streams or TYPICAL_STREAMS,
        event_bytes or TYPICAL_EVENT_BYTES,
        _CONTEXT_BYTES if context_bytes is None else context_bytes,
    )


def calibrate(
    shapes: Sequence[Shape], chunk_rate: float | None, say: Callable[[str], None]
) -> tuple[list[Ceiling], Path]:
    """The ceilings at the shapes, and the file of this host's calibration, to which they are added. `chunk_rate`: where ladders begin.

    Raises RunFailed when the sink cannot run, or this host has too few descriptors.
    """
    _check_files(max(shape.streams for shape in shapes))
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        say("one core only: client and sink share it, so that the ceilings are lower bounds")
    before = read_calibration() or Calibration(host_key(), ())
    ceilings = []
    for number, shape in enumerate(shapes, 1):
        say(f"{number} of {len(shapes)}: {shape.streams} streams, prompts of {shape.context_bytes} bytes")
        ceilings.append(measure_ceiling(shape, chunk_rate or _FIRST_RATE, lambda s: say(_line(s)), cores))
    return ceilings, write_calibration(before.with_ceilings(ceilings))


def table(ceilings: Sequence[Ceiling], chunk_rate: float | None) -> Iterator[str]:
    """The ceilings as lines; with a chunk rate, what share of them it is."""
    yield _ROW.format(*_HEAD) + ("  share" if chunk_rate else "")
    for ceiling in ceilings:
        lag = "?" if ceiling.lag_p99_ms is None else f"{ceiling.lag_p99_ms:.2f}"
        rate = f"{'>=' if ceiling.is_lower_bound else ''}{ceiling.chunks_per_s:.0f}"
        shape = ceiling.shape
        limit = _LIMITS.get(ceiling.limit, ceiling.limit)
        line = _ROW.format(
            shape.streams, shape.event_bytes, shape.context_bytes, rate, lag, f"{ceiling.cpu:.0%}", limit
        )
        yield line + (f"  {_share(chunk_rate, ceiling)}" if chunk_rate else "")


def _share(chunk_rate: float, ceiling: Ceiling) -> str:
    return f"{chunk_rate / ceiling.chunks_per_s:.0%}" if ceiling.chunks_per_s else "?"


def _line(step: Step) -> str:
    lag = "?" if step.lag_p99_ms is None else f"{step.lag_p99_ms:.2f}"
    ended = "held" if step.broke is None else f"not held ({step.broke})"
    return (
        f"  {step.rate:>7.0f} chunks/s: {step.came:.0f} came, lag p99 {lag} ms, CPU {step.cpu:.0%}: {ended}"
    )


def _streams(sweep: Sweep, cell: Cell) -> int:
    if cell.is_search_step:
        return sweep.load.saturate.max
    return cell.concurrency or sweep.load.max_in_flight or TYPICAL_STREAMS


def _check_files(streams: int) -> None:
    limit = raise_open_files()
    if limit < streams + _OTHER_FILES:
        raise RunFailed(
            f"{streams} streams need {streams + _OTHER_FILES} descriptors, this host gives a process {limit}: raise the "
            "hard limit (ulimit -Hn), or ask for fewer"
        )
