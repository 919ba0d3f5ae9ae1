"""One worker's part of a cell against real servers: scripted ones on loopback, and the simulator."""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from statistics import median
from typing import Any

import pytest
from scripted_server import (
    CHUNKED_HEAD,
    Peer,
    Request,
    ScriptedServer,
    closed_port,
    delta,
    role,
    scripted,
    usage,
    whole_answer,
)
from sim_fixtures import SimServer

from loadgen.client import Client
from loadgen.errors import RunFailed
from loadgen.grading.problems import problem_set
from loadgen.job import CellJob, CellRun
from loadgen.load.meeting import Point
from loadgen.metrics import Window, summarize
from loadgen.plan import Cell
from loadgen.prompts.corpus import builtin_paragraphs
from loadgen.prompts.settings import PromptSettings
from loadgen.prompts.sources import Source
from loadgen.schedule import Shard, make_shards
from loadgen.spec import Limits, Load

Stream = Callable[[Peer, Request], Awaitable[None]]
TEMPLATE = 9  # tokens that the scripted servers add to the words of a message


def load(**values: Any) -> Load:
    """Two requests a stream and nothing to wait for; bounds that end a hanging test."""
    usual = {
        "warmup_max_s": 5,
        "measure_min_s": 0,
        "measure_max_s": 5,
        "drain_max_s": 5,
        "measure_min_requests": 1,
        "ramp_s": 0,
        "warmup_until_stationary": False,
    }
    return Load(**{"concurrency": [1], **usual, **values})


def job(url: str, streams: int = 4, context: int = 30, **values: Any) -> CellJob:
    cell = Cell("p.s.text.c", "load", "p", "s", "text", context, 16, 0.0, streams)
    usual: dict[str, Any] = {
        "repeat": 0,
        "run_id": "run",
        "seed": 1,
        "shard": Shard(0, 1, streams),
        "worker": "w0",
        "api_key_env": None,
        "model": "m",
        "server_id": "life",
        "time_scale": 1.0,
        "load": load(),
        "limits": Limits(idle_timeout_s=5, first_byte_timeout_s=5, request_timeout_s=20),
        "corpus": Source("short", builtin_paragraphs()[:100]),
    }
    return CellJob(cell=cell, endpoint=url, **{**usual, **values})


def words_of(request: Request) -> int:
    return len(request.json["messages"][0]["content"].split())


def llm(stream: Stream) -> Stream:
    """A server whose tokens are words: it counts prompts by usage, and plays `stream` for streaming requests."""

    async def script(peer: Peer, request: Request) -> None:
        if request.path != "/v1/chat/completions":
            await peer.answer({"detail": "Not Found"}, 404)
        elif request.json.get("stream"):
            await stream(peer, request)
        else:
            counted = {"prompt_tokens": TEMPLATE + words_of(request), "completion_tokens": 1}
            await peer.answer({"choices": [{"message": {"content": "x"}}], "usage": counted})

    return script


async def good(peer: Peer, request: Request) -> None:
    await peer.stream(*whole_answer(prompt_tokens=TEMPLATE + words_of(request)))


def run_cell(
    stream: Stream, client: Client | None = None, **values: Any
) -> tuple[CellRun, ScriptedServer, list[dict[str, Any]]]:
    async def work() -> tuple[CellRun, ScriptedServer, list[dict[str, Any]]]:
        async with scripted(llm(stream)) as server:
            cell_run = await (client or Client("w0")).run_cell(job(server.url, **values))
            return cell_run, server, cell_run.requests.to_pylist()

    return asyncio.run(work())


async def conducted(client: Client, of_several: CellJob) -> CellRun:
    """One worker's part of a cell that several share; it waits for nobody."""
    running = asyncio.create_task(client.run_cell(of_several))
    await asyncio.sleep(0)
    for point in Point:
        await client.reached(point)
        await client.pass_at(point, time.monotonic_ns())
    return await running


def figures(cell_run: CellRun) -> dict[str, Any]:
    return summarize(cell_run.requests, Window(cell_run.window_start_ns, cell_run.window_end_ns, 1.0))


