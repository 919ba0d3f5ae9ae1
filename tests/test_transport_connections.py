"""Both transports: connections that are kept, replaced, closed under a request, opened beforehand."""

import asyncio
import itertools

import pytest
from scripted_server import (
    Peer,
    Request,
    Script,
    closed_port,
    scripted,
    whole_answer,
)
from transport_fixtures import KINDS, S, asking, record_of, serving, until
from transport_scripts import good, hangs_up_in_the_head, resets_mid_chunks

from loadgen.records import Outcome
from loadgen.transport import fallback, raw
from loadgen.transport.exchange import Exchange

both = pytest.mark.parametrize("kind", KINDS)


@both
def test_connections_are_used_again(kind: str) -> None:
    async def work() -> tuple[int, int, list[bool]]:
        async with scripted(good) as server, asking(kind, server.url) as asker:
            exchanges = [await asker.post() for _ in range(5)]
            return len(server.requests), server.connections, [e.is_on_reused_connection for e in exchanges]

    assert asyncio.run(work()) == (5, 1 + (1 if kind == "raw" else 0), [False, True, True, True, True])


@both
def test_a_head_without_keep_alive_ends_the_connection(kind: str) -> None:
    async def once_only(peer: Peer, request: Request) -> None:
        body = b"".join(whole_answer())
        await peer.send(
            b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
        )

    async def work() -> list[tuple[bool, int]]:
        async with scripted(once_only) as server, asking(kind, server.url) as asker:
            exchanges = [await asker.post() for _ in range(3)]
            return [(exchange.is_on_reused_connection, exchange.resends) for exchange in exchanges]

    assert asyncio.run(work()) == [(False, 0)] * 3


@both
def test_bytes_behind_an_answer_are_no_part_of_the_next(kind: str) -> None:
    async def talks_on(peer: Peer, request: Request) -> None:
        body = b"".join(whole_answer())
        await peer.send(
            b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%sHTTP/1.1 500 X\r\nContent-Length: 0\r\n\r\n"
            % (len(body), body)
        )

    async def work() -> list[Outcome | None]:
        async with scripted(talks_on) as server, asking(kind, server.url) as asker:
            return [record_of(await asker.post()).outcome for _ in range(3)]

    assert asyncio.run(work()) == [Outcome.OK] * 3


@both
def test_a_server_that_closes_after_each_answer_costs_no_failure(kind: str) -> None:
    async def once_only(peer: Peer, request: Request) -> None:
        await good(peer, request)
        peer.close()

    async def work() -> tuple[list[Outcome | None], list[int]]:
        async with scripted(once_only) as server, asking(kind, server.url) as asker:
            asker.transport.wake(lambda: asker.transport.open(4))
            exchanges: list[Exchange] = []
            for _ in range(6):
                exchanges += await asyncio.gather(*(asker.post() for _ in range(4)))
            return [record_of(exchange).outcome for exchange in exchanges], [e.resends for e in exchanges]

    outcomes, resends = asyncio.run(work())
    assert outcomes == [Outcome.OK] * 24
    if kind == "raw":  # it learns: no request meets a dead connection any more
        assert sum(resends[8:]) == 0


def test_a_server_that_closes_after_each_answer_is_asked_on_connections_made_beforehand() -> None:
    async def once_only(peer: Peer, request: Request) -> None:
        await good(peer, request)
        peer.close()

    async def work() -> list[int | None]:
        async with scripted(once_only) as server, asking("raw", server.url) as asker:
            asker.transport.wake(lambda: asker.transport.open(3))
            # one right behind the other: a spare connection must be there
            return [(await asker.post()).connected_ns for _ in range(8)]

    assert asyncio.run(work())[3:] == [None] * 5


@both
def test_a_request_on_a_connection_that_the_server_just_closed_goes_out_again(kind: str) -> None:
    served: list[Peer] = []

    async def hangs_up_on_second(peer: Peer, request: Request) -> None:
        if peer in served:
            peer.close()
            return
        served.append(peer)
        await good(peer, request)

    async def work() -> tuple[Exchange, Exchange]:
        async with scripted(hangs_up_on_second) as server, asking(kind, server.url) as asker:
            return await asker.post(b"1"), await asker.post(b"2")

    first, second = asyncio.run(work())
    assert (first.resends, second.resends) == (0, 1)
    assert record_of(second).outcome is Outcome.OK
    assert second.sent_ns < second.headers_ns
    assert not second.is_on_reused_connection


@both
def test_a_server_that_always_hangs_up_is_a_reset_in_the_end(kind: str) -> None:
    numbers = itertools.count()

    async def hangs_up_from_fifth(peer: Peer, request: Request) -> None:
        if next(numbers) < 5:
            await good(peer, request)
        else:
            peer.close()

    async def work() -> tuple[list[Exchange], int]:
        async with scripted(hangs_up_from_fifth) as server, asking(kind, server.url) as asker:
            await asyncio.gather(*(asker.post() for _ in range(5)))
            exchange = await asyncio.wait_for(asker.post(), 10)
            return [exchange], len(server.requests)

    (exchange,), requests = asyncio.run(work())
    assert exchange.failure is Outcome.RESET
    assert exchange.resends == requests - 6


