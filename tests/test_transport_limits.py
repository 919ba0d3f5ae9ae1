"""Both transports: time limits, cuts, stalls, responses without end."""

import asyncio
import threading

import pytest
from scripted_server import (
    CHUNKED_HEAD,
    Peer,
    Request,
    delta,
    scripted,
)
from transport_fixtures import KINDS, S, ask, asking, limits, record_of, until
from transport_scripts import good, open_after_done, silent, stalls_after_three

from loadgen.records import Outcome
from loadgen.transport import limits as limits_module
from loadgen.transport.exchange import READ, Exchange

both = pytest.mark.parametrize("kind", KINDS)


@both
def test_what_is_in_flight_can_be_cut_and_keeps_what_came(kind: str) -> None:
    async def work() -> tuple[list[Exchange], int]:
        async with scripted(stalls_after_three) as server, asking(kind, server.url) as asker:
            posts = [asker.post() for _ in range(3)]
            await until(lambda: asker.transport.body_bytes() >= 3 * 3 * 100)
            assert await asker.call(lambda: asker.transport.in_flight) == 3
            asker.transport.wake(asker.transport.cut_all)
            exchanges = await asyncio.gather(*posts)
            await until(lambda: server.in_flight == 0)  # the connections are closed
            return exchanges, asker.transport.in_flight

    exchanges, left = asyncio.run(work())
    assert [exchange.failure for exchange in exchanges] == [Outcome.CUT] * 3
    assert record_of(exchanges[0]).outcome is Outcome.CUT
    assert record_of(exchanges[0]).chunk_tokens == [1, 2, 3]
    assert left == 0


@both
def test_a_request_that_is_cut_as_it_is_sent_ends_too(kind: str) -> None:
    async def work() -> Exchange:
        async with scripted(silent) as server, asking(kind, server.url) as asker:
            post = asker.post()
            asker.transport.wake(asker.transport.cut_all)
            return await asyncio.wait_for(post, 5)

    assert asyncio.run(work()).failure is Outcome.CUT


@both
def test_a_stalled_stream_keeps_its_chunks_and_the_others_go_on(kind: str) -> None:
    async def first_stalls(peer: Peer, request: Request) -> None:
        await (stalls_after_three if request.body == b"0" else good)(peer, request)

    async def work() -> list[Exchange]:
        async with (
            scripted(first_stalls) as server,
            asking(kind, server.url, time_limits=limits(idle_s=0.5)) as asker,
        ):
            return await asyncio.gather(*(asker.post(b"%d" % n) for n in range(64)))

    stalled, *others = (record_of(exchange) for exchange in asyncio.run(work()))
    assert (stalled.outcome, stalled.chunk_tokens) == (Outcome.IDLE_TIMEOUT, [1, 2, 3])
    assert stalled.error == "nothing for 0.5 s"
    assert {record.outcome for record in others} == {Outcome.OK}


def test_the_last_of_many_is_looked_at_as_often_as_the_first() -> None:
    """A round of looking at exchanges that began with 500 must not take 500 looks when one is left."""

    async def first_stalls(peer: Peer, request: Request) -> None:
        if request.body == b"0":
            await peer.wait_for_end()
        await asyncio.sleep(0.4)
        await good(peer, request)

    async def work() -> int:
        async with (
            scripted(first_stalls) as server,
            asking("raw", server.url, time_limits=limits(first_byte_s=2)) as asker,
        ):
            stalled, *others = [asker.post(b"%d" % n) for n in range(500)]
            await asyncio.gather(*others)
            exchange = await asyncio.wait_for(stalled, 30)
            assert exchange.failure is Outcome.TIMEOUT_FIRST_BYTE
            return exchange.done_ns - exchange.sent_ns

    assert asyncio.run(work()) < 6 * S  # 10 s, before it was so


@both
def test_a_slow_stream_whose_gaps_are_short_breaks_no_limit(kind: str) -> None:
    async def slow(peer: Peer, _: Request) -> None:
        await peer.stream(*(delta("x", tokens=n) for n in range(1, 8)), delta(finish="stop"), pause_s=0.1)

    exchange = asyncio.run(ask(kind, slow, limits(first_byte_s=0.5, idle_s=0.5)))
    assert exchange.failure is None
    assert exchange.done_ns - exchange.sent_ns > 0.7 * S


def test_a_process_that_slept_blames_no_server() -> None:
    async def answers(peer: Peer, request: Request) -> None:
        await asyncio.sleep(0.1)
        await good(peer, request)

    async def work() -> Exchange:
        async with (
            scripted(answers) as server,
            asking("raw", server.url, time_limits=limits(first_byte_s=0.3)) as asker,
        ):
            post = asker.post()
            await until(lambda: server.in_flight == 1)
            asker.transport.wake(lambda: threading.Event().wait(0.6))
            return await post

    exchange = asyncio.run(work())
    assert (exchange.failure, record_of(exchange).outcome) == (None, Outcome.OK)


@both
def test_an_answer_that_is_left_open_is_done_when_its_last_byte_came(kind: str) -> None:
    exchange = asyncio.run(ask(kind, open_after_done))
    last_ns = READ.unpack(exchange.reads[-READ.size :])[2]
    assert (exchange.failure, exchange.done_ns) == (None, last_ns)
    assert "left the response open" in exchange.error


@both
def test_a_response_without_end_is_ended(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits_module, "MAX_RESPONSE_BYTES", 1 << 20)

    async def endless(peer: Peer, _: Request) -> None:
        await peer.send(CHUNKED_HEAD)
        while not peer.is_closed:
            await peer.send_chunk(delta("x" * 50_000))

    exchange = asyncio.run(ask(kind, endless))
    assert exchange.failure is Outcome.MALFORMED
    assert exchange.error == "a response of more than 1 MiB"
