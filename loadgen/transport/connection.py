"""One connection to a server and the exchange on it: connect, write, read, stamp, keep.

Theory of operation. The engine's epoll loop calls `handle` of the connection whose socket is ready. Between two stamps
of a stream `_read` does all that happens: one read into a buffer that all connections share, our stamp, the kernel's
stamp, and the bytes and stamps appended to two flat columns. The body's framing is followed only as far as it says
where the response ends. What a server or the network does is a value of the exchange; nothing is raised for it.
"""

import errno
import os
import select
import socket
import ssl
import struct
from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Any, Protocol

from loadgen.clock import monotonic_ns
from loadgen.records import Outcome
from loadgen.transport.exchange import NO_STAMP, Exchange
from loadgen.transport.framing import BodyFraming, BrokenFraming, check_begun_head, parse_head
from loadgen.transport.limits import last_read_ns
from loadgen.transport.stamps import ANCILLARY_BYTES, STAMP_BYTES, ask_for_stamps

Address = tuple[socket.AddressFamily, Any]  # family, and the place in that family's own form
Parts = Sequence[bytes | memoryview]

SCRATCH_BYTES = 65_536
# A READ of `exchange`: the kernel's stamp is the first timespec of its message, cut off by the format.
_pack_read = struct.Struct(f"={STAMP_BYTES}sqq").pack
_READABLE = select.EPOLLIN
_READ_WRITE = select.EPOLLIN | select.EPOLLOUT
_WHOLE_CHUNK_BYTES = 16_384


def _size_lines() -> list[bytes | tuple[()]]:
    """For a read of n bytes that is one whole chunk: the size line it begins with; what nothing begins with elsewhere."""
    lines: list[bytes | tuple[()]] = [()] * _WHOLE_CHUNK_BYTES
    for size in range(1, _WHOLE_CHUNK_BYTES):
        line = b"%x\r\n" % size
        if len(line) + size + 2 < _WHOLE_CHUNK_BYTES:
            lines[len(line) + size + 2] = line
    return lines


_SIZE_LINES = _size_lines()
_MOST_PARTS = 64  # far below IOV_MAX
# A connection that was closed before we wrote on it answers a write within a round trip.
_AT_ONCE_NS = 1_000_000_000


class Ending(Enum):
    """What becomes of a connection after an exchange."""

    REUSABLE = auto()
    CLOSED = auto()


class Loop(Protocol):
    """What a connection needs of the engine."""

    scratch: bytearray
    view: memoryview

    def watch(self, connection: "Connection", events: int) -> None:
        """Watches the connection's socket for `events`, 0 for none."""

    def opened(self, connection: "Connection") -> None:
        """It is connected and idle."""

    def ended(self, connection: "Connection", exchange: Exchange, ending: Ending) -> None:
        """The exchange on it is over."""

    def lost(self, connection: "Connection") -> None:
        """It was closed while it was idle, or could not be opened for nobody."""

    def resend(self, exchange: Exchange, parts: Parts) -> None:
        """The server had closed the idle connection on which the request went out."""


