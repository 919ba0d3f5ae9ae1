"""The transport over aiohttp: for proxies and whatever else our own client does not speak.

Blocks are stamped when the event loop hands them over. Time limits are kept by a watchdog that looks
at all exchanges in flight, so that no timer is set or cancelled per block.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace

import aiohttp

from loadgen.clock import monotonic_ns
from loadgen.records import Outcome
from loadgen.transport.exchange import Exchange, TimeLimits

_WATCH_S = 0.05
_READ_BUFFER_BYTES = 1 << 20
# uvicorn closes connections that were idle for 5 s; a pooled one must be dropped by us before that.
_KEEP_ALIVE_S = 3.0
# A connection that was closed before we wrote on it answers a write within a round trip.
_AT_ONCE_NS = 1_000_000_000
# aiohttp says in words alone whether an unfinished body was ended by a RST or by a FIN.
_RESET_MARK = "ConnectionResetError"


class HttpTransport:
    """A pool of connections to one endpoint. Open it with `async with open_transport(...)`."""

    def __init__(self, session: aiohttp.ClientSession, url: str, limits: TimeLimits) -> None:
        self._session = session
        self._url = url
        self._limits = limits
        self._in_flight: dict[Exchange, asyncio.Task[None]] = {}
        self._last_ns: dict[Exchange, int] = {}

    @property
    def in_flight(self) -> int:
        return len(self._in_flight)

    async def post(self, body: bytes) -> Exchange:
        """Sends `body` and reads the response to its end. A failure is a value of the exchange, never an exception."""
        exchange = Exchange()
        task = asyncio.create_task(self._run(exchange, body))
        self._in_flight[exchange] = task
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if exchange.failure is None or _is_cancelled():
                task.cancel()
                raise
        finally:
            del self._in_flight[exchange]
            self._last_ns.pop(exchange, None)
            exchange.done_ns = exchange.done_ns or monotonic_ns()
        return exchange

    def cut_all(self) -> None:
        """Ends every exchange in flight with the outcome `cut`."""
        for exchange in tuple(self._in_flight):
            self._end(exchange, Outcome.CUT, None)

    async def watch(self) -> None:
        """Ends exchanges that break a time limit; runs until cancelled."""
        while True:
            await asyncio.sleep(_WATCH_S)
            now_ns = monotonic_ns()
            for exchange in tuple(self._in_flight):
                if broken := self._broken_limit(exchange, now_ns):
                    self._end(exchange, *broken)

    async def _run(self, exchange: Exchange, body: bytes) -> None:
        try:
            exchange.sent_ns = monotonic_ns()
            while not await self._reached(exchange, body):
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
            exchange.done_ns = monotonic_ns()

    async def _reached(self, exchange: Exchange, body: bytes) -> bool:
        """Sends and reads; False when the server closed an idle connection as we wrote on it.

        Such a request was not seen by the server: the failure is the pool's, and shows at once (later, it is a server
        that died over the request). It goes out again on the next connection (at last a fresh one); `sent_ns` stays,
        so that the time lost counts.
        """
        exchange.is_on_reused_connection = False
        start_ns = monotonic_ns()
        try:
            await self._send(exchange, body)
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
            is_at_once = monotonic_ns() - start_ns < _AT_ONCE_NS
            if not exchange.is_on_reused_connection or exchange.headers_ns is not None or not is_at_once:
                raise
            return False
        return True

    async def _send(self, exchange: Exchange, body: bytes) -> None:
        # a redirect would put the load on a server that nobody asked to measure
        async with self._session.post(
            self._url, data=body, allow_redirects=False, trace_request_ctx=exchange
        ) as response:
            exchange.headers_ns = monotonic_ns()
            exchange.status = response.status
            async for block in response.content.iter_any():
                at_ns = self._last_ns[exchange] = monotonic_ns()
                exchange.add(at_ns, block)

    def _end(self, exchange: Exchange, outcome: Outcome, error: str | None) -> None:
        task = self._in_flight[exchange]
        if not task.done() and exchange.failure is None:
            exchange.failure = outcome
            exchange.error = error
            task.cancel()

    def _broken_limit(self, exchange: Exchange, now_ns: int) -> tuple[Outcome, str] | None:
        limits = self._limits
        if exchange.sent_ns is None:
            return None
        if now_ns - exchange.sent_ns > limits.total_ns:
            return Outcome.TOTAL_TIMEOUT, f"longer than {limits.total_ns / 1e9:g} s in all"
        last_ns = self._last_ns.get(exchange, exchange.headers_ns)
        if last_ns is None:
            if now_ns - exchange.sent_ns > limits.first_byte_ns:
                return Outcome.TIMEOUT_FIRST_BYTE, f"no response within {limits.first_byte_ns / 1e9:g} s"
        elif now_ns - last_ns > limits.idle_ns:
            return Outcome.IDLE_TIMEOUT, f"nothing for {limits.idle_ns / 1e9:g} s"
        return None


@asynccontextmanager
async def open_transport(
    endpoint: str, limits: TimeLimits, api_key: str | None = None
) -> AsyncIterator[HttpTransport]:
    """A transport for POSTs to the chat route of `endpoint`, its watchdog running; all closed at the end."""
    # compression would delay chunks, and make bytes that the server never sent
    headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
    if api_key:
        headers["Authorization"] = f"Bearer {api_key}"
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE_S)
    tracing = aiohttp.TraceConfig()
    tracing.on_connection_reuseconn.append(_note_reuse)
    async with aiohttp.ClientSession(
        connector=connector,
        trace_configs=[tracing],
        headers=headers,
        timeout=aiohttp.ClientTimeout(total=None),
        read_bufsize=_READ_BUFFER_BYTES,
        trust_env=False,
    ) as session:
        transport = HttpTransport(session, f"{endpoint}/v1/chat/completions", limits)
        watchdog = asyncio.create_task(transport.watch())
        try:
            yield transport
        finally:
            watchdog.cancel()
            await asyncio.gather(watchdog, return_exceptions=True)


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def _note_reuse(_session: object, context: SimpleNamespace, _params: object) -> None:
    context.trace_request_ctx.is_on_reused_connection = True


def _fail(exchange: Exchange, outcome: Outcome, error: Exception) -> None:
    exchange.failure = outcome
    exchange.error = f"{type(error).__name__}: {error}"
