"""An HTTP server on a free loopback port that plays a script for each request: bytes, pauses, stalls, resets.

A script is a coroutine function that is given the peer and the request. Returning keeps the connection for the next
request; `peer.close()` and `peer.reset()` end it. The server notes what it saw, as its own word against the client's.
"""

import asyncio
import json
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

CHUNKED_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
UNFRAMED_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
DONE = b"data: [DONE]\n\n"
ROLE = {"role": "assistant", "content": ""}


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Peer:
    """The client's connection, as the script sees it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.is_closed = False

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def send_chunk(self, data: bytes) -> None:
        """One HTTP chunk of a chunked response."""
        await self.send(b"%x\r\n%s\r\n" % (len(data), data))

    async def end(self) -> None:
        """The end of a chunked response."""
        await self.send(b"0\r\n\r\n")

    async def stream(self, *events: bytes, pause_s: float = 0) -> None:
        """A whole chunked response, each event in a chunk of its own."""
        await self.send(CHUNKED_HEAD)
        for data in events:
            await self.send_chunk(data)
            await asyncio.sleep(pause_s)
        await self.end()

    async def answer(self, value: Any, status: int = 200) -> None:
        """A whole response with a JSON body (or, for bytes, just these)."""
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        await self.send(b"HTTP/1.1 %d X\r\nContent-Length: %d\r\n\r\n%s" % (status, len(body), body))

    async def wait_for_end(self) -> None:
        """Returns when the client has closed or reset the connection."""
        with suppress(ConnectionError):
            await self._reader.read()
        self.is_closed = True

    def close(self) -> None:
        self.is_closed = True
        self._writer.close()

    def reset(self) -> None:
        """Ends the connection with a RST instead of a FIN."""
        self.is_closed = True
        sock = self._writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._writer.transport.abort()


Script = Callable[[Peer, Request], Awaitable[None]]


@dataclass(slots=True)
class ScriptedServer:
    url: str
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    in_flight: int = 0
    peak: int = 0
    listener: asyncio.Server | None = None

    def refuse_connections(self) -> None:
        """Nobody listens any more; connections that are open stay."""
        self.listener.close()


@asynccontextmanager
async def scripted(
    script: Script, host: str = "127.0.0.1", tls: ssl.SSLContext | None = None
) -> AsyncIterator[ScriptedServer]:
    """A server that plays `script`; its connections are closed at the end."""
    server = ScriptedServer("")
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.current_task())
        server.connections += 1
        peer = Peer(reader, writer)
        try:
            while not peer.is_closed and (request := await _read_request(reader)) is not None:
                await _play(server, script, peer, request)
        except ConnectionError:
            pass
        finally:
            writer.close()

    listener = await asyncio.start_server(serve, host, 0, limit=1 << 24, ssl=tls)
    server.listener = listener
    port = listener.sockets[0].getsockname()[1]
    server.url = f"http{'s' if tls else ''}://{f'[{host}]' if ':' in host else host}:{port}"
    try:
        yield server
    finally:
        listener.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _play(server: ScriptedServer, script: Script, peer: Peer, request: Request) -> None:
    server.requests.append(request)
    server.in_flight += 1
    server.peak = max(server.peak, server.in_flight)
    try:
        await script(peer, request)
    finally:
        server.in_flight -= 1


async def _read_request(reader: asyncio.StreamReader) -> Request | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
    except asyncio.IncompleteReadError:
        return None
    first, *lines = head.strip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    method, path, _ = first.split(" ")
    return Request(method, path, headers, body)


def closed_port() -> int:
    """A port on which nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def event(value: Any) -> bytes:
    """One SSE event with a JSON value, or with the bytes given."""
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return b"data: " + data + b"\n\n"


def delta(
    content: str | None = None,
    *,
    reasoning: str | None = None,
    finish: str | None = None,
    tokens: int | None = None,
) -> bytes:
    """A chat chunk in SGLang's shape; `tokens` adds a running usage."""
    fields = {"content": content, "reasoning_content": reasoning}
    choice = {
        "index": 0,
        "delta": {k: v for k, v in fields.items() if v is not None},
        "finish_reason": finish,
    }
    value: dict[str, Any] = {"object": "chat.completion.chunk", "choices": [choice]}
    if tokens is not None:
        value["usage"] = _usage(tokens)
    return event(value)


def role() -> bytes:
    return event({"choices": [{"index": 0, "delta": ROLE, "finish_reason": None}]})


def usage(tokens: int, prompt_tokens: int = 7, cached_tokens: int | None = None) -> bytes:
    """The usage event at the end of a stream."""
    return event({"choices": [], "usage": _usage(tokens, prompt_tokens, cached_tokens)})


def whole_answer(words: int = 3, prompt_tokens: int = 7) -> tuple[bytes, ...]:
    """The events of a good answer with a running usage."""
    texts = [delta(f"w{n} ", tokens=n + 1) for n in range(words)]
    return (role(), *texts, delta(finish="stop"), usage(words, prompt_tokens), DONE)


def _usage(tokens: int, prompt_tokens: int = 7, cached_tokens: int | None = None) -> dict[str, Any]:
    details = None if cached_tokens is None else {"cached_tokens": cached_tokens}
    return {"prompt_tokens": prompt_tokens, "completion_tokens": tokens, "prompt_tokens_details": details}
