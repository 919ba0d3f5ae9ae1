"""What a scenario can do with one request: send bytes as they are and when it likes, end the connection or leave it.

Writes go to the socket at once, each a `send` of its own, past the buffers of the event loop and of aiohttp.
"""

import asyncio
import math
import os
import socket
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from http import HTTPStatus
from typing import TYPE_CHECKING

from loadgen.clock import monotonic_ns
from loadgen.sim import door, wire
from loadgen.sim.faults.events import Asked, Event
from loadgen.sim.faults.log import Entry
from loadgen.sim.faults.scenario import Pace
from loadgen.sim.responses import SIMULATED

if TYPE_CHECKING:
    from loadgen.sim.faults.house import House

EVENT_STREAM = "text/event-stream; charset=utf-8"
_POLL_S = 0.001


class Framing(StrEnum):
    """How the body's end is told: by chunks, by closing, by a length that is among the headers."""

    CHUNKED = "chunked"
    CLOSE = "close"
    LENGTH = "length"


class Stage:
    """One request and its connection.

    A scenario may replace `frame` (HTTP chunking), `cut` (what one send holds) and `pause_s` (after each send).
    """

    def __init__(
        self, transport: asyncio.Transport, asked: Asked, pace: Pace, entry: Entry, house: "House"
    ) -> None:
        self.asked = asked
        self.pace = pace
        self.entry = entry
        self.house = house
        self.keeps_connection = True
        self.frame: Callable[[bytes], bytes] = wire.frame
        self.cut: Callable[[bytes], Iterable[bytes]] = lambda data: (data,)
        self.pause_s = 0.0
        self._transport = transport
        self._fileno: int = transport.get_extra_info("socket").fileno()

    @property
    def events(self) -> list[Event]:
        """The healthy stream of this request."""
        return self.asked.paced(self.pace.tokens)

    async def stream(self, events: Iterable[Event], headers: Mapping[str, str] | None = None) -> None:
        """A whole chunked response."""
        await self.begin(headers)
        await self.play(events)
        await self.end()

    async def begin(
        self,
        headers: Mapping[str, str] | None = None,
        *,
        status: int = 200,
        framing: Framing = Framing.CHUNKED,
        version: str = "1.1",
        wait: bool = True,
    ) -> None:
        """The response head, `first_s` after the request as SGLang sends it: with the first token."""
        if wait:
            await asyncio.sleep(self.pace.first_s)
        shown = {**SIMULATED, "content-type": EVENT_STREAM, **(headers or {})}
        if framing is Framing.CHUNKED:
            shown["transfer-encoding"] = "chunked"
        else:
            self.frame = bytes
        if framing is Framing.CLOSE:
            shown["connection"] = "close"
            self.keeps_connection = False
        lines = "".join(f"{name}: {value}\r\n" for name, value in shown.items())
        await self.send(f"HTTP/{version} {status} {HTTPStatus(status).phrase}\r\n{lines}\r\n".encode())

    async def play(self, events: Iterable[Event]) -> None:
        """Sends events, with `gap_s` before each that brings further tokens, on a schedule that does not slip."""
        due_ns = monotonic_ns()
        for event in events:
            if event.tokens > self.entry.tokens > 0:
                due_ns += int(self.pace.gap_s * 1e9)
                await asyncio.sleep((due_ns - monotonic_ns()) / 1e9)
            await self.send(self.frame(event.data), event.tokens)

    async def end(self, trailers: bytes = b"") -> None:
        """The last chunk of a chunked body; then the response is whole."""
        await self.send(b"0\r\n%b\r\n" % trailers)
        self.entry.end("whole")

    async def send(self, data: bytes, tokens: int | None = None) -> None:
        """These very bytes. Raises ConnectionError when the client has gone.

        The log has one line for all pieces that `cut` makes, with the time of the last.
        """
        at_ns = monotonic_ns()
        for piece in self.cut(data):
            at_ns = monotonic_ns()
            await self._write(piece)
            await asyncio.sleep(self.pause_s)
        self.entry.sent(at_ns, len(data), self.entry.tokens if tokens is None else tokens)

    async def hang(self) -> None:
        """Nothing more, until the client hangs up."""
        self.entry.end("open and silent")
        await asyncio.Event().wait()

    def close(self) -> None:
        """Ends the connection with a FIN."""
        self.entry.end("closed by the server")
        self.keeps_connection = False
        self._transport.close()

    async def reset(self) -> None:
        """Ends the connection with a RST. The client has time to read what came before, so that only the RST is lost."""
        await asyncio.sleep(10 * _POLL_S)
        self.entry.end("reset by the server")
        self.keeps_connection = False
        door.reset(self._transport)

    async def arrival(self, within_s: float = math.inf) -> bool:
        """Waits, without reading it, for the next request on this connection. False: none came, or the client closed."""
        until_ns = monotonic_ns() + within_s * 1e9
        self._transport.pause_reading()
        try:
            return await self._readable(until_ns)
        finally:
            self._transport.resume_reading()

    async def _readable(self, until_ns: float) -> bool:
        with socket.socket(fileno=os.dup(self._fileno)) as peeking:
            while monotonic_ns() < until_ns:
                try:
                    return bool(peeking.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
                except BlockingIOError:
                    await asyncio.sleep(_POLL_S)
                except ConnectionError:
                    break
        return False

    async def _write(self, data: bytes) -> None:
        if self._transport.is_closing():
            raise ConnectionResetError("the client closed the connection")
        try:
            written = os.write(self._fileno, data)
        except BlockingIOError:
            written = 0
        if written < len(data):
            self._transport.write(data[written:])
            # aiohttp's protocol owns the transport's flow control
            while self._transport.get_write_buffer_size():
                await asyncio.sleep(_POLL_S)