@both
def test_a_request_over_which_a_server_dies_does_not_go_out_again(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fallback, "_AT_ONCE_NS", S // 20)
    monkeypatch.setattr("loadgen.transport.connection._AT_ONCE_NS", S // 20)

    async def dies_over_second(peer: Peer, request: Request) -> None:
        if request.body == b"1":
            await good(peer, request)
        else:
            await asyncio.sleep(0.1)
            peer.close()

    async def work() -> tuple[Exchange, int]:
        async with scripted(dies_over_second) as server, asking(kind, server.url) as asker:
            await asker.post(b"1")
            return await asker.post(b"2"), len(server.requests)

    second, requests = asyncio.run(work())
    assert (second.failure, second.resends, requests) == (Outcome.RESET, 0, 2)


@pytest.mark.parametrize(
    ("kind", "ending"),
    # aiohttp does not tell of half a head
    [("raw", resets_mid_chunks), ("aiohttp", resets_mid_chunks), ("raw", hangs_up_in_the_head)],
)
def test_a_request_that_was_answered_in_part_never_goes_out_again(kind: str, ending: Script) -> None:
    async def then_ends(peer: Peer, request: Request) -> None:
        await (good if request.body == b"1" else ending)(peer, request)

    async def work() -> tuple[Exchange, int]:
        async with scripted(then_ends) as server, asking(kind, server.url) as asker:
            await asker.post(b"1")
            return await asker.post(b"2"), len(server.requests)

    second, requests = asyncio.run(work())
    assert (second.failure, second.resends, requests) == (Outcome.RESET, 0, 2)


def test_connections_are_opened_before_they_are_needed_and_kept() -> None:
    async def work() -> tuple[int, int, list[Exchange]]:
        async with scripted(good) as server, asking("raw", server.url) as asker:
            await until(lambda: server.connections == 1)  # the first look at the address
            await asker.call(lambda: asker.transport.open(200))
            async with asyncio.timeout(10):
                while not await asker.call(asker.transport.is_open):
                    await asyncio.sleep(0.005)
            await until(lambda: server.connections >= 201)
            before = server.connections
            posts = await asyncio.gather(*(asker.post() for _ in range(200)))
            return before, server.connections, posts

    before, after, posts = asyncio.run(work())
    assert (before, after) == (201, 201)
    assert {(post.connected_ns, post.is_on_reused_connection, post.failure) for post in posts} == {
        (None, False, None)
    }


def test_an_idle_connection_is_replaced_before_the_server_closes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(raw, "_KEEP_ALIVE_NS", S // 5)

    async def work() -> tuple[Exchange, int]:
        async with scripted(good) as server, asking("raw", server.url) as asker:
            await asker.call(lambda: asker.transport.open(3))
            await until(lambda: server.connections >= 1 + 3 + 3)
            exchange = await asker.post()
            await asyncio.sleep(0)
            return exchange, await asker.call(lambda: len(asker.transport._handlers))

    exchange, held = asyncio.run(work())
    assert (exchange.failure, exchange.resends) == (None, 0)
    assert 3 <= held <= 4


def test_idle_connections_that_the_server_closes_are_opened_again() -> None:
    peers: list[asyncio.StreamWriter] = []

    async def holds(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peers.append(writer)
        await reader.read()

    async def work() -> None:
        async with serving(holds) as url, asking("raw", url) as asker:
            await asker.call(lambda: asker.transport.open(5))
            await until(lambda: len(peers) >= 5)
            closed = len(peers)
            for writer in tuple(peers):
                writer.close()
            await until(lambda: len(peers) >= closed + 5)

    asyncio.run(work())


def test_a_server_that_closes_what_is_opened_beforehand_is_not_flooded() -> None:
    opened: list[float] = []

    async def closes(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        opened.append(asyncio.get_running_loop().time())

    async def work() -> None:
        async with serving(closes) as url, asking("raw", url) as asker:
            await asker.call(lambda: asker.transport.open(20))
            await until(lambda: len(opened) > 100)

    asyncio.run(work())
    assert opened[100] - opened[0] > 0.25  # 20 at a time, ten times a second


def test_a_server_that_refuses_what_is_opened_beforehand_stops_nobody() -> None:
    async def work() -> Exchange:
        async with asking("raw", f"http://127.0.0.1:{closed_port()}") as asker:
            await asker.call(lambda: asker.transport.open(300))
            async with asyncio.timeout(10):
                while not await asker.call(asker.transport.is_open):
                    await asyncio.sleep(0.005)
            return await asyncio.wait_for(asker.post(), 5)

    assert asyncio.run(work()).failure is Outcome.CONNECT_ERROR


@both
def test_each_target_has_its_own_connections(kind: str) -> None:
    async def work() -> tuple[list[bytes], list[bytes]]:
        async with scripted(good) as one, scripted(good) as two, asking(kind, one.url, two.url) as asker:
            await asyncio.gather(*(asker.post(b"%d" % n, target=n % 2) for n in range(10)))
            return [request.body for request in one.requests], [request.body for request in two.requests]

    one, two = asyncio.run(work())
    assert (sorted(one), sorted(two)) == ([b"0", b"2", b"4", b"6", b"8"], [b"1", b"3", b"5", b"7", b"9"])
