"""The timed path against real sockets: each way in which an exchange can end, and what its stamps say."""

import asyncio
import itertools
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest
import uvloop
from scripted_server import (
    CHUNKED_HEAD,
    UNFRAMED_HEAD,
    Peer,
    Request,
    Script,
    closed_port,
    delta,
    event,
    role,
    scripted,
    whole_answer,
)

from loadgen.records import Outcome, Phase, RequestRecord
from loadgen.transport import fallback as transport_module
from loadgen.transport.exchange import Exchange, TimeLimits, blocks
from loadgen.transport.fallback import open_transport
from loadgen.wire import decode

T = TypeVar("T")
LOOPS = (asyncio.run, uvloop.run)
S = 1_000_000_000
PATIENT = TimeLimits(first_byte_ns=20 * S, idle_ns=20 * S, total_ns=20 * S)
GREETING = event({"hello": 1})


def limits(first_byte_s: float = 20, idle_s: float = 20, total_s: float = 20) -> TimeLimits:
    return TimeLimits(round(first_byte_s * S), round(idle_s * S), round(total_s * S))


async def ask(script: Script, time_limits: TimeLimits = PATIENT) -> Exchange:
    async with scripted(script) as server, open_transport(server.url, time_limits) as transport:
        return await transport.post(b"{}")


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def record_of(exchange: Exchange) -> RequestRecord:
    record = RequestRecord(index=0, phase=Phase.MEASURE, scheduled_ns=0, max_tokens=32)
    decode(exchange, record)
    return record


async def good(peer: Peer, _: Request) -> None:
    await peer.stream(*whole_answer())


async def unframed(peer: Peer, _: Request) -> None:
    await peer.send(UNFRAMED_HEAD + b"".join(whole_answer()))
    peer.close()


async def silent(peer: Peer, _: Request) -> None:
    await peer.wait_for_end()


async def half_a_head(peer: Peer, _: Request) -> None:
    await peer.send(b"HTTP/1.1 200 OK\r\nContent-Ty")
    await peer.wait_for_end()


async def headers_only(peer: Peer, _: Request) -> None:
    await peer.send(CHUNKED_HEAD)
    await peer.wait_for_end()


async def stalls_after_three(peer: Peer, _: Request) -> None:
    await peer.send(CHUNKED_HEAD)
    for n in range(3):
        await peer.send_chunk(delta(f"{n}", tokens=n + 1))
    await peer.wait_for_end()


async def trickles(peer: Peer, _: Request) -> None:
    await peer.send(CHUNKED_HEAD)
    for n in itertools.count(1):
        await peer.send_chunk(delta("x", tokens=n))
        await asyncio.sleep(0.02)


async def says_no(peer: Peer, _: Request) -> None:
    await peer.answer({"object": "error", "message": "max_new_tokens must be at least 0"}, 400)


async def redirects(peer: Peer, request: Request) -> None:
    assert request.path == "/v1/chat/completions"
    await peer.send(b"HTTP/1.1 307 X\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n")


async def too_many(peer: Peer, _: Request) -> None:
    await peer.answer({"error": {"message": "slow down"}}, 429)


async def queue_full_in_stream(peer: Peer, _: Request) -> None:
    await peer.stream(event({"error": {"message": "The request queue is full.", "code": 503}}))


async def dies_in_stream(peer: Peer, _: Request) -> None:
    error = event({"error": {"message": "CUDA error", "code": 500}})
    await peer.stream(role(), delta("a", tokens=1), error)


async def closes_mid_chunks(peer: Peer, _: Request) -> None:
    await peer.send(CHUNKED_HEAD)
    await peer.send_chunk(delta("a", tokens=1))
    peer.close()


async def closes_before_length(peer: Peer, _: Request) -> None:
    await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + delta("a", tokens=1))
    peer.close()


async def closes_unframed(peer: Peer, _: Request) -> None:
    await peer.send(UNFRAMED_HEAD + delta("a", tokens=1))
    peer.close()


async def no_token(peer: Peer, _: Request) -> None:
    await peer.stream(role(), event(b"[DONE]"))


async def speaks_ssh(peer: Peer, _: Request) -> None:
    await peer.send(b"SSH-2.0-OpenSSH_9.6\r\n")
    await peer.wait_for_end()