def load_requests(server: ScriptedServer) -> list[Request]:
    return [r for r in server.requests if r.path == "/v1/chat/completions" and r.json.get("stream")]


def test_a_cell_has_warm_up_measurement_and_drain() -> None:
    async def unhurried(peer: Peer, request: Request) -> None:
        await asyncio.sleep(0.02)
        await good(peer, request)

    cell_run, server, rows = run_cell(
        unhurried, load=load(warmup_requests_per_stream=2, measure_requests_per_stream=3)
    )
    phases = [row["phase"] for row in rows]
    assert cell_run.complete
    assert {row["outcome"] for row in rows} == {"ok"}
    assert phases.count("warmup") >= 8
    ended = [row for row in rows if cell_run.window_start_ns <= row["done_ns"] <= cell_run.window_end_ns]
    assert len(ended) >= 12
    assert [row["request_index"] for row in rows] == list(range(len(load_requests(server))))
    assert (rows[0]["worker"], rows[0]["cell_id"], rows[0]["server_id"]) == ("w0", "p.s.text.c", "life")


def test_prompts_have_their_length_and_share_no_beginning() -> None:
    cell_run, server, rows = run_cell(good, context=500)
    assert {row["prompt_tokens"] for row in rows} == {500}
    assert {row["target_prompt_tokens"] for row in rows} == {500}
    messages = [request.json["messages"][0]["content"] for request in load_requests(server)]
    assert len({message[:39] for message in messages}) == len(messages)  # the ten words of a salt
    assert set(cell_run.responses["prompt"].to_pylist()) < set(messages)


def test_what_was_sent_is_what_the_plan_says() -> None:
    _, server, _ = run_cell(good)
    body = load_requests(server)[0].json
    assert (body["model"], body["max_tokens"], body["temperature"], body["stream"]) == ("m", 16, 0.0, True)


def test_in_flight_stays_at_its_target_when_durations_differ() -> None:
    numbers = itertools.count()

    async def bimodal(peer: Peer, request: Request) -> None:
        await asyncio.sleep(0.02 if next(numbers) % 8 else 0.2)
        await good(peer, request)

    cell_run, server, _ = run_cell(bimodal, streams=8, load=load(measure_requests_per_stream=5))
    assert server.peak == 8
    assert figures(cell_run)["in_flight_mean"] > 7  # waves would leave it near 2


def test_the_warm_up_keeps_to_the_concurrency_too() -> None:
    _, server, _ = run_cell(good, streams=3, load=load(warmup_requests_per_stream=5))
    assert server.peak == 3


def test_one_stalled_stream_costs_one_request() -> None:
    seen: list[bytes] = []

    async def first_stalls(peer: Peer, request: Request) -> None:
        seen.append(request.body)
        if request.body != seen[0]:
            await good(peer, request)
            return
        await peer.send(CHUNKED_HEAD)
        for n in range(3):
            await peer.send_chunk(delta("x", tokens=n + 1))
        await peer.wait_for_end()

    cell_run, _, rows = run_cell(first_stalls, streams=16, limits=Limits(idle_timeout_s=0.5))
    outcomes = [row["outcome"] for row in rows]
    assert outcomes.count("idle_timeout") == 1
    assert outcomes.count("ok") == len(rows) - 1
    stalled = rows[outcomes.index("idle_timeout")]
    assert stalled["chunk_tokens"] == [1, 2, 3]
    assert cell_run.complete


def test_a_server_that_never_ends_its_streams_is_cut_when_the_time_is_over() -> None:
    async def endless(peer: Peer, _: Request) -> None:
        await peer.send(CHUNKED_HEAD)
        while True:
            await peer.send_chunk(delta("x"))
            await asyncio.sleep(0.02)

    bounds = load(warmup_max_s=0.1, measure_max_s=0.2, drain_max_s=0.1)
    cell_run, _, rows = run_cell(endless, load=bounds)
    assert not cell_run.complete
    assert [(row["outcome"], row["error"]) for row in rows] == [("cut", None)] * 4
    assert all(row["chunk_ns"] for row in rows)
    assert cell_run.window_end_ns - cell_run.window_start_ns >= 0.2e9
    assert figures(cell_run)["cut"] == 4


