"""One worker's part of a cell: stalls, cuts, being given up, and the sums that must come out."""

import asyncio
from collections import Counter

import pytest
from load_fixtures import load, run_cell
from scripted_server import CHUNKED_HEAD, Peer, Request, ScriptedServer, delta, whole_answer

from loadgen.load.cell import CellLoop, Stopped
from loadgen.spec import Limits


async def good(peer: Peer, _: Request) -> None:
    await asyncio.sleep(0.01)
    await peer.stream(*whole_answer())


async def endless(peer: Peer, _: Request) -> None:
    await peer.send(CHUNKED_HEAD)
    while not peer.is_closed:
        await peer.send_chunk(delta("x"))
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("transport", ["raw", "aiohttp"])
def test_one_stalled_stream_of_64_costs_one_request(transport: str) -> None:
    seen: list[bytes] = []

    async def first_stalls(peer: Peer, request: Request) -> None:
        seen.append(request.body)
        if len(seen) > 1:
            await good(peer, request)
            return
        await peer.send(CHUNKED_HEAD)
        await peer.send_chunk(delta("x", tokens=1))
        await peer.wait_for_end()

    bounds = load(warmup_requests_per_stream=0, measure_requests_per_stream=1)
    _, _, rows = run_cell(
        first_stalls, streams=64, load=bounds, limits=Limits(idle_timeout_s=0.5), transport=transport
    )
    outcomes = Counter(row["outcome"] for row in rows)
    assert outcomes == {"idle_timeout": 1, "ok": len(rows) - 1}
    assert len(rows) == len(seen) >= 64
    stalled = next(row for row in rows if row["outcome"] == "idle_timeout")
    assert (len(stalled["chunk_ns"]), stalled["error"]) == (1, "nothing for 0.5 s")
    assert stalled["done_ns"] - stalled["sent_ns"] < 5e9


@pytest.mark.parametrize("transport", ["raw", "aiohttp"])
def test_what_was_sent_is_the_sum_of_the_outcomes_and_the_window_holds_the_counted(transport: str) -> None:
    cell_run, server, rows = run_cell(
        good, streams=8, load=load(measure_requests_per_stream=4), transport=transport
    )
    assert cell_run.complete
    assert len(rows) == len(server.requests)
    assert [row["request_index"] for row in rows] == list(range(len(rows)))
    start, end = cell_run.window_start_ns, cell_run.window_end_ns
    ended = [row for row in rows if start < row["done_ns"] <= end]
    assert len(ended) >= 32
    for row in rows:
        phase = "warmup" if row["sent_ns"] < start else "measure" if row["sent_ns"] <= end else "drain"
        assert row["phase"] == phase
    evidence = cell_run.evidence
    assert evidence.requests == len(rows)
    assert 0 < evidence.cpu_s <= evidence.wall_s * 1.1
    assert evidence.reads >= len(rows)
    assert evidence.first_sent_ns == min(row["sent_ns"] for row in rows)


def test_streams_that_never_end_are_cut_at_the_end_of_the_drain() -> None:
    bounds = load(warmup_max_s=0.1, measure_max_s=0.2, drain_max_s=0.2)
    cell_run, server, rows = run_cell(endless, streams=5, load=bounds)
    assert [row["outcome"] for row in rows] == ["cut"] * 5
    assert not cell_run.complete
    assert all(row["done_ns"] - cell_run.window_end_ns >= 0.2e9 for row in rows)
    assert server.connections <= 1 + 2 * 5


@pytest.mark.parametrize("transport", ["raw", "aiohttp"])
@pytest.mark.parametrize("after", [0, 3])
def test_a_cell_is_given_up_from_another_thread(transport: str, after: int) -> None:
    async def gives_up(loop: CellLoop, server: ScriptedServer) -> None:
        async with asyncio.timeout(10):
            while server.in_flight < after:
                await asyncio.sleep(0.005)
        loop.give_up()

    with pytest.raises(Stopped):
        run_cell(endless, meanwhile=gives_up, transport=transport)


def test_giving_up_what_is_over_is_harmless() -> None:
    loops: list[CellLoop] = []

    async def keeps(loop: CellLoop, _: ScriptedServer) -> None:
        loops.append(loop)

    run_cell(good, meanwhile=keeps)
    loops[0].give_up()


def test_a_server_that_dies_leaves_rows_of_both_kinds() -> None:
    async def dies(loop: CellLoop, server: ScriptedServer) -> None:
        async with asyncio.timeout(10):
            while len(server.requests) < 12:
                await asyncio.sleep(0.005)
        server.refuse_connections()

    async def closes(peer: Peer, request: Request) -> None:
        await good(peer, request)
        peer.close()

    bounds = load(measure_requests_per_stream=100, measure_max_s=0.5)
    _, _, rows = run_cell(closes, meanwhile=dies, load=bounds)
    outcomes = Counter(row["outcome"] for row in rows)
    assert outcomes["ok"] >= 12
    assert outcomes["connect_error"] >= 1
    assert sum(outcomes.values()) == len(rows)