async def endless_header(peer: Peer, _: Request) -> None:
    await peer.send(b"HTTP/1.1 200 OK\r\nX: " + b"a" * 100_000)
    await peer.wait_for_end()


async def half_json(peer: Peer, _: Request) -> None:
    await peer.stream(role(), event(b'{"choices":['))


async def hangs_up(peer: Peer, _: Request) -> None:
    peer.close()


async def resets_at_once(peer: Peer, _: Request) -> None:
    peer.reset()


async def resets_mid_chunks(peer: Peer, _: Request) -> None:
    await peer.send(CHUNKED_HEAD)
    await peer.send_chunk(delta("a", tokens=1))
    await asyncio.sleep(0.05)  # a reset overtakes bytes that the client has not read
    peer.reset()


async def resets_before_length(peer: Peer, _: Request) -> None:
    await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n" + delta("a", tokens=1))
    await asyncio.sleep(0.05)
    peer.reset()


ENDINGS: list[tuple[Script, TimeLimits, Outcome]] = [
    (good, PATIENT, Outcome.OK),
    (unframed, PATIENT, Outcome.OK),
    (silent, limits(first_byte_s=0.1), Outcome.TIMEOUT_FIRST_BYTE),
    (half_a_head, limits(first_byte_s=0.1), Outcome.TIMEOUT_FIRST_BYTE),
    (headers_only, limits(idle_s=0.1), Outcome.IDLE_TIMEOUT),
    (stalls_after_three, limits(idle_s=0.1), Outcome.IDLE_TIMEOUT),
    (trickles, limits(total_s=0.2), Outcome.TOTAL_TIMEOUT),
    (says_no, PATIENT, Outcome.HTTP_ERROR),
    (redirects, PATIENT, Outcome.HTTP_ERROR),
    (too_many, PATIENT, Outcome.REJECTED),
    (queue_full_in_stream, PATIENT, Outcome.REJECTED),
    (dies_in_stream, PATIENT, Outcome.IN_STREAM_ERROR),
    (closes_mid_chunks, PATIENT, Outcome.TRUNCATED_STREAM),
    (closes_before_length, PATIENT, Outcome.TRUNCATED_STREAM),
    (closes_unframed, PATIENT, Outcome.TRUNCATED_STREAM),
    (no_token, PATIENT, Outcome.EMPTY_STREAM),
    (speaks_ssh, PATIENT, Outcome.MALFORMED),
    (endless_header, PATIENT, Outcome.MALFORMED),
    (half_json, PATIENT, Outcome.MALFORMED),
    (hangs_up, PATIENT, Outcome.RESET),
    (resets_at_once, PATIENT, Outcome.RESET),
    (resets_mid_chunks, PATIENT, Outcome.RESET),
    (resets_before_length, PATIENT, Outcome.RESET),
]


@pytest.mark.parametrize("loop", LOOPS, ids=["asyncio", "uvloop"])
@pytest.mark.parametrize(
    ("script", "time_limits", "outcome"), ENDINGS, ids=lambda value: getattr(value, "__name__", "")
)
def test_each_ending_has_its_outcome(
    loop: Any, script: Script, time_limits: TimeLimits, outcome: Outcome
) -> None:
    exchange = loop(ask(script, time_limits))
    record = record_of(exchange)
    assert record.outcome is outcome
    assert 0 < exchange.sent_ns <= exchange.done_ns
    assert (record.error is None) == (
        outcome in (Outcome.OK, Outcome.EMPTY_STREAM)
    ) or script is closes_unframed


def test_every_outcome_that_a_socket_can_produce_is_among_the_endings() -> None:
    elsewhere = {Outcome.CLIENT_LOST, Outcome.CONNECT_ERROR, Outcome.CUT}
    assert {outcome for _, _, outcome in ENDINGS} == set(Outcome) - elsewhere


def test_nobody_listening_is_a_connect_error() -> None:
    async def work() -> Exchange:
        async with open_transport(f"http://127.0.0.1:{closed_port()}", PATIENT) as transport:
            return await transport.post(b"{}")

    exchange = run(work())
    assert exchange.failure is Outcome.CONNECT_ERROR
    assert (exchange.status, exchange.headers_ns, exchange.body) == (None, None, b"")
    assert record_of(exchange).error.startswith("ClientConnectorError")