def test_requests_in_flight_when_the_window_closes_may_end_and_are_drain_or_measure() -> None:
    async def slow(peer: Peer, request: Request) -> None:
        await asyncio.sleep(0.15)
        await good(peer, request)

    bounds = load(warmup_requests_per_stream=0, measure_max_s=0.05)
    cell_run, _, rows = run_cell(slow, load=bounds)
    assert [(row["outcome"], row["phase"]) for row in rows] == [("ok", "measure")] * 4
    assert all(row["done_ns"] > cell_run.window_end_ns for row in rows)
    assert not cell_run.complete


def test_a_server_that_refuses_is_not_flooded() -> None:
    async def busy(peer: Peer, _: Request) -> None:
        await peer.answer({"error": {"message": "full"}}, 503)

    began = time.monotonic()
    cell_run, server, rows = run_cell(busy, load=load(measure_min_s=0.5))
    took = time.monotonic() - began
    assert {row["outcome"] for row in rows} == {"rejected"}
    assert len(load_requests(server)) <= 4 * (took / 0.1 + 1)
    assert figures(cell_run)["error_rate"] == 1
    assert figures(cell_run)["n"] == 0


def test_a_refusal_in_a_200_stream_is_rejected() -> None:
    async def busy(peer: Peer, _: Request) -> None:
        await peer.stream(
            b'data: {"error":{"message":"The request queue is full.","code":503}}\n\n', b"data: [DONE]\n\n"
        )

    cell_run, _, rows = run_cell(busy, load=load(measure_requests_per_stream=1))
    assert {(row["outcome"], row["output_tokens"]) for row in rows} == {("rejected", None)}
    assert figures(cell_run)["output_tps"] == 0


def test_a_server_that_dies_leaves_rows_of_both_kinds() -> None:
    served = itertools.count()
    servers: list[ScriptedServer] = []

    async def dies_after_twenty(peer: Peer, request: Request) -> None:
        if next(served) < 20:
            await good(peer, request)
        else:
            servers[0].refuse_connections()
            peer.close()

    async def work() -> CellRun:
        async with scripted(llm(dies_after_twenty)) as server:
            servers.append(server)
            return await Client("w0").run_cell(job(server.url, load=load(measure_requests_per_stream=10)))

    cell_run = asyncio.run(work())
    outcomes = cell_run.requests["outcome"].to_pylist()
    assert outcomes.count("ok") == 20
    assert "connect_error" in outcomes
    assert figures(cell_run)["n"] > 0
    assert figures(cell_run)["error_rate"] > 0


def test_the_first_token_is_not_the_role_chunk() -> None:
    async def thinks_late(peer: Peer, _: Request) -> None:
        await peer.send(CHUNKED_HEAD)
        await peer.send_chunk(role())
        await asyncio.sleep(0.06)
        await peer.send_chunk(delta(reasoning="hm", tokens=1))
        await asyncio.sleep(0.04)
        await peer.send_chunk(delta("a", tokens=2, finish="stop") + usage(2))
        await peer.end()

    cell_run, _, rows = run_cell(thinks_late)
    # the median: on a busy machine a client may read two chunks at once
    assert median(row["first_token_ns"] - row["first_chunk_ns"] for row in rows) >= 0.02e9
    assert median(row["first_answer_ns"] - row["first_token_ns"] for row in rows) >= 0.015e9
    assert figures(cell_run)["ttft_p50_ms"] >= 55
    assert figures(cell_run)["ttfa_p50_ms"] >= 90


def test_text_stays_out_of_the_requests_table_and_few_answers_are_kept() -> None:
    async def wordy(peer: Peer, _: Request) -> None:
        await peer.stream(role(), delta("x" * 50_000, tokens=1), delta(finish="stop"), usage(1))

    cell_run, _, rows = run_cell(
        wordy, load=load(measure_requests_per_stream=4), limits=Limits(responses_per_cell=2)
    )
    assert cell_run.responses.num_rows == 2
    assert cell_run.responses["content"].to_pylist() == ["x" * 50_000] * 2
    assert len(rows) > 16
    assert cell_run.requests.nbytes < 1000 * len(rows)