class Connection:
    """A connection over TCP. Its reads carry the kernel's stamps where the system gives them."""

    def __init__(self, loop: Loop, target: int, address: Address) -> None:
        family, place = address
        self.target = target
        self.exchange: Exchange | None = None
        self.uses = 0
        self.idle_since_ns = 0
        self.is_open = False
        self._loop = loop
        self._into = (loop.scratch,)
        self._view = loop.view
        self._starts_with = loop.scratch.startswith
        self._head = b""
        self._framing: BodyFraming | None = None
        self._keeps_alive = False
        self._parts: Parts = ()
        self._unsent: list[bytes | memoryview] = []
        self._sock = self._make_socket(family)
        self.fd = self._sock.fileno()
        self._receive: Callable[..., tuple[int, list[tuple[int, int, bytes]], int, object]]
        self._receive = self._sock.recvmsg_into
        self.handle: Callable[[int], None] = self._go_on_opening
        loop.watch(self, select.EPOLLOUT)
        code = self._sock.connect_ex(place)
        self._refusal = os.strerror(code) if code not in (0, errno.EINPROGRESS) else None

    def _make_socket(self, family: socket.AddressFamily) -> socket.socket:
        sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        ask_for_stamps(sock)
        return sock

    def send(self, exchange: Exchange, parts: Parts) -> None:
        """Sends a request, as soon as the connection is open. One at a time."""
        self.exchange = exchange
        self._parts = parts
        self._head = b""
        self._framing = None
        exchange.is_on_reused_connection = self.uses > 0
        if exchange.sent_ns is None:
            exchange.sent_ns = monotonic_ns()
        if self.is_open:
            self._begin_writing()

    def close(self) -> None:
        """Ends the connection; its exchange, if there is one, is the caller's."""
        self.is_open = False
        self.exchange = None
        self._parts = ()
        self._unsent = []
        if self.fd >= 0:
            self._loop.watch(self, 0)
            self._sock.close()
            self.fd = -1

    # -- opening ---------------------------------------------------------------------------------------------------

    def _go_on_opening(self, _events: int) -> None:
        code = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code or self._refusal:
            self.fail(Outcome.CONNECT_ERROR, self._refusal or os.strerror(code))
        elif self._is_connected():
            self._be_open()

    def _is_connected(self) -> bool:
        """An event may have been meant for the connection that had this descriptor before."""
        try:
            self._sock.getpeername()
        except OSError:
            return False
        return True

    def _be_open(self) -> None:
        self.is_open = True
        self.handle = self._read
        self._loop.watch(self, _READABLE)
        if self.exchange is None:
            self.idle_since_ns = monotonic_ns()
            self._loop.opened(self)
        else:
            self.exchange.connected_ns = monotonic_ns()
            self._begin_writing()

    # -- writing ---------------------------------------------------------------------------------------------------

    def _begin_writing(self) -> None:
        self._unsent = list(self._parts)
        self._write()

    def _write(self) -> None:
        try:
            while self._unsent:
                self._drop_written(self._transmit(self._unsent[:_MOST_PARTS]))
        except (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError):
            self.handle = self._read_and_write
            self._loop.watch(self, _READ_WRITE)
            return
        except (BrokenPipeError, ConnectionResetError):
            # the server may have answered before it stopped reading: the next read says what became of it
            self.handle = self._read
            self._loop.watch(self, _READABLE)
            return
        except OSError as error:
            self._broken(error)
            return
        if self.exchange is not None:
            self.exchange.written_ns = monotonic_ns()
        if self.handle != self._read:
            self.handle = self._read
            self._loop.watch(self, _READABLE)

    def _transmit(self, parts: Parts) -> int:
        return self._sock.sendmsg(parts)

    def _drop_written(self, size: int) -> None:
        unsent = self._unsent
        while unsent and size >= len(unsent[0]):
            size -= len(unsent[0])
            del unsent[0]
        if size:
            unsent[0] = memoryview(unsent[0])[size:]

    def _read_and_write(self, events: int) -> None:
        if events & ~select.EPOLLOUT:
            self._read(events)
        if self.fd >= 0 and self._unsent and events & select.EPOLLOUT:
            self._write()

    # -- reading ---------------------------------------------------------------------------------------------------

    def _read(self, _events: int) -> None:
        # Python 3.11 calls what is no method of the class faster by a local name
        receive, starts_with = self._receive, self._starts_with
        try:
            size, ancillary, _, _ = receive(self._into, ANCILLARY_BYTES)
        except (BlockingIOError, ssl.SSLWantReadError):
            return
        except OSError as error:
            self._broken(error)
            return
        user_ns = monotonic_ns()
        stamp = ancillary[0][2] if ancillary else NO_STAMP
        framing, exchange = self._framing, self.exchange
        if framing is None or exchange is None or not size:
            self._read_rarely(size, stamp, user_ns)
            return
        exchange.reads += _pack_read(stamp, user_ns, size)
        exchange.body += self._view[:size]
        # one whole chunk, not the last: the framing's state is what it was
        if framing.at_chunk and size < _WHOLE_CHUNK_BYTES and starts_with(_SIZE_LINES[size]):
            return
        self._follow(framing, bytes(self._view[:size]), user_ns)

    def _read_rarely(self, size: int, stamp: bytes, user_ns: int) -> None:
        exchange = self.exchange
        if exchange is None:  # idle: closed by the server, or bytes that nobody asked for
            self.close()
            self._loop.lost(self)
        elif not size:
            self._closed_by_server()
        else:
            self._head += self._view[:size]
            try:
                self._take_head(exchange, stamp, user_ns)
            except BrokenFraming as error:
                self.fail(Outcome.MALFORMED, str(error))

    def _take_head(self, exchange: Exchange, stamp: bytes, user_ns: int) -> None:
        while (end := self._head.find(b"\r\n\r\n")) >= 0:
            head = parse_head(self._head[: end + 4])
            self._head = self._head[end + 4 :]
            if head.status >= 200:
                break
        else:
            check_begun_head(self._head)
            return
        exchange.headers_ns = user_ns
        exchange.status = head.status
        exchange.is_chunked = head.is_chunked
        exchange.content_encoding = head.content_encoding
        self._keeps_alive = head.keeps_alive
        self._framing = BodyFraming(head)
        rest, self._head = self._head, b""
        if rest:
            exchange.reads += _pack_read(stamp, user_ns, len(rest))
            exchange.body += rest
        self._follow(self._framing, rest, user_ns)

    def _follow(self, framing: BodyFraming, data: bytes, user_ns: int) -> None:
        try:
            end = framing.feed(data)
        except BrokenFraming as error:
            self.fail(Outcome.MALFORMED, str(error))
            return
        if end is not None:
            is_clean = self._keeps_alive and end == len(data) and not self._unsent
            self._finish(user_ns, Ending.REUSABLE if is_clean else Ending.CLOSED)

    def _finish(self, done_ns: int, ending: Ending) -> None:
        exchange = self.exchange
        assert exchange is not None
        exchange.done_ns = done_ns
        self.exchange = None
        self._framing = None
        self._parts = ()
        self.uses += 1
        self.idle_since_ns = done_ns
        if ending is Ending.CLOSED:
            self.close()
        self._loop.ended(self, exchange, ending)

    # -- ends ------------------------------------------------------------------------------------------------------

    def fail(self, outcome: Outcome, error: str | None) -> None:
        """Ends the exchange (or the opening) with a failure, and the connection with it."""
        exchange = self.exchange
        self.close()
        if exchange is None:
            self._loop.lost(self)
            return
        exchange.failure = outcome
        exchange.error = error
        exchange.done_ns = monotonic_ns()
        self._loop.ended(self, exchange, Ending.CLOSED)

    def finish_without_end(self, error: str) -> None:
        """Ends an exchange whose answer is complete, though the response does not end."""
        assert self.exchange is not None
        self.exchange.error = error
        self._finish(last_read_ns(self.exchange) or monotonic_ns(), Ending.CLOSED)

    def _closed_by_server(self) -> None:
        if self._framing is not None and self._framing.ends_with_connection:
            self._finish(monotonic_ns(), Ending.CLOSED)
        elif self._framing is not None:
            self.fail(Outcome.TRUNCATED_STREAM, "the server closed the connection before the response ended")
        else:
            self._unanswered("the server closed the connection without an answer")

    def _broken(self, error: OSError) -> None:
        words = error.strerror or str(error)
        if self._framing is None and self.exchange is not None:
            self._unanswered(words)
        else:
            self.fail(Outcome.RESET, words)

    def _unanswered(self, error: str) -> None:
        """No byte of an answer came: on a reused connection, and at once, the request was never seen by the server.

        The failure is then the pool's. The request goes out again on another connection; `sent_ns` stays, so that the
        time lost counts. Later than at once, it is a server that died over the request.
        """
        exchange, parts = self.exchange, self._parts
        assert exchange is not None
        is_at_once = exchange.written_ns is None or monotonic_ns() - exchange.written_ns < _AT_ONCE_NS
        if self._head or not exchange.is_on_reused_connection or not is_at_once:
            self.fail(Outcome.RESET, error)
            return
        self.close()
        exchange.resends += 1
        exchange.written_ns = None
        self._loop.resend(exchange, parts)


