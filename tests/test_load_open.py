"""The open loop: an absolute schedule, whatever the server does."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest
from load_fixtures import job, load, run_cell
from scripted_server import Peer, Request, whole_answer

from loadgen.schedule import Shard

MS = 1_000_000


async def good(peer: Peer, _: Request) -> None:
    await peer.stream(*whole_answer())


def test_the_schedule_is_kept_while_the_server_freezes() -> None:
    thaw: list[float] = []

    async def freezes(peer: Peer, request: Request) -> None:
        """From the first request on, nothing is answered for half a second."""
        now_s = asyncio.get_running_loop().time()
        thaw.append(thaw[0] if thaw else now_s + 0.5)
        await asyncio.sleep(max(0, thaw[0] - now_s))
        await good(peer, request)

    bounds = load(
        rate=[50],
        arrivals="constant",
        warmup_requests_per_stream=0,
        measure_min_s=1,
        measure_max_s=1,
        warmup_max_s=0.1,
    )
    _, server, rows = run_cell(freezes, rate=50.0, load=bounds)
    planned = np.array([row["scheduled_ns"] for row in rows])
    assert server.peak >= 20
    assert np.all(np.abs(np.diff(planned) - 20 * MS) <= 1)
    assert np.median([row["sent_ns"] - row["scheduled_ns"] for row in rows]) < 20 * MS
    assert all(row["sent_ns"] >= row["scheduled_ns"] for row in rows)
    waited = [row["first_token_ns"] - row["scheduled_ns"] for row in rows[:20]]
    assert waited[0] > waited[10] > waited[19]


def test_a_bound_on_requests_in_flight_delays_the_sending_and_keeps_the_plan() -> None:
    async def slow(peer: Peer, request: Request) -> None:
        await asyncio.sleep(0.1)
        await good(peer, request)

    bounds = load(
        rate=[100],
        arrivals="constant",
        warmup_requests_per_stream=0,
        measure_min_s=0.5,
        measure_max_s=0.5,
        warmup_max_s=0.1,
    )
    run, server, rows = run_cell(slow, rate=100.0, load=bounds, shard=Shard(0, 1, 0, 3))
    assert server.peak == 3
    waits = [row["sent_ns"] - row["scheduled_ns"] for row in rows]
    assert max(waits) > 200 * MS  # 30 a second go out of 100
    planned = np.array([row["scheduled_ns"] for row in rows])
    assert np.all(np.abs(np.diff(planned) - 10 * MS) <= 1)
    # what still waited when the window closed was due, and has no row
    due = (run.window_end_ns - planned.min()) / (10 * MS) + 1
    assert run.evidence.unsent_requests > 10
    assert len(rows) + run.evidence.unsent_requests == pytest.approx(due, abs=2)


def test_the_parts_of_all_workers_are_the_whole() -> None:
    whole = job("http://127.0.0.1:9", rate=37.0)
    parts = [replace(whole, shard=Shard(number, 3, 0)) for number in range(3)]
    assert np.array_equal(
        np.sort(np.concatenate([part.arrivals_ns() for part in parts])), whole.arrivals_ns()
    )


def test_a_trace_that_is_shorter_than_the_warm_up_ends_the_cell() -> None:
    offsets = np.array([0, 30, 60, 90], np.int64) * MS
    bounds = load(rate=[1], warmup_min_requests=50, warmup_max_s=60)
    cell_run, _, rows = run_cell(good, rate=1.0, load=bounds, trace_ns=offsets)
    assert [row["outcome"] for row in rows] == ["ok"] * 4
    assert np.diff([row["scheduled_ns"] for row in rows]).tolist() == [30 * MS] * 3
    assert not cell_run.complete


def test_a_worker_whose_part_of_a_trace_is_empty_ends() -> None:
    bounds = load(rate=[1], warmup_min_requests=50, warmup_max_s=60)
    _, _, rows = run_cell(good, rate=1.0, load=bounds, trace_ns=np.empty(0, np.int64))
    assert rows == []