def test_what_is_in_flight_can_be_cut_and_keeps_what_came() -> None:
    async def work() -> tuple[list[Exchange], Exchange, int]:
        async with scripted(stalls_after_three) as server, open_transport(server.url, PATIENT) as transport:
            posts = [asyncio.create_task(transport.post(b"{}")) for _ in range(3)]
            while server.in_flight < 3:
                await asyncio.sleep(0.005)
            await asyncio.sleep(0.05)
            assert transport.in_flight == 3
            transport.cut_all()
            exchanges = await asyncio.gather(*posts)
            return exchanges, exchanges[0], transport.in_flight

    exchanges, first, left = run(work())
    assert [exchange.failure for exchange in exchanges] == [Outcome.CUT] * 3
    assert record_of(first).outcome is Outcome.CUT
    assert record_of(first).chunk_tokens == [1, 2, 3]
    assert left == 0


def test_a_stalled_stream_keeps_its_chunks_and_the_others_go_on() -> None:
    async def first_stalls(peer: Peer, request: Request) -> None:
        await (stalls_after_three if request.body == b"0" else good)(peer, request)

    async def work() -> list[RequestRecord]:
        async with (
            scripted(first_stalls) as server,
            open_transport(server.url, limits(idle_s=0.5)) as transport,
        ):
            return [
                record_of(e) for e in await asyncio.gather(*(transport.post(b"%d" % n) for n in range(64)))
            ]

    stalled, *others = run(work())
    assert (stalled.outcome, stalled.chunk_tokens) == (Outcome.IDLE_TIMEOUT, [1, 2, 3])
    assert stalled.error == "nothing for 0.5 s"
    assert {record.outcome for record in others} == {Outcome.OK}


def test_a_slow_stream_whose_gaps_are_short_breaks_no_limit() -> None:
    async def slow(peer: Peer, _: Request) -> None:
        await peer.stream(*(delta("x", tokens=n) for n in range(1, 8)), delta(finish="stop"), pause_s=0.06)

    assert record_of(run(ask(slow, limits(first_byte_s=0.3, idle_s=0.3)))).outcome is Outcome.OK


def test_stamps_are_in_order_and_apart_as_the_chunks_were() -> None:
    async def paced(peer: Peer, _: Request) -> None:
        await peer.stream(*whole_answer(4), pause_s=0.03)

    exchange = run(ask(paced))
    stamps = [at_ns for at_ns, _ in blocks(exchange)]
    moments = [exchange.sent_ns, exchange.headers_ns, *stamps, exchange.done_ns]
    assert moments == sorted(moments)
    assert stamps[-1] - stamps[0] >= 0.03 * S * 6 * 0.5
    assert len(stamps) >= 5


def test_one_event_of_20_mb_is_read() -> None:
    thought = "x" * 20_000_000

    async def huge(peer: Peer, _: Request) -> None:
        await peer.stream(delta(reasoning=thought, tokens=9), delta("a", finish="stop", tokens=10))

    record = record_of(run(ask(huge)))
    assert record.outcome is Outcome.OK
    assert len(record.reasoning) == len(thought)
    assert record.response_bytes > len(thought)


def test_a_caller_that_is_cancelled_closes_its_connection() -> None:
    async def work() -> None:
        closed = asyncio.Event()

        async def watches(peer: Peer, _: Request) -> None:
            await peer.send(CHUNKED_HEAD)
            await peer.wait_for_end()
            closed.set()

        async with scripted(watches) as server, open_transport(server.url, PATIENT) as transport:
            post = asyncio.create_task(transport.post(b"{}"))
            while not server.in_flight:
                await asyncio.sleep(0.005)
            post.cancel()
            with pytest.raises(asyncio.CancelledError):
                await post
            await asyncio.wait_for(closed.wait(), 5)
            assert transport.in_flight == 0

    run(work())


