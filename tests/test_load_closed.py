"""The closed loop: streams that are refilled at once, pauses after refusals, conversations with their real answers."""

import asyncio
import itertools

from load_fixtures import load, run_cell, said
from scripted_server import Peer, Request, delta, usage, whole_answer

MS = 1_000_000


def test_in_flight_equals_the_target_from_the_ramp_to_the_last_issue() -> None:
    numbers = itertools.count()

    async def bimodal(peer: Peer, _: Request) -> None:
        await asyncio.sleep(0.02 if next(numbers) % 8 else 0.25)
        await peer.stream(*whole_answer())

    _, server, rows = run_cell(bimodal, streams=8, load=load(measure_requests_per_stream=6))
    assert server.peak == 8
    full_ns, last_ns = sorted(row["sent_ns"] for row in rows)[7], max(row["sent_ns"] for row in rows)
    idle_ns = 8 * (last_ns - full_ns) - sum(
        max(0, min(row["done_ns"], last_ns) - max(row["sent_ns"], full_ns)) for row in rows
    )
    assert idle_ns < 0.1 * 8 * (last_ns - full_ns)  # waves would leave most of it idle


def test_streams_start_over_the_ramp() -> None:
    async def long(peer: Peer, _: Request) -> None:
        await asyncio.sleep(0.5)
        await peer.stream(*whole_answer())

    bounds = load(ramp_s=0.4, warmup_requests_per_stream=0, measure_requests_per_stream=1)
    _, _, rows = run_cell(long, streams=4, load=bounds)
    starts = [row["sent_ns"] - rows[0]["sent_ns"] for row in rows[:4]]
    for number, start_ns in enumerate(starts):
        assert start_ns >= (100 * number - 20) * MS


def test_a_refusal_inside_a_200_is_followed_by_a_pause() -> None:
    async def busy(peer: Peer, _: Request) -> None:
        await peer.stream(b'data: {"error":{"message":"The request queue is full.","code":503}}\n\n')

    _, server, rows = run_cell(busy, streams=2, load=load(measure_min_s=0.5))
    took_s = (max(row["done_ns"] for row in rows) - rows[0]["sent_ns"]) / 1e9
    assert {row["outcome"] for row in rows} == {"rejected"}
    assert len(server.requests) <= 2 * (took_s / 0.1 + 1)


def test_a_later_turn_holds_the_real_answers_before_it_and_comes_after_thinking() -> None:
    numbers = itertools.count()

    async def answers(peer: Peer, _: Request) -> None:
        text = f'said "{next(numbers)}" \\ \n\u2028é\U0001f600'
        await peer.stream(delta(text, tokens=1), delta("!", finish="stop", tokens=2), usage(2))

    bounds = load(measure_requests_per_stream=6)
    _, server, rows = run_cell(answers, streams=2, turns=3, think_time_s=0.05, load=bounds)
    talks: dict[str, list[list[tuple[str, str]]]] = {}
    for request in server.requests:
        messages = said(request.body)
        talks.setdefault(messages[0][1], []).append(messages)
    by_length = [sorted(len(messages) for messages in turns) for turns in talks.values()]
    assert all(lengths == [1, 3, 5][: len(lengths)] for lengths in by_length)
    assert sum(lengths == [1, 3, 5] for lengths in by_length) >= 2
    for turns in talks.values():
        for earlier, later in itertools.pairwise(turns):
            assert later[: len(earlier)] == earlier
            role, answer = later[len(earlier)]
            assert role == "assistant"
            assert answer.startswith('said "')
            assert answer.endswith("\\ \n\u2028é\U0001f600!")
            assert later[-1] == ("user", f"more {len(earlier) // 2 + 1}")
    of_index = {row["request_index"]: row for row in rows}
    follow = [row for row in rows if row["request_index"] % 3]
    assert follow
    for row in follow:
        before = of_index[row["request_index"] - 1]
        assert row["scheduled_ns"] == before["done_ns"] + 50 * MS
        assert row["sent_ns"] >= row["scheduled_ns"]


def test_a_turn_that_fails_ends_its_conversation() -> None:
    async def fails_second(peer: Peer, request: Request) -> None:
        if len(said(request.body)) > 1:
            await peer.answer({"error": {"message": "no"}}, 500)
        else:
            await peer.stream(*whole_answer())

    _, server, rows = run_cell(fails_second, streams=1, turns=3, load=load(measure_requests_per_stream=4))
    assert {len(said(request.body)) for request in server.requests} == {1, 3}
    assert {row["outcome"] for row in rows if row["request_index"] % 3 == 1} == {"http_error"}
    assert not any(row["request_index"] % 3 == 2 for row in rows)
