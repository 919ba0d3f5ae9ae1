"""The workers of this process: what fails, or takes too long, leaves nobody behind who still sends."""

import asyncio

import pytest
from cluster_fixtures import cell_job
from scripted_server import closed_port
from sim_fixtures import SimServer

from cluster.local import LocalClients
from cluster.roles import WorkerLost
from loadgen.errors import RunFailed


def test_a_cell_that_takes_too_long_is_lost_and_one_whose_fellow_failed_is_ended():
    with SimServer("--time-scale", "40") as sim:
        url = f"http://127.0.0.1:{sim.port}"

        async def work() -> None:
            clients = LocalClients()
            with pytest.raises(WorkerLost, match="did not end within 1 s"):
                await clients.run("box", [cell_job(url, measure_min_s=400)], 1)
            jobs = [
                cell_job(url, measure_min_s=400),
                cell_job(f"http://127.0.0.1:{closed_port()}", worker="box-w1"),
            ]
            with pytest.raises(RunFailed, match="cannot be reached"):
                await clients.run("box", jobs, 60)
            assert len(asyncio.all_tasks()) == 1, "the failed cell's other worker still sends"
            (run,) = await clients.run("box", [cell_job(url)], 60)
            assert run.complete

        asyncio.run(work())
        sim.wait_running(0)