def test_a_simulated_clock_shortens_the_bounds() -> None:
    async def endless(peer: Peer, _: Request) -> None:
        await peer.send(CHUNKED_HEAD)
        await peer.wait_for_end()

    bounds = load(warmup_max_s=10, measure_max_s=20, drain_max_s=10)
    cell_run, _, _ = run_cell(endless, load=bounds, time_scale=100.0)
    assert 0.2e9 <= cell_run.window_end_ns - cell_run.window_start_ns < 20e9


def test_a_worker_sends_its_shard_alone() -> None:
    async def work() -> list[dict[str, Any]]:
        async with scripted(llm(good)) as server:
            return (await conducted(Client("w1"), job(server.url, shard=Shard(1, 3, 2)))).requests.to_pylist()

    rows = asyncio.run(work())
    assert [row["request_index"] for row in rows] == [1 + 3 * n for n in range(len(rows))]


def test_the_key_is_taken_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THE_KEY", "k-1")
    _, server, _ = run_cell(good, api_key_env="THE_KEY")
    assert {request.headers.get("authorization") for request in server.requests} == {"Bearer k-1"}


def test_each_prompt_source_is_fitted_by_itself() -> None:
    client = Client("w0")

    async def work() -> list[set[int]]:
        async with scripted(llm(good)) as server:
            lengths = []
            for source, text in (("dense", "one two"), ("spaced", "one    two")):
                asked = job(server.url, context=120, corpus=Source(source, (text,)))
                run = await client.run_cell(
                    replace(asked, cell=replace(asked.cell, prompts=PromptSettings(source)))
                )
                lengths.append(set(run.requests["prompt_tokens"].to_pylist()))
            return lengths

    assert asyncio.run(work()) == [{120}, {120}]


def test_a_second_cell_of_the_same_server_and_length_needs_no_fit() -> None:
    client = Client("w0")

    async def work() -> tuple[int, int]:
        async with scripted(llm(good)) as server:
            await client.run_cell(job(server.url))
            before = len(server.requests) - len(load_requests(server))
            await client.run_cell(job(server.url, repeat=1))
            return before, len(server.requests) - len(load_requests(server))

    before, after = asyncio.run(work())
    assert before == after > 4


def test_a_server_that_counts_nothing_cannot_be_measured_at_a_length() -> None:
    async def no_usage(peer: Peer, request: Request) -> None:
        await peer.answer(
            {"choices": [{"message": {"content": "x"}}], "usage": []} if "chat" in request.path else {}
        )

    async def work() -> None:
        async with scripted(no_usage) as server:
            await Client("w0").run_cell(job(server.url))

    with pytest.raises(RunFailed, match="gives neither /tokenize nor usage"):
        asyncio.run(work())


def test_a_server_that_is_not_there_fails_before_anything_is_measured() -> None:
    with pytest.raises(RunFailed, match="cannot be reached"):
        asyncio.run(Client("w0").run_cell(job(f"http://127.0.0.1:{closed_port()}")))


def test_a_cancelled_cell_leaves_no_request_behind() -> None:
    async def forever(peer: Peer, _: Request) -> None:
        await peer.send(CHUNKED_HEAD)
        await peer.wait_for_end()

    async def work() -> int:
        async with scripted(llm(forever)) as server:
            cell = asyncio.create_task(Client("w0").run_cell(job(server.url)))
            while server.in_flight < 4 or not load_requests(server):
                await asyncio.sleep(0.005)
            cell.cancel()
            with pytest.raises(asyncio.CancelledError):
                await cell
            for _ in range(200):
                if not server.in_flight:
                    break
                await asyncio.sleep(0.01)
            return server.in_flight

    assert asyncio.run(work()) == 0


