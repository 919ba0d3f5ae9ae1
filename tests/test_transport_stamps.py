"""Arrivals by the kernel's stamps: right however late the client is, and how late it was."""

import asyncio
import threading

import numpy as np
import pytest
from scripted_server import CHUNKED_HEAD, Peer, Request, delta, scripted
from transport_fixtures import KINDS, MS, S, asking, until

from loadgen.clock import monotonic_ns, realtime_offset_ns
from loadgen.decode.arrivals import lags_ns
from loadgen.transport.exchange import READ, ClockOffsets, Exchange, Reads

_CHUNKS = 40


async def _timed(kind: str, gap_s: float = 0.005) -> tuple[Exchange, Reads, list[int]]:
    """One paced stream, with the server's own times of sending."""
    sent_ns: list[int] = []

    async def paced(peer: Peer, _: Request) -> None:
        await peer.send(CHUNKED_HEAD)
        await asyncio.sleep(gap_s)
        for number in range(_CHUNKS):
            sent_ns.append(monotonic_ns())
            await peer.send_chunk(delta("x", tokens=number + 1))
            await asyncio.sleep(gap_s)
        await peer.end()

    async with scripted(paced) as server, asking(kind, server.url) as asker:
        exchange = await asker.post()
        return exchange, asker.transport.offsets.reads(exchange), sent_ns


def test_nearly_all_reads_have_the_kernels_stamp_and_none_is_after_ours() -> None:
    _, reads, _ = asyncio.run(_timed("raw"))
    assert reads.is_kernel.mean() >= 0.9
    assert np.all(reads.arrival_ns <= reads.user_ns)
    assert np.all(np.diff(reads.arrival_ns) >= 0)
    assert np.all(np.diff(reads.user_ns) > 0)


def test_aiohttp_has_no_stamps_but_ours() -> None:
    exchange, reads, _ = asyncio.run(_timed("aiohttp"))
    assert not reads.is_kernel.any()
    assert reads.arrival_ns.tolist() == reads.user_ns.tolist()
    moments = [exchange.sent_ns, exchange.headers_ns, *reads.user_ns.tolist(), exchange.done_ns]
    assert moments == sorted(moments)


@pytest.mark.parametrize("kind", KINDS)
def test_stamps_are_in_order_and_apart_as_the_chunks_were(kind: str) -> None:
    exchange, reads, sent_ns = asyncio.run(_timed(kind, gap_s=0.003))
    moments = [exchange.sent_ns, exchange.headers_ns, *reads.user_ns.tolist(), exchange.done_ns]
    assert moments == sorted(moments)
    assert reads.end[-1] == len(exchange.body)
    assert len(reads.end) >= _CHUNKS // 2
    assert reads.arrival_ns[-1] - reads.arrival_ns[0] >= (sent_ns[-1] - sent_ns[0]) * 0.9


def test_a_blocked_loop_reads_late_and_the_arrival_stays_exact() -> None:
    _, reads, sent_ns = asyncio.run(_once_blocked())
    late = int(np.argmax(reads.user_ns - reads.arrival_ns))
    assert reads.is_kernel[late]
    assert reads.user_ns[late] - sent_ns[0] >= 30 * MS
    assert abs(reads.arrival_ns[late] - sent_ns[0]) < 5 * MS
    assert lags_ns(reads).max() >= 30 * MS
    assert reads.end[late] == reads.end[-1]


async def _once_blocked() -> tuple[Exchange, Reads, list[int]]:
    """One chunk that is sent 10 ms after the loop fell asleep for 80 ms."""
    asleep = asyncio.Event()
    sent_ns: list[int] = []

    async def waits(peer: Peer, _: Request) -> None:
        await peer.send(CHUNKED_HEAD)
        await asleep.wait()
        await asyncio.sleep(0.01)
        data = delta("x", tokens=1, finish="stop")
        sent_ns.append(monotonic_ns())
        await peer.send(b"%x\r\n%s\r\n0\r\n\r\n" % (len(data), data))

    async with scripted(waits) as server, asking("raw", server.url) as asker:
        loop = asyncio.get_running_loop()
        post = asker.post()
        await until(lambda: server.in_flight == 1)
        await asyncio.sleep(0.05)

        def sleeps() -> None:
            loop.call_soon_threadsafe(asleep.set)
            threading.Event().wait(0.08)

        asker.transport.wake(sleeps)
        exchange = await post
        return exchange, asker.transport.offsets.reads(exchange), sent_ns


def test_the_offset_of_the_clocks_is_the_latest_before_the_read() -> None:
    offsets = ClockOffsets()
    offsets.add(100, S + 1_000)
    offsets.add(150, S + 1_400)  # within a sample's own error: the clock has not moved
    offsets.add(200, S + 11_500)
    exchange = Exchange()
    for user_ns, realtime_ns in ((50, 1_040), (150, 1_140), (200, 11_690), (300, 11_700)):
        exchange.reads += READ.pack(1, realtime_ns, user_ns, 1)
    assert offsets.reads(exchange).arrival_ns.tolist() == [40, 140, 190, 200]


def test_a_stamp_that_is_later_than_ours_gives_way_to_ours() -> None:
    offsets = ClockOffsets()
    offsets.add(0, 0)
    exchange = Exchange()
    exchange.reads += READ.pack(1, 0, 999_999_000, 5) + READ.pack(0, 0, 1_000_000_001, 7)
    reads = offsets.reads(exchange)
    assert reads.arrival_ns.tolist() == [999_999_000, 1_000_000_001]
    assert (reads.is_kernel.tolist(), reads.end.tolist()) == ([True, False], [5, 12])


def test_without_a_sample_of_the_offset_no_stamp_is_used() -> None:
    exchange = Exchange()
    exchange.reads += READ.pack(1, 0, 500, 5)
    reads = ClockOffsets().reads(exchange)
    assert (reads.arrival_ns.tolist(), reads.is_kernel.tolist()) == ([500], [False])


def test_no_reads_are_no_reads() -> None:
    reads = ClockOffsets().reads(Exchange())
    assert (reads.arrival_ns.size, reads.end.size) == (0, 0)


def test_the_offset_is_the_difference_of_the_clocks() -> None:
    assert abs(realtime_offset_ns() - realtime_offset_ns()) < MS