class TlsConnection(Connection):
    """A connection over TLS. The kernel's stamps are not to be had behind it; reads carry ours."""

    def __init__(self, loop: Loop, target: int, address: Address, context: ssl.SSLContext, host: str) -> None:
        self._context = context
        self._host = host
        self._tls: ssl.SSLSocket
        super().__init__(loop, target, address)

    def _make_socket(self, family: socket.AddressFamily) -> socket.socket:
        sock = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._tls = self._context.wrap_socket(sock, server_hostname=self._host, do_handshake_on_connect=False)
        return self._tls

    def _be_open(self) -> None:
        self._receive = self._receive_decrypted
        self.handle = self._shake_hands
        self._shake_hands(0)

    def _shake_hands(self, _events: int) -> None:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._loop.watch(self, select.EPOLLIN)
        except ssl.SSLWantWriteError:
            self._loop.watch(self, select.EPOLLOUT)
        except OSError as error:
            self.fail(Outcome.CONNECT_ERROR, f"TLS: {error}")
        else:
            super()._be_open()

    def _transmit(self, parts: Parts) -> int:
        return self._sock.send(parts[0])

    def _receive_decrypted(
        self, into: tuple[bytearray], _ancillary: int
    ) -> tuple[int, list[tuple[int, int, bytes]], int, object]:
        try:
            return self._sock.recv_into(into[0]), [], 0, None
        except ssl.SSLEOFError:
            return 0, [], 0, None

    def _read(self, events: int) -> None:
        super()._read(events)
        # what TLS has decrypted already makes no socket readable
        while self.fd >= 0 and self.exchange is not None and self._tls.pending():
            super()._read(events)
