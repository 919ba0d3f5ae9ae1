"""Runs the workers of one cell as one: all start, and open and close their measurement window, at the same moments."""

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Protocol

from loadgen.clock import monotonic_ns
from loadgen.job import CellJob, CellRun
from loadgen.load.meeting import Point

# Longer than any call to a worker takes: whoever hears of the moment after it has passed is late by the rest.
_LEAD_NS = 50_000_000


class Worker(Protocol):
    """A load worker, wherever it is; see `loadgen.client.Client`."""

    def run_cell(self, job: CellJob) -> Awaitable[CellRun]: ...

    def reached(self, point: Point) -> Awaitable[None]: ...

    def pass_at(self, point: Point, at_ns: int) -> Awaitable[None]: ...


async def run_together(workers: Sequence[Worker], jobs: Sequence[CellJob]) -> list[CellRun]:
    """What the jobs brought, one a worker. When one fails, the others are cancelled, and its exception is raised."""
    runs = [asyncio.ensure_future(worker.run_cell(job)) for worker, job in zip(workers, jobs, strict=True)]
    conducting = asyncio.ensure_future(_conduct(workers if jobs[0].meets else ()))
    try:
        await asyncio.gather(*runs, conducting)
    finally:  # where one has failed, the others would load the server during the next cell
        for task in (*runs, conducting):
            task.cancel()
        await asyncio.gather(*runs, conducting, return_exceptions=True)
    return [run.result() for run in runs]


async def _conduct(workers: Sequence[Worker]) -> None:
    for point in Point:
        await asyncio.gather(*(worker.reached(point) for worker in workers))
        at_ns = monotonic_ns() + _LEAD_NS
        await asyncio.gather(*(worker.pass_at(point, at_ns) for worker in workers))
