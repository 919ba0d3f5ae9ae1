"""Our own HTTP/1.1 client for timed requests: one epoll loop on raw sockets, no asyncio, no task and no future.

Theory of operation. `run` waits for sockets, the timer and the wake-up descriptor, and calls whoever belongs to each.
Requests are sent from the callbacks of others that ended, or from timers; connections are opened beforehand and kept.
Work that can wait (`later`) is done one piece at a time when nothing is readable. Time limits are kept by a sweep that
looks at a slice of the exchanges in flight at a time, so that no timer is set or cancelled for each read, and ten
thousand streams do not stop the loop. Linux only; `fallback` serves elsewhere.
"""

import heapq
import os
import select
import socket
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import count
from threading import Lock
from urllib.parse import urlsplit

from loadgen.clock import monotonic_ns, realtime_offset_ns
from loadgen.records import Outcome
from loadgen.transport.connection import (
    SCRATCH_BYTES,
    Address,
    Connection,
    Ending,
    Parts,
    TlsConnection,
)
from loadgen.transport.exchange import ClockOffsets, Exchange, TimeLimits
from loadgen.transport.limits import broken_limit, is_answered
from loadgen.transport.stamps import ask_for_stamps
from loadgen.transport.timerfd import TimerFd

_MAX_EVENTS = 32  # between two looks at the timers: some 0.4 ms of reads
_MOST_LATER = 256  # above, it is done though there is something to read: memory is bounded, too
_SWEEP_NS = 5_000_000  # short slices: a start that is due waits for one
_SWEEPS_PER_ROUND = 20  # every exchange in flight is looked at ten times a second
_OPENING_AT_ONCE = 128  # below any server's listen backlog
_PROBE_S = 5.0
# uvicorn closes connections that were idle for 5 s; a pooled one must be dropped by us before that.
_KEEP_ALIVE_NS = 3_000_000_000
# After so many in a row, a server is taken to close its connections after each answer without saying so.
_HANGUPS_TO_LEARN = 2
_SOON_NS = 1_000_000_000
_MAX_RESENDS = 8


