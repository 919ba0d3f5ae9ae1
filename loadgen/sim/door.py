"""The listening socket of a simulated server, which can be shut for a while and let in a limited number."""

import asyncio
import os
import socket
import struct
from typing import cast

from aiohttp import web

_BACKLOG = 2048
_RST_ON_CLOSE = struct.pack("ii", 1, 0)


class Door:
    """The listening socket. It can be shut for a while, and lets no more than `limit` connections in."""

    def __init__(self, server: web.Server, host: str, port: int) -> None:
        self.limit: int | None = None
        self._server = server
        self._host, self._port = host, port
        self._listening: asyncio.Server | None = None

    async def open(self) -> tuple[str, int]:
        """Listens; returns the address. Raises OSError when another server has the port."""
        listening = _listen(self._host, self._port)
        self._listening = await asyncio.get_running_loop().create_server(
            self._enter, sock=listening, backlog=_BACKLOG
        )
        self._host, self._port = listening.getsockname()[:2]
        return self._host, self._port

    def shut(self) -> None:
        """New connections are refused; those that are open stay."""
        if self._listening is not None:
            self._listening.close()
            self._listening = None

    def _enter(self) -> asyncio.BaseProtocol:
        is_full = self.limit is not None and len(self._server.connections) >= self.limit
        return _TurnedAway() if is_full else self._server()


class _TurnedAway(asyncio.Protocol):
    """A connection over the limit."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        reset(cast("asyncio.WriteTransport", transport))


def _listen(host: str, port: int) -> socket.socket:
    """A bound socket. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
    except OSError:
        listening.close()
        raise
    return listening


def reset(transport: asyncio.WriteTransport) -> None:
    """Closes a connection so that the kernel sends a RST."""
    with socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno())) as same:
        same.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RST_ON_CLOSE)
    transport.abort()
