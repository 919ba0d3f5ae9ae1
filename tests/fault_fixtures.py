"""A client of bare sockets for the fault server: what came, read by read, and how the connection ended."""

import json
import re
import select
import socket
import time
from dataclasses import dataclass
from typing import Any

from sim_fixtures import SimServer

CHAT = "/v1/chat/completions"
USAGE = {"include_usage": True, "continuous_usage_stats": True}
FAST = ":first_s=0.005:gap_s=0.002"


def fault_server(scenario: str = "healthy", *args: str) -> SimServer:
    return SimServer("--scenario", scenario, "--reasoning-parser", "kimi_k2", "--random-seed", "1", *args)


def request(path: str = CHAT, *, max_tokens: int = 40, headers: str = "", **options: Any) -> bytes:
    """A whole HTTP request for a stream."""
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": "Tell me a story."}],
        "prompt": "Tell me a story.",
        "text": "Tell me a story.",
        "sampling_params": {"max_new_tokens": max_tokens},
        "max_tokens": max_tokens,
        "stream": True,
        "stream_options": USAGE,
        **options,
    }
    raw = json.dumps(body).encode()
    return f"POST {path} HTTP/1.1\r\nHost: x\r\n{headers}Content-Length: {len(raw)}\r\n\r\n".encode() + raw


@dataclass(frozen=True)
class Heard:
    """`end`: "fin", "rst", or "open" when nothing came for a while."""

    head: bytes
    body: bytes
    reads: list[bytes]
    end: str

    @property
    def status_line(self) -> bytes:
        return self.head.split(b"\r\n")[0]

    @property
    def chunks(self) -> list[bytes]:
        """The HTTP chunks of the body, the last one (empty) included, extensions and trailers left out."""
        found, rest = [], self.body
        while rest:
            size, _, rest = rest.partition(b"\r\n")
            count = int(size.partition(b";")[0], 16)
            found.append(rest[:count])
            if not count:
                break
            assert rest[count : count + 2] == b"\r\n"
            rest = rest[count + 2 :]
        return found

    @property
    def events(self) -> list[Any]:
        """The events of a chunked body that is whole: JSON values, and "[DONE]"."""
        return events_of(b"".join(self.chunks))


def events_of(data: bytes) -> list[Any]:
    datas = [part.removeprefix(b"data: ") for part in data.split(b"\n\n") if part]
    return ["[DONE]" if data == b"[DONE]" else json.loads(data) for data in datas]


def talk(sock: socket.socket, asked: bytes, quiet_s: float = 1.0, most_s: float = 5) -> Heard:
    """Sends a request and listens until the end, or until nothing came for `quiet_s`, or for `most_s`."""
    sock.sendall(asked)
    return listen(sock, quiet_s, most_s)


def listen(sock: socket.socket, quiet_s: float = 1.0, most_s: float = 5) -> Heard:
    reads: list[bytes] = []
    end = "open"
    deadline = time.monotonic() + most_s
    while time.monotonic() < deadline:
        # behind the end little more is to be expected
        wait_s = min(quiet_s, 0.1) if _is_whole(reads) else quiet_s
        if not select.select([sock], [], [], wait_s)[0]:
            break
        try:
            data = sock.recv(1 << 20)
        except ConnectionResetError:
            end = "rst"
            break
        if not data:
            end = "fin"
            break
        reads.append(data)
    head, _, body = b"".join(reads).partition(b"\r\n\r\n")
    return Heard(head, body, reads, end)


def _is_whole(reads: list[bytes]) -> bool:
    if not reads or reads[-1].endswith(b"\r\n0\r\n\r\n"):
        return bool(reads)
    head, _, body = b"".join(reads[-20:]).partition(b"\r\n\r\n")
    length = re.search(rb"\ncontent-length: (\d+)", head)
    return length is not None and len(body) >= int(length[1])


def connect(server: SimServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=5)


def play(server: SimServer, scenario: str, quiet_s: float = 1.0, most_s: float = 5, **options: Any) -> Heard:
    """Plays one scenario on a connection of its own. The pace is fast unless the scenario says otherwise."""
    path = options.pop("path", CHAT)
    with connect(server) as sock:
        return talk(sock, request(f"{path}?scenario={scenario}{FAST}", **options), quiet_s, most_s)


def truth(server: SimServer) -> dict[str, Any]:
    """The log's last entry, once it has ended."""
    deadline = time.monotonic() + 5
    while True:
        entry: dict[str, Any] = server.get_json("/__faults/log?last=1")["requests"][-1]
        if entry["ended"] is not None or time.monotonic() > deadline:
            return entry
        time.sleep(0.01)