def test_an_evaluation_asks_each_problem_once_over_all_shards() -> None:
    problems = problem_set("classic").problems
    asked: list[str] = []
    for shard in make_shards(3, 2):
        cell = Cell("p.s.eval", "eval", "p", "s", "classic", None, 4096, 0.0, 3)

        async def work(shard: Shard = shard, cell: Cell = cell) -> CellRun:
            async with scripted(llm(good)) as server:
                return await Client("w0").run_cell(
                    replace(job(server.url), cell=cell, shard=shard, corpus=Source())
                )

        cell_run = asyncio.run(work())
        assert cell_run.complete
        assert cell_run.requests["phase"].to_pylist() == ["measure"] * cell_run.requests.num_rows
        assert cell_run.responses.num_rows == cell_run.requests.num_rows
        rows = cell_run.responses.to_pylist()
        assert all(row["prompt"] == problems[row["request_index"]].prompt for row in rows)
        assert {row["content"] for row in rows} == {"w0 w1 w2 "}
        asked += [row["problem"] for row in rows]
    assert sorted(asked) == sorted(problem.name for problem in problems)


@pytest.mark.parametrize("streams", [1, 3])
def test_an_evaluation_whose_last_requests_are_refused_ends(streams: int) -> None:
    problems = len(problem_set("classic").problems)

    async def busy(peer: Peer, _: Request) -> None:
        await peer.answer({"error": {"message": "full"}}, 503)

    async def work() -> CellRun:
        cell = Cell("p.s.eval", "eval", "p", "s", "classic", None, 4096, 0.0, streams * problems)
        shard = Shard(problems - 2, problems, streams)
        async with scripted(llm(busy)) as server:
            asked = replace(job(server.url), cell=cell, shard=shard, corpus=Source())
            return await asyncio.wait_for(Client("w0").run_cell(asked), 20)

    cell_run = asyncio.run(work())
    assert cell_run.complete
    assert cell_run.requests["outcome"].to_pylist() == ["rejected"]


def test_a_worker_that_has_no_problem_to_ask_ends() -> None:
    async def work() -> CellRun:
        cell = Cell("p.s.eval", "eval", "p", "s", "classic", None, 4096, 0.0, 1000)
        async with scripted(llm(good)) as server:
            asked = replace(job(server.url), cell=cell, shard=Shard(999, 1000, 1), corpus=Source())
            return await asyncio.wait_for(Client("w0").run_cell(asked), 20)

    assert asyncio.run(work()).requests.num_rows == 0


def test_an_answer_of_a_token_is_no_refusal() -> None:
    """A pause after each short answer would leave most of the streams empty."""

    async def brief(peer: Peer, _: Request) -> None:
        await asyncio.sleep(0.02)
        await peer.stream(delta("x", tokens=1, finish="stop") + usage(1))

    cell_run, _, _ = run_cell(brief, streams=8, load=load(measure_requests_per_stream=8))
    assert figures(cell_run)["in_flight_mean"] > 5  # with pauses, 1.3


@pytest.mark.parametrize("transport", ["raw", "aiohttp"])
def test_a_cell_by_either_transport(transport: str) -> None:
    cell_run, _, rows = run_cell(good, transport=transport)
    assert cell_run.complete
    assert {row["outcome"] for row in rows} == {"ok"}
    assert cell_run.transport == transport


def test_two_repeats_on_a_server_with_a_prefix_cache_are_both_cold() -> None:
    with SimServer("--enable-cache-report", "--time-scale", "50", "--served-model-name", "m") as server:
        client = Client("w0")
        asked = job(f"http://127.0.0.1:{server.port}", context=1000, time_scale=50.0)
        asked = replace(asked, cell=replace(asked.cell, ignore_eos=True))
        for repeat in (0, 1):
            cell_run = asyncio.run(client.run_cell(replace(asked, repeat=repeat)))
            rows = cell_run.requests.to_pylist()
            assert {row["outcome"] for row in rows} == {"ok"}
            assert {row["token_source"] for row in rows} == {"continuous_usage"}
            assert {row["output_tokens"] for row in rows} == {16}
            assert all(abs(row["prompt_tokens"] - 1000) <= 8 for row in rows)
            assert all(row["cached_tokens"] <= 32 for row in rows)
        again = asyncio.run(client.run_cell(replace(asked, repeat=1)))
        assert max(row["cached_tokens"] for row in again.requests.to_pylist()) > 900  # the cache is there
        assert figures(again)["cached_fraction"] > 0.5
