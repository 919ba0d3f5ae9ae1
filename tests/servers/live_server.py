"""A server process under test and the plainest client for it: `http.client`, one connection a request.

The product's own client is not used on purpose: these tests say what the server does, whoever asks.
"""

import contextlib
import http.client
import json
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

REPO = Path(__file__).resolve().parents[2]
DONE = "[DONE]"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def eventually(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Whether the condition came true in time."""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.05)
    return condition()


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    headers: dict[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)


class Stream:
    """An open event stream. Iterating gives each event as an object, and the closing mark as the string `[DONE]`."""

    def __init__(self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse) -> None:
        self.connection = connection
        self.response = response

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the socket, whatever is still to come."""
        self.response.close()
        self.connection.close()

    def __iter__(self) -> Iterator[Any]:
        for line in self.response:
            field, _, value = line.decode().rstrip("\n").partition(": ")
            if field == "data":
                yield value if value == DONE else json.loads(value)


class LiveServer:
    """One started server. `api_key` is sent with every request unless it says otherwise."""

    def __init__(self, command: list[str], port: int, log: Path, api_key: str | None = None) -> None:
        self.port = port
        self.api_key = api_key
        self.log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(command, cwd=REPO, stdout=output, stderr=subprocess.STDOUT)

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def wait_ready(self, timeout_s: float) -> None:
        """Until /health says 200. Raises RuntimeError with the end of the log when that does not happen."""
        if not eventually(lambda: self.healthy() or not self.running, timeout_s) or not self.running:
            self.stop()
            raise RuntimeError(f"server did not start:\n{self.log.read_text()[-4000:]}")

    def healthy(self) -> bool:
        try:
            return self.request("GET", "/health").status == http.HTTPStatus.OK
        except OSError:
            return False

    def stop(self) -> None:
        """SIGTERM to the process that was started, SIGKILL if it does not go; its children die with it."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def open(self, method: str, path: str, body: Any = None, key: str | None = "") -> Stream:
        """Sends a request and returns when the headers are there. `key`: another one than the server's, None for none."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        headers = {} if body is None else {"Content-Type": "application/json"}
        if key := self.api_key if key == "" else key:
            headers["Authorization"] = f"Bearer {key}"
        payload = body if isinstance(body, bytes) or body is None else json.dumps(body)
        connection.request(method, path, payload, headers)
        return Stream(connection, connection.getresponse())

    def request(self, method: str, path: str, body: Any = None, key: str | None = "") -> Reply:
        with self.open(method, path, body, key) as stream:
            response = stream.response
            headers = {name.lower(): value for name, value in response.getheaders()}
            return Reply(response.status, headers, response.read().decode())

    def get(self, path: str) -> Any:
        """The JSON at `path`; anything but 200 fails the test."""
        reply = self.request("GET", path)
        assert reply.status == http.HTTPStatus.OK, reply
        return reply.json

    def chat(self, prompt: str, **options: Any) -> Reply:
        return self.request("POST", "/v1/chat/completions", chat_body(prompt, **options))

    def stream(self, prompt: str, **options: Any) -> Stream:
        return self.open("POST", "/v1/chat/completions", chat_body(prompt, stream=True, **options))

    def events(self, prompt: str, **options: Any) -> list[Any]:
        """All events of one finished stream."""
        with self.stream(prompt, **options) as stream:
            assert stream.response.status == http.HTTPStatus.OK, stream.response.read()
            return list(stream)

    def counter(self, name: str) -> float:
        """A Prometheus counter, summed over its labels; 0 when it has not appeared yet."""
        lines = self.request("GET", "/metrics").text.splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{name}{{"))


def chat_body(prompt: str, **options: Any) -> dict[str, Any]:
    return {
        "model": "conformance",
        "messages": [{"role": "user", "content": prompt}],
        "temperature": 0,
        **options,
    }


@contextlib.contextmanager
def opened(*streams: Stream) -> Iterator[None]:
    """Closes all of them at the end, finished or not."""
    try:
        yield
    finally:
        for stream in streams:
            stream.close()
