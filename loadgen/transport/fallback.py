"""The transport over aiohttp: for proxies (from the environment), and systems on which our own client does not run.

It does what `raw` does, in an event loop of its own in the thread that calls `run`. Blocks are stamped when that loop
hands them over, so its stamps are user space's.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from types import SimpleNamespace

import aiohttp

from loadgen.clock import monotonic_ns
from loadgen.records import Outcome
from loadgen.transport.connection import Parts
from loadgen.transport.exchange import ClockOffsets, Exchange, TimeLimits
from loadgen.transport.limits import broken_limit, is_answered, last_read_ns

_NS = 1_000_000_000
_WATCH_S = 0.05
_READ_BUFFER_BYTES = 1 << 20
# uvicorn closes connections that were idle for 5 s; a pooled one must be dropped by us before that.
_KEEP_ALIVE_S = 3.0
# A connection that was closed before we wrote on it answers a write within a round trip.
_AT_ONCE_NS = _NS
# aiohttp says in words alone whether an unfinished body was ended by a RST or by a FIN.
_RESET_MARK = "ConnectionResetError"


class AiohttpTransport:
    """Sends requests and calls `on_end` with each exchange that is over, all in the thread that calls `run`."""

    def __init__(
        self,
        urls: Sequence[str],
        limits: TimeLimits,
        on_end: Callable[[Exchange], None],
        *,
        api_key: str | None = None,
        path: str = "/v1/chat/completions",
    ) -> None:
        self.offsets = ClockOffsets()
        self._urls = [url + path for url in urls]
        self._limits = limits
        self._on_end = on_end
        self._in_flight: dict[Exchange, asyncio.Task[None]] = {}
        self._crash: BaseException | None = None
        self._is_closing = False
        self._api_key = api_key
        self._loop = asyncio.new_event_loop()
        self._session: aiohttp.ClientSession
        # the first thing in the loop, and not here: who makes this may be in a loop of its own
        self._loop.call_soon(self._open_session)

    @property
    def in_flight(self) -> int:
        """Requests that are not over."""
        return len(self._in_flight)

    def body_bytes(self) -> int:
        """Body bytes read so far of the exchanges in flight."""
        return sum(len(exchange.body) for exchange in self._in_flight)

    def open(self, connections: int, target: int = 0) -> None:
        """Nothing: aiohttp opens a connection when a request needs one."""

    def is_open(self) -> bool:
        """Always: nothing is opened beforehand."""
        return True

    def send(self, exchange: Exchange, parts: Parts, target: int = 0) -> None:
        """Sends a request now; `on_end` is called when it is over. aiohttp wants the body whole."""
        exchange.sent_ns = monotonic_ns()
        task = self._loop.create_task(self._run(exchange, self._urls[target], b"".join(parts)))
        task.add_done_callback(partial(self._over, exchange))
        self._in_flight[exchange] = task

    def at(self, due_ns: int, call: Callable[[], None]) -> None:
        """Calls `call` at `due_ns` of the monotonic clock, to some milliseconds."""
        self._loop.call_at(due_ns / _NS, self._guarded, call)

    def later(self, call: Callable[[], None]) -> None:
        """Calls `call` in the loop's next round."""
        self._loop.call_soon(self._guarded, call)

    def wake(self, call: Callable[[], None]) -> None:
        """Calls `call` in the loop's thread; may be called from any."""
        with suppress(RuntimeError):  # the loop is closed: nobody is there to call it
            self._loop.call_soon_threadsafe(self._guarded, call)

    def cut_all(self) -> None:
        """Ends every exchange in flight with the outcome `cut`."""
        for exchange in tuple(self._in_flight):
            self._end(exchange, Outcome.CUT, None)

    def run(self) -> None:
        """The loop, until `stop`. Raises what a callback raised."""
        watchdog = self._loop.create_task(self._watch())
        watchdog.add_done_callback(self._note_crash)
        self._loop.run_forever()
        watchdog.cancel()
        if self._crash is not None:
            raise self._crash

    def stop(self) -> None:
        """Ends `run` after this round."""
        self._loop.stop()

    def close(self) -> None:
        """Closes everything; exchanges in flight are forgotten."""
        self._loop.run_until_complete(self._close())
        self._loop.close()

    def _open_session(self) -> None:
        self._session = _session(self._api_key)

    async def _close(self) -> None:
        self._is_closing = True
        tasks = tuple(self._in_flight.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._session.close()

    def _guarded(self, call: Callable[[], None]) -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - `run` raises it again; the event loop would only log it
            self._crash = error
            self._loop.stop()

    def _note_crash(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._crash = error
            self._loop.stop()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_WATCH_S)
            now_ns = monotonic_ns()
            for exchange in tuple(self._in_flight):
                if is_answered(exchange, now_ns):
                    exchange.done_ns = last_read_ns(exchange)
                    self._end(exchange, None, "the server left the response open after [DONE]")
                elif broken := broken_limit(exchange, self._limits, now_ns):
                    self._end(exchange, *broken)

    def _end(self, exchange: Exchange, outcome: Outcome | None, error: str | None) -> None:
        task = self._in_flight[exchange]
        if not task.done() and not task.cancelling():
            exchange.failure = outcome
            exchange.error = error
            task.cancel()

    async def _run(self, exchange: Exchange, url: str, body: bytes) -> None:
        try:
            while not await self._reached(exchange, url, body):
                exchange.resends += 1
        except aiohttp.ClientConnectorError as error:
            _fail(exchange, Outcome.CONNECT_ERROR, error)
        except aiohttp.ClientPayloadError as error:
            is_reset = _RESET_MARK in str(error)
            _fail(exchange, Outcome.RESET if is_reset else Outcome.TRUNCATED_STREAM, error)
        except aiohttp.ClientResponseError as error:
            _fail(exchange, Outcome.MALFORMED, error)
        except (aiohttp.ClientError, OSError) as error:
            _fail(exchange, Outcome.RESET, error)
        finally:
            exchange.done_ns = exchange.done_ns or monotonic_ns()

    def _over(self, exchange: Exchange, task: "asyncio.Task[None]") -> None:
        """Its task has ended, by itself or because `_end` cancelled it (then it may never have begun)."""
        self._note_crash(task)
        if not self._is_closing and self._crash is None:
            exchange.done_ns = exchange.done_ns or monotonic_ns()
            del self._in_flight[exchange]
            self._guarded(partial(self._on_end, exchange))

    async def _reached(self, exchange: Exchange, url: str, body: bytes) -> bool:
        """Sends and reads; False when the server closed an idle connection as we wrote on it.

        Such a request was not seen by the server: the failure is the pool's, and shows at once (later, it is a server
        that died over the request). It goes out again on the next connection (at last a fresh one); `sent_ns` stays,
        so that the time lost counts.
        """
        exchange.is_on_reused_connection = False
        start_ns = monotonic_ns()
        try:
            await self._read(exchange, url, body)
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
            is_at_once = monotonic_ns() - start_ns < _AT_ONCE_NS
            if not exchange.is_on_reused_connection or exchange.headers_ns is not None or not is_at_once:
                raise
            return False
        return True

    async def _read(self, exchange: Exchange, url: str, body: bytes) -> None:
        # a redirect would put the load on a server that nobody asked to measure
        async with self._session.post(
            url, data=body, allow_redirects=False, trace_request_ctx=exchange
        ) as response:
            exchange.headers_ns = monotonic_ns()
            exchange.status = response.status
            exchange.content_encoding = response.headers.get("Content-Encoding", "").strip().lower()
            async for block in response.content.iter_any():
                exchange.add(monotonic_ns(), block)


def _session(api_key: str | None) -> aiohttp.ClientSession:
    # compression would delay chunks, and make bytes that the server never sent
    headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
    if api_key:
        headers["Authorization"] = f"Bearer {api_key}"
    tracing = aiohttp.TraceConfig()
    tracing.on_connection_reuseconn.append(_note_reuse)
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE_S),
        trace_configs=[tracing],
        headers=headers,
        timeout=aiohttp.ClientTimeout(total=None),
        read_bufsize=_READ_BUFFER_BYTES,
        auto_decompress=False,
        trust_env=True,
    )


async def _note_reuse(_session: object, context: SimpleNamespace, _params: object) -> None:
    context.trace_request_ctx.is_on_reused_connection = True


def _fail(exchange: Exchange, outcome: Outcome, error: Exception) -> None:
    exchange.failure = outcome
    exchange.error = f"{type(error).__name__}: {error}"
