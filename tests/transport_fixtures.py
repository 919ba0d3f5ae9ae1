"""A transport in a thread of its own, asked from a test's event loop, and servers that read as they like."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from scripted_server import Script, scripted

from loadgen.decode.record import decode
from loadgen.records import Phase, RequestRecord
from loadgen.transport.exchange import ClockOffsets, Exchange, TimeLimits
from loadgen.transport.pick import Transport, exchange_once, make_transport

KINDS = ("raw", "aiohttp")
S = 1_000_000_000
MS = 1_000_000


def limits(
    first_byte_s: float = 20, idle_s: float = 20, total_s: float = 20, connect_s: float = 20
) -> TimeLimits:
    return TimeLimits(
        round(first_byte_s * S), round(idle_s * S), round(total_s * S), connect_ns=round(connect_s * S)
    )


PATIENT = limits()


class Asker:
    """Sends through a transport whose loop runs in another thread."""

    def __init__(self, kind: str, urls: Sequence[str], time_limits: TimeLimits, api_key: str | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._posted: dict[Exchange, asyncio.Future[Exchange]] = {}
        self.ended: list[Exchange] = []
        self.transport: Transport = make_transport(kind, urls, time_limits, self._ended, api_key=api_key)

    def post(self, *parts: bytes, target: int = 0) -> "asyncio.Future[Exchange]":
        """A request that goes out at once; the future has its exchange when it is over."""
        exchange = Exchange(index=len(self._posted))
        future = self._posted[exchange] = self._loop.create_future()
        self.transport.wake(lambda: self.transport.send(exchange, parts or (b"{}",), target))
        return future

    async def call(self, work: Callable[[], Any]) -> Any:
        """What `work` gives in the transport's thread."""
        future = self._loop.create_future()
        self.transport.wake(lambda: self._loop.call_soon_threadsafe(future.set_result, work()))
        return await asyncio.wait_for(future, 10)

    def _ended(self, exchange: Exchange) -> None:
        self.ended.append(exchange)
        self._loop.call_soon_threadsafe(self._posted[exchange].set_result, exchange)


@asynccontextmanager
async def asking(
    kind: str, *urls: str, time_limits: TimeLimits = PATIENT, api_key: str | None = None
) -> AsyncIterator[Asker]:
    """A running transport; stopped and closed at the end."""
    asker = Asker(kind, urls, time_limits, api_key)
    running = asyncio.create_task(asyncio.to_thread(asker.transport.run))
    try:
        yield asker
    finally:
        asker.transport.wake(asker.transport.stop)
        await asyncio.wait_for(running, 10)
        await asyncio.to_thread(asker.transport.close)


async def ask(
    kind: str, script: Script, time_limits: TimeLimits = PATIENT, *parts: bytes, **server: Any
) -> Exchange:
    """One request to a server that plays `script`."""
    async with scripted(script, **server) as running:
        return await once(kind, running.url, time_limits, *parts)


async def once(kind: str, url: str, time_limits: TimeLimits = PATIENT, *parts: bytes) -> Exchange:
    """One request by `exchange_once`, which blocks."""
    return await asyncio.to_thread(exchange_once, url, parts or (b"{}",), time_limits, kind=kind)


def record_of(exchange: Exchange, offsets: ClockOffsets | None = None) -> RequestRecord:
    record = RequestRecord(index=0, phase=Phase.MEASURE, scheduled_ns=0, max_tokens=32)
    decode(exchange, record, offsets)
    return record


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(serve: Serve) -> AsyncIterator[str]:
    """The URL of a server that does with each connection what `serve` does, down to the bytes."""
    tasks: set[asyncio.Task[None] | None] = set()

    async def noted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.current_task())
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await serve(reader, writer)
        writer.close()

    listener = await asyncio.start_server(noted, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    finally:
        listener.close()
        for task in tasks:
            if task:
                task.cancel()
        await asyncio.gather(*(task for task in tasks if task), return_exceptions=True)


async def until(condition: Callable[[], bool], seconds: float = 10) -> None:
    """Waits until `condition` holds; fails the test when it does not in time."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.005)