def test_a_caller_that_is_cancelled_while_its_exchange_is_cut_is_cancelled() -> None:
    async def work() -> None:
        async with scripted(silent) as server, open_transport(server.url, PATIENT) as transport:
            post = asyncio.create_task(transport.post(b"{}"))
            while not server.in_flight:
                await asyncio.sleep(0.005)
            transport.cut_all()
            post.cancel()
            with pytest.raises(asyncio.CancelledError):
                await post

    run(work())


async def seen_by_server(api_key: str | None, posts: int) -> tuple[list[Request], int]:
    async with scripted(good) as server, open_transport(server.url, PATIENT, api_key) as transport:
        for _ in range(posts):
            await transport.post(b'{"a":1}')
        return server.requests, server.connections


def test_connections_are_used_again() -> None:
    requests, connections = run(seen_by_server(None, 5))
    assert (len(requests), connections) == (5, 1)


def test_the_request_is_plain_json_without_compression() -> None:
    requests, _ = run(seen_by_server(None, 1))
    assert (requests[0].method, requests[0].path, requests[0].body) == (
        "POST",
        "/v1/chat/completions",
        b'{"a":1}',
    )
    assert requests[0].headers["content-type"] == "application/json"
    assert requests[0].headers["accept-encoding"] == "identity"
    assert "authorization" not in requests[0].headers


def test_a_key_is_sent_as_a_bearer_token() -> None:
    requests, _ = run(seen_by_server("k-1", 1))
    assert requests[0].headers["authorization"] == "Bearer k-1"


def test_a_server_that_closes_after_each_answer_costs_no_failure() -> None:
    async def once(peer: Peer, request: Request) -> None:
        await good(peer, request)
        peer.close()

    async def work() -> list[Outcome | None]:
        async with scripted(once) as server, open_transport(server.url, PATIENT) as transport:
            outcomes = []
            for _ in range(5):
                outcomes.append(record_of(await transport.post(b"{}")).outcome)
                await asyncio.sleep(0.01)
            return outcomes

    assert run(work()) == [Outcome.OK] * 5


def test_a_request_on_a_connection_that_the_server_just_closed_goes_out_again() -> None:
    served: list[Peer] = []

    async def hangs_up_on_second(peer: Peer, request: Request) -> None:
        if peer in served:
            peer.close()
            return
        served.append(peer)
        await good(peer, request)

    async def work() -> tuple[Exchange, Exchange, int]:
        async with scripted(hangs_up_on_second) as server, open_transport(server.url, PATIENT) as transport:
            return await transport.post(b"1"), await transport.post(b"2"), server.connections

    first, second, connections = run(work())
    assert (first.resends, second.resends, connections) == (0, 1, 2)
    assert record_of(second).outcome is Outcome.OK
    assert second.sent_ns < second.headers_ns


def test_a_request_over_which_a_server_dies_does_not_go_out_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport_module, "_AT_ONCE_NS", S // 20)

    async def dies_over_second(peer: Peer, request: Request) -> None:
        if request.body == b"1":
            await good(peer, request)
        else:
            await asyncio.sleep(0.1)
            peer.close()

    async def work() -> tuple[Exchange, int]:
        async with scripted(dies_over_second) as server, open_transport(server.url, PATIENT) as transport:
            await transport.post(b"1")
            return await transport.post(b"2"), len(server.requests)

    second, requests = run(work())
    assert (second.failure, second.resends, requests) == (Outcome.RESET, 0, 2)


def test_a_request_that_was_answered_in_part_never_goes_out_again() -> None:
    async def then_resets(peer: Peer, request: Request) -> None:
        await (good if request.body == b"1" else resets_mid_chunks)(peer, request)

    async def work() -> tuple[Exchange, int]:
        async with scripted(then_resets) as server, open_transport(server.url, PATIENT) as transport:
            await transport.post(b"1")
            return await transport.post(b"2"), len(server.requests)

    second, requests = run(work())
    assert (second.failure, second.resends, requests) == (Outcome.RESET, 0, 2)


def test_nothing_runs_on_when_the_transport_is_closed() -> None:
    async def work() -> set[asyncio.Task[Any]]:
        async with scripted(good) as server, open_transport(server.url, PATIENT) as transport:
            await transport.post(b"{}")
        return asyncio.all_tasks() - {asyncio.current_task()}

    assert run(work()) == set()