@dataclass(slots=True)
class _Target:
    """One endpoint: where it is, how a request to it begins, and its connections."""

    url: str
    number: int
    request_head: bytes
    address: Address
    tls: ssl.SSLContext | None
    host: str
    idle: list[Connection] = field(default_factory=list)
    opening: int = 0
    open: int = 0
    wanted: int = 0
    hangups: int = 0
    closes_after_answers: bool = False

    @property
    def stock(self) -> int:
        """Connections to keep: where an answer uses one up, the next must be there already."""
        # few spare ones: a server may keep a thread for each
        return self.wanted + (-(-self.wanted // 4) if self.closes_after_answers else 0)


class RawTransport:
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
        self.scratch = bytearray(SCRATCH_BYTES)
        self.view = memoryview(self.scratch)
        self.offsets = ClockOffsets()
        self._limits = limits
        self._on_end = on_end
        self._targets = [_target(number, url, path, api_key) for number, url in enumerate(urls)]
        self._epoll = select.epoll()
        self._handlers: dict[int, Connection] = {}
        self._in_flight: dict[Exchange, Connection] = {}
        self._later: deque[Callable[[], None]] = deque()
        self._woken: deque[Callable[[], None]] = deque()
        self._timers: list[tuple[int, int, Callable[[], None]]] = []
        self._numbers = count()
        self._timer = TimerFd()
        self._wake_fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._epoll.register(self._timer.fd, select.EPOLLIN)
        self._epoll.register(self._wake_fd, select.EPOLLIN)
        # the kernel starts to stamp some time after the first socket has asked for it
        self._stamping = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        ask_for_stamps(self._stamping)
        self._unswept: list[Exchange] = []
        self._sweep_share = 0
        self._sweeps = count()
        self._is_running = False
        self._is_closed = False
        self._wake_lock = Lock()

    @property
    def in_flight(self) -> int:
        """Requests that are not over."""
        return len(self._in_flight)

    def body_bytes(self) -> int:
        """Body bytes read so far of the exchanges in flight."""
        return sum(len(exchange.body) for exchange in self._in_flight)

    def open(self, connections: int, target: int = 0) -> None:
        """Wants so many connections to a target open; they are opened, some at a time, from `run` on, and kept open."""
        self._targets[target].wanted = connections
        self._open_more(self._targets[target])

    def is_open(self) -> bool:
        """Whether the connections asked for are there, or cannot be had for now."""
        return not any(target.opening for target in self._targets)

    def send(self, exchange: Exchange, parts: Parts, target: int = 0) -> None:
        """Sends a request whose body is `parts` now; `on_end` is called when it is over."""
        place = self._targets[target]
        head = b"%s%d\r\n\r\n" % (place.request_head, sum(map(len, parts)))
        self._send(exchange, (head, *parts), place)

    def at(self, due_ns: int, call: Callable[[], None]) -> None:
        """Calls `call` at `due_ns` of the monotonic clock, to some 0.1 ms."""
        heapq.heappush(self._timers, (due_ns, next(self._numbers), call))
        if self._timers[0][0] == due_ns:
            self._timer.set(due_ns)

    def later(self, call: Callable[[], None]) -> None:
        """Calls `call` when there is nothing to read."""
        self._later.append(call)

    def wake(self, call: Callable[[], None]) -> None:
        """Calls `call` in the loop's thread; may be called from any. After `close`, nobody is there to call it."""
        with self._wake_lock:  # another thread may close just now, and the descriptor be somebody else's
            if not self._is_closed:
                self._woken.append(call)
                os.eventfd_write(self._wake_fd, 1)

    def cut_all(self) -> None:
        """Ends every exchange in flight with the outcome `cut`."""
        for connection in tuple(self._in_flight.values()):
            connection.fail(Outcome.CUT, None)

    def run(self) -> None:
        """The loop, until `stop`."""
        self._is_running = True
        self._sweep()
        poll, handlers, later, timers = self._epoll.poll, self._handlers, self._later, self._timers
        while self._is_running:
            events = poll(0 if later else -1, _MAX_EVENTS)
            if timers and timers[0][0] <= monotonic_ns():
                self._run_timers()
            if not events or len(later) > _MOST_LATER:
                later.popleft()()
            for fd, happened in events:
                # one that an earlier event of this round closed is gone
                if connection := handlers.get(fd):
                    handle = connection.handle
                    handle(happened)
                elif fd == self._wake_fd:
                    self._run_woken()

    def stop(self) -> None:
        """Ends `run` after this round."""
        self._is_running = False

    def close(self) -> None:
        """Closes everything; exchanges in flight are forgotten."""
        with self._wake_lock:
            self._is_closed = True
        for connection in tuple(self._handlers.values()):
            connection.close()
        self._epoll.close()
        os.close(self._timer.fd)
        os.close(self._wake_fd)
        self._stamping.close()

    # -- for connections -------------------------------------------------------------------------------------------

    def watch(self, connection: Connection, events: int) -> None:
        """Watches a connection's socket for `events`, 0 for none."""
        if not events:
            del self._handlers[connection.fd]
            self._epoll.unregister(connection.fd)
            self._targets[connection.target].open -= 1
        elif connection.fd in self._handlers:
            self._epoll.modify(connection.fd, events)
        else:
            self._handlers[connection.fd] = connection
            self._epoll.register(connection.fd, events)
            self._targets[connection.target].open += 1

    def opened(self, connection: Connection) -> None:
        """A connection was opened for stock."""
        target = self._targets[connection.target]
        target.opening -= 1
        target.idle.append(connection)
        self._open_more(target)

    def lost(self, connection: Connection) -> None:
        """A connection that nobody used was closed, or could not be opened."""
        target = self._targets[connection.target]
        if connection not in target.idle:
            target.opening -= 1
            return
        target.idle.remove(connection)
        if not connection.uses:
            return  # a server that closes what it was never asked on is not to be flooded: `_refresh` opens the next
        if monotonic_ns() - connection.idle_since_ns < _SOON_NS:
            self._note_hangup(target)
        self._open_more(target)

    def _note_hangup(self, target: _Target) -> None:
        """The server closed a connection soon after an answer, without having said that it would."""
        target.hangups += 1
        target.closes_after_answers |= target.hangups >= _HANGUPS_TO_LEARN

    def ended(self, connection: Connection, exchange: Exchange, ending: Ending) -> None:
        """An exchange is over."""
        del self._in_flight[exchange]
        target = self._targets[connection.target]
        if exchange.failure is None:
            # behind an error any server may close
            target.closes_after_answers |= ending is Ending.CLOSED and exchange.status == 200
            if exchange.is_on_reused_connection:
                target.hangups = 0
        if ending is Ending.REUSABLE and not target.closes_after_answers:
            target.idle.append(connection)
        else:
            connection.close()
            self._open_more(target)
        self._on_end(exchange)

    def resend(self, exchange: Exchange, parts: Parts) -> None:
        """A request met a connection that the server had just closed."""
        target = self._targets[self._in_flight.pop(exchange).target]
        self._note_hangup(target)
        self._send(exchange, parts, target, is_fresh=exchange.resends >= _MAX_RESENDS)

    # -- connections -----------------------------------------------------------------------------------------------

    def _send(self, exchange: Exchange, parts: Parts, target: _Target, *, is_fresh: bool = False) -> None:
        connection = None if is_fresh else self._take_idle(target)
        if connection is None:
            connection = self._connection(target)
        self._in_flight[exchange] = connection
        connection.send(exchange, parts)

    def _take_idle(self, target: _Target) -> Connection | None:
        oldest_ns = monotonic_ns() - _KEEP_ALIVE_NS
        while target.idle:
            connection = target.idle.pop()
            if connection.idle_since_ns >= oldest_ns:
                return connection
            connection.close()
        return None

    def _connection(self, target: _Target) -> Connection:
        if target.tls:
            return TlsConnection(self, target.number, target.address, target.tls, target.host)
        return Connection(self, target.number, target.address)

    def _open_more(self, target: _Target) -> None:
        while target.open < target.stock and target.opening < _OPENING_AT_ONCE:
            target.opening += 1
            self._connection(target)

    # -- time ------------------------------------------------------------------------------------------------------

    def _run_timers(self) -> None:
        self._timer.clear()
        timers = self._timers
        while timers and timers[0][0] <= monotonic_ns():
            heapq.heappop(timers)[2]()
        if timers:
            self._timer.set(timers[0][0])
        else:
            self._timer.disarm()

    def _run_woken(self) -> None:
        os.eventfd_read(self._wake_fd)
        while self._woken:
            self._woken.popleft()()

    def _sweep(self) -> None:
        """Looks at the next slice of the exchanges in flight, and at what else must be done from time to time."""
        now_ns = monotonic_ns()
        self.offsets.add(now_ns, realtime_offset_ns())
        if next(self._sweeps) % _SWEEPS_PER_ROUND == 0:
            self._unswept = list(self._in_flight)
            # of this round, however many of it end before they are looked at
            self._sweep_share = -(-len(self._unswept) // _SWEEPS_PER_ROUND)
            self._refresh(now_ns)
        for _ in range(min(self._sweep_share, len(self._unswept))):
            self._look_at(self._unswept.pop(), now_ns)
        self.at(now_ns + _SWEEP_NS, self._sweep)

    def _look_at(self, exchange: Exchange, now_ns: int) -> None:
        connection = self._in_flight.get(exchange)
        if connection is None:
            return
        if is_answered(exchange, now_ns):
            connection.finish_without_end("the server left the response open after [DONE]")
        elif not connection.is_open and now_ns - (exchange.sent_ns or now_ns) > self._limits.connect_ns:
            connection.fail(
                Outcome.CONNECT_ERROR, f"not connected within {self._limits.connect_ns / 1e9:g} s"
            )
        elif broken_limit(exchange, self._limits, now_ns):
            # what has come and was not read yet is no fault of the server: this process may have slept
            connection.handle(select.EPOLLIN)
            if self._in_flight.get(exchange) is connection and (
                broken := broken_limit(exchange, self._limits, now_ns)
            ):
                connection.fail(*broken)

    def _refresh(self, now_ns: int) -> None:
        """Replaces connections that were idle for so long that the server may close them."""
        for target in self._targets:
            while target.idle and target.idle[0].idle_since_ns < now_ns - _KEEP_ALIVE_NS:
                target.idle.pop(0).close()
            self._open_more(target)


def _target(number: int, url: str, path: str, api_key: str | None) -> _Target:
    parts = urlsplit(url)
    host = parts.hostname or ""
    is_tls = parts.scheme == "https"
    port = parts.port or (443 if is_tls else 80)
    # compression would delay chunks, and make bytes that the server never sent
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {parts.netloc}\r\nContent-Type: application/json\r\n"
        "Accept: text/event-stream\r\nAccept-Encoding: identity\r\nUser-Agent: loadgen\r\n"
    )
    if api_key:
        head += f"Authorization: Bearer {api_key}\r\n"
    head += "Content-Length: "
    tls = ssl.create_default_context() if is_tls else None
    return _Target(url, number, head.encode("latin-1"), _reachable_address(host, port), tls, host)


def _reachable_address(host: str, port: int) -> Address:
    """The first address of `host` that accepts a connection, or the first one of all; requests will then say why not."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return (socket.AF_INET, ("0.0.0.0", 0))  # noqa: S104 - an address that refuses: no name, no server
    for family, _, _, _, place in found:
        try:
            with socket.socket(family, socket.SOCK_STREAM) as sock:
                sock.settimeout(_PROBE_S)
                sock.connect(place)
                return (family, place)
        except OSError:
            continue
    return (found[0][0], found[0][4])
