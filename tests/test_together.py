"""Workers of one cell as one: they start, and open and close their window, at the same moments."""

import asyncio
from dataclasses import replace

import pytest
from cluster_fixtures import cell_job
from sim_fixtures import SimServer

from cluster.together import run_together
from loadgen.client import Client
from loadgen.job import CellJob, CellRun
from loadgen.load.meeting import Point
from loadgen.schedule import make_shards


def jobs_of(url: str, streams: int, workers: int, **load: float) -> list[CellJob]:
    base = cell_job(url, **load)
    cell = replace(base.cell, concurrency=streams)
    return [
        replace(base, cell=cell, shard=shard, worker=f"w{shard.number}")
        for shard in make_shards(streams, workers)
    ]


@pytest.fixture(scope="module")
def sim():
    with SimServer("--time-scale", "40") as server:
        yield server


def test_three_workers_share_their_start_and_their_window_to_the_nanosecond(sim):
    jobs = jobs_of(f"http://127.0.0.1:{sim.port}", 7, 3, measure_min_s=20)

    async def work() -> list[CellRun]:
        return await run_together([Client(job.worker) for job in jobs], jobs)

    runs = asyncio.run(work())
    assert len({(run.window_start_ns, run.window_end_ns) for run in runs}) == 1
    assert runs[0].window_end_ns - runs[0].window_start_ns >= 20 / 40 * 1e9
    assert all(run.complete for run in runs)
    indexes = sorted(index for run in runs for index in run.requests["request_index"].to_pylist())
    assert len(set(indexes)) == len(indexes)


def test_a_worker_alone_waits_for_nobody(sim):
    (job,) = jobs_of(f"http://127.0.0.1:{sim.port}", 2, 1)
    run = asyncio.run(Client("w0").run_cell(job))
    assert run.complete


def test_a_worker_that_fails_ends_the_cell_of_the_others_and_its_words_are_raised(sim):
    class Failing(Client):
        async def run_cell(self, job: CellJob) -> CellRun:
            await asyncio.sleep(0.2)
            raise RuntimeError("out of order")

        async def reached(self, point: Point) -> None:
            await asyncio.Event().wait()

    jobs = jobs_of(f"http://127.0.0.1:{sim.port}", 4, 2, measure_min_s=400)

    async def work() -> None:
        with pytest.raises(RuntimeError, match="out of order"):
            await run_together([Client("w0"), Failing("w1")], jobs)
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(work())
    sim.wait_running(0)
