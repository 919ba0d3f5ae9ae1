"""Both transports: callbacks, timers, wake-ups from other threads, and what is left behind."""

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from scripted_server import (
    closed_port,
    scripted,
)
from transport_fixtures import KINDS, MS, PATIENT, S, asking, until
from transport_scripts import good, silent, trickles

from loadgen.clock import monotonic_ns
from loadgen.records import Outcome
from loadgen.transport.exchange import Exchange
from loadgen.transport.pick import make_transport

both = pytest.mark.parametrize("kind", KINDS)


@both
def test_what_a_callback_raises_reaches_the_caller_of_run(kind: str) -> None:
    def boom(*_: Any) -> None:
        raise ZeroDivisionError("mine")

    async def work() -> None:
        async with scripted(good) as server:
            for begin in (
                lambda t: t.wake(boom),
                lambda t: t.wake(lambda: t.later(boom)),
                lambda t: t.wake(lambda: t.at(monotonic_ns() + MS, boom)),
                lambda t: t.wake(lambda: t.send(Exchange(), (b"{}",))),
            ):
                transport = make_transport(kind, [server.url], PATIENT, boom)
                begin(transport)
                try:
                    with pytest.raises(ZeroDivisionError, match="mine"):
                        await asyncio.wait_for(asyncio.to_thread(transport.run), 5)
                finally:
                    await asyncio.to_thread(transport.close)

    asyncio.run(work())


@both
def test_timers_are_called_in_their_order_and_never_early(kind: str) -> None:
    called: list[tuple[int, int, int]] = []

    async def work() -> None:
        async with asking(kind, f"http://127.0.0.1:{closed_port()}") as asker:
            start_ns = monotonic_ns() + 20 * MS
            for number in (3, 0, 2, 1, 4):
                due_ns = start_ns + number * 5 * MS
                asker.transport.wake(
                    lambda number=number, due_ns=due_ns: asker.transport.at(
                        due_ns, lambda: called.append((number, due_ns, monotonic_ns()))
                    )
                )
            await until(lambda: len(called) == 5)
            await asker.call(lambda: asker.transport.at(monotonic_ns() - S, lambda: called.append((9, 0, 1))))
            await until(lambda: len(called) == 6)

    asyncio.run(work())
    assert [number for number, _, _ in called] == [0, 1, 2, 3, 4, 9]
    early_ns = MS if kind == "aiohttp" else 0  # asyncio's clock has a grain
    assert all(at_ns >= due_ns - early_ns for _, due_ns, at_ns in called)


@both
def test_the_loop_can_be_stopped_in_the_middle_and_run_again(kind: str) -> None:
    async def work() -> Exchange:
        async with scripted(trickles) as server:
            transport = make_transport(kind, [server.url], PATIENT, lambda _: transport.stop())
            exchange = Exchange()
            transport.wake(lambda: transport.send(exchange, (b"{}",)))
            transport.wake(lambda: transport.at(monotonic_ns() + 100 * MS, transport.stop))
            await asyncio.wait_for(asyncio.to_thread(transport.run), 5)
            assert (transport.in_flight, exchange.done_ns) == (1, None)
            transport.wake(transport.cut_all)
            await asyncio.wait_for(asyncio.to_thread(transport.run), 5)
            await asyncio.to_thread(transport.close)
            return exchange

    assert asyncio.run(work()).failure is Outcome.CUT


@both
def test_nothing_is_open_after_close_whatever_was_in_flight(kind: str) -> None:
    def descriptors() -> set[str]:
        return {path.name for path in Path("/proc/self/fd").iterdir()}

    async def work() -> None:
        async with scripted(silent) as server:
            transport = make_transport(kind, [server.url], PATIENT, lambda _: None)
            for _ in range(5):
                transport.wake(lambda: transport.send(Exchange(), (b"{}",)))
            transport.wake(lambda: transport.open(5))
            running = asyncio.create_task(asyncio.to_thread(transport.run))
            await until(lambda: server.in_flight == 5)
            transport.wake(transport.stop)
            await running
            await asyncio.to_thread(transport.close)
            await until(lambda: server.in_flight == 0)  # the server saw them go

    before = descriptors()
    asyncio.run(work())
    assert descriptors() == before


@both
def test_a_wake_after_close_is_nobodys(kind: str) -> None:
    transport = make_transport(kind, ["http://127.0.0.1:9"], PATIENT, lambda _: None)
    transport.close()
    reused = [os.eventfd(0, os.EFD_NONBLOCK) for _ in range(4)]
    try:
        transport.wake(lambda: None)
        for descriptor in reused:
            with pytest.raises(BlockingIOError):
                os.eventfd_read(descriptor)
    finally:
        for descriptor in reused:
            os.close(descriptor)


@both
def test_wakes_from_many_threads_are_all_called_in_the_loop(kind: str) -> None:
    called: list[int] = []

    async def work() -> None:
        async with asking(kind, f"http://127.0.0.1:{closed_port()}") as asker:

            def wakes() -> None:
                for _ in range(200):
                    asker.transport.wake(lambda: called.append(threading.get_ident()))

            await asyncio.gather(*(asyncio.to_thread(wakes) for _ in range(4)))
            await until(lambda: len(called) == 800)

    asyncio.run(work())
    assert len(set(called)) == 1


def test_later_waits_while_there_is_something_to_read() -> None:
    order: list[str] = []

    async def work() -> None:
        async with scripted(good) as server, asking("raw", server.url) as asker:
            transport = asker.transport
            await asker.call(
                lambda: [transport.later(lambda n=n: order.append(f"later {n}")) for n in range(3)]
            )
            transport.wake(lambda: order.append("woken"))
            await until(lambda: len(order) == 4)

    asyncio.run(work())
    assert [name for name in order if name != "woken"] == ["later 0", "later 1", "later 2"]
