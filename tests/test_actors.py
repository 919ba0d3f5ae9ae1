"""Load workers and the grader on a real Ray: what a death leaves, and whom it does not touch. One start of Ray for all."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace

import psutil
import pytest
from cluster_fixtures import cell_job
from scripted_server import closed_port
from sim_fixtures import SimServer

from cluster.actors import RayClients, start_ray, stop_ray
from cluster.roles import WorkerLost
from loadgen.errors import RunFailed


@pytest.fixture(scope="module")
def sim() -> Iterator[str]:
    with SimServer("--time-scale", "40") as server:
        start_ray(None)
        try:
            yield f"http://127.0.0.1:{server.port}"
        finally:
            stop_ray()


def on_ray(work: Callable[[RayClients], object]) -> None:
    async def whole() -> None:
        clients = RayClients()
        try:
            await work(clients)
        finally:
            await clients.close()

    asyncio.run(whole())


async def pid_of(clients: RayClients, platform: str, name: str) -> int:
    """The worker's process: the one of our Ray that runs this actor."""
    actor = clients._actors[platform][name]
    return int(await actor.__ray_call__.remote(lambda _: os.getpid()))


def test_ray_that_cannot_be_joined_is_one_line():
    """Before Ray runs: later, the reason would be that it does."""
    with pytest.raises(RunFailed) as failure:
        start_ray("no-address")
    assert str(failure.value).startswith("the Ray cluster at no-address cannot be joined (")
    assert "twice" not in str(failure.value)
    assert "\n" not in str(failure.value)


def test_a_worker_killed_in_mid_cell_is_lost_the_next_cell_has_a_new_one_and_others_go_on(sim):
    async def work(clients: RayClients) -> None:
        facts = await clients.facts("box")
        assert facts.niceness == 0
        assert facts.max_open_files > 0
        doomed = await pid_of(clients, "box", "box-w0")
        job = cell_job(sim, worker="box-w0", measure_min_s=200)
        other_job = cell_job(sim, platform="box-w0", worker="box-w0-w0", measure_min_s=120)
        running = asyncio.create_task(clients.run("box", [job], 60))
        other = asyncio.create_task(clients.run("box-w0", [other_job], 60))
        await asyncio.sleep(1)
        assert not running.done()
        os.kill(doomed, signal.SIGKILL)
        with pytest.raises(WorkerLost):
            await running

        (run,) = await clients.run("box", [cell_job(sim, worker="box-w0")], 60)
        assert run.complete
        assert run.requests.num_rows > 0
        assert await pid_of(clients, "box", "box-w0") != doomed
        (other_run,) = await other
        assert other_run.complete, "the other platform's worker has a name that begins alike"

    on_ray(work)


def test_a_worker_that_does_not_come_back_and_one_whose_fellow_failed_are_ended(sim):
    async def work(clients: RayClients) -> None:
        await clients.facts("box")
        slow = await pid_of(clients, "box", "box-w0")
        with pytest.raises(WorkerLost, match="no answer within 1 s"):
            await clients.run("box", [cell_job(sim, worker="box-w0", measure_min_s=400)], 1)
        await _gone(slow)

        await clients.facts("box")
        fellow = await pid_of(clients, "box", "box-w0")
        jobs = [
            cell_job(sim, worker="box-w0", measure_min_s=400),
            cell_job(f"http://127.0.0.1:{closed_port()}", worker="box-w1"),
        ]
        with pytest.raises(RunFailed, match="cannot be reached"):
            await clients.run("box", jobs, 60)
        await _gone(fellow)

    on_ray(work)


async def _gone(pid: int) -> None:
    async with asyncio.timeout(20):
        while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
            await asyncio.sleep(0.05)


def test_a_worker_measures_on_the_core_that_is_reserved_for_it_and_ray_stays_off_it(sim):
    core = max(os.sched_getaffinity(0))

    async def work(clients: RayClients) -> None:
        (run,) = await clients.run("box", [replace(cell_job(sim), core=core)], 60)
        assert run.place.cores == (core,)
        assert run.place.is_pinned
        assert run.place.pid == await pid_of(clients, "box", "box-w0") != os.getpid()
        (free,) = await clients.run("box", [cell_job(sim)], 60)
        assert (free.place.cores, free.place.is_pinned) == (tuple(sorted(os.sched_getaffinity(0))), False)

    on_ray(work)
