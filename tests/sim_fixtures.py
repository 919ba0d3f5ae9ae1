"""A simulated server as a real process, and a client of the standard library for it."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Self

CAPTURES = Path(__file__).parent / "fixtures" / "captures" / "sglang-0.5.23"
DDTREE = (
    "--speculative-algorithm", "DDTREE", "--speculative-draft-model-path", "draft",
    "--speculative-ddtree-budget", "8", "--speculative-draft-window-size", "2048",
)  # fmt: skip
READY = "The server is fired up and ready to roll!"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run(*args: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Runs a server that is expected to end by itself."""
    command = [sys.executable, "-m", "loadgen.sim", *args]
    whole = {**os.environ, **(env or {})}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=whole)


class SimServer:
    """`python -m loadgen.sim` on a free port, up when the constructor returns. A context manager."""

    def __init__(self, *args: str, env: dict[str, str] | None = None, wait: bool = True) -> None:
        self.port = free_port()
        self._log = tempfile.TemporaryFile(mode="w+")  # noqa: SIM115 - closed in __exit__
        command = [sys.executable, "-m", "loadgen.sim", "--port", str(self.port), *args]
        if "--sim-startup-s" not in args:
            command += ["--sim-startup-s", "0"]
        self.process = subprocess.Popen(command, stderr=self._log, env={**os.environ, **(env or {})})
        if wait:
            self.wait_for(READY)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._log.close()

    @property
    def log(self) -> str:
        self._log.seek(0)
        return self._log.read()

    def wait_for(self, line: str) -> None:
        deadline = time.monotonic() + 30
        while line not in self.log:
            assert self.process.poll() is None, self.log
            assert time.monotonic() < deadline, self.log
            time.sleep(0.02)

    def terminate(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=30)

    def open(
        self, method: str, path: str, body: Any = None, key: str | None = None
    ) -> http.client.HTTPResponse:
        """Sends a request and returns its response with the body unread. Close its connection with `hang_up`."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        raw = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        connection.request(method, path, body=raw, headers=headers)
        response = connection.getresponse()
        response.connection = connection  # type: ignore[attr-defined]
        return response

    def call(self, method: str, path: str, body: Any = None, key: str | None = None) -> tuple[int, str]:
        response = self.open(method, path, body, key)
        try:
            return response.status, response.read().decode()
        finally:
            hang_up(response)

    def get_json(self, path: str) -> Any:
        return json.loads(self.call("GET", path)[1])

    def post_json(self, path: str, body: Any) -> Any:
        return json.loads(self.call("POST", path, body)[1])

    def chat(self, content: str = "Tell me a story.", **options: Any) -> dict[str, Any]:
        """The body of a chat request."""
        return {"model": "m", "messages": [{"role": "user", "content": content}], **options}

    def chat_events(self, content: str = "Tell me a story.", **options: Any) -> list[Any]:
        body = self.chat(content, stream=True, **options)
        return events(self.call("POST", "/v1/chat/completions", body)[1])

    def running(self) -> int:
        load = self.get_json("/v1/loads")["loads"][0]
        return load["num_running_reqs"] + load["num_waiting_reqs"]

    def wait_running(self, count: int, wait_s: float = 10) -> None:
        deadline = time.monotonic() + wait_s
        while self.running() != count:
            assert time.monotonic() < deadline
            time.sleep(0.01)


def hang_up(response: http.client.HTTPResponse) -> None:
    response.close()
    response.connection.close()  # type: ignore[attr-defined]


def events(text: str) -> list[Any]:
    """The events of a stream: JSON values, and the string "[DONE]"."""
    found = []
    for block in text.strip().split("\n\n"):
        assert block.startswith("data: "), block
        data = block.removeprefix("data: ")
        found.append(data if data == "[DONE]" else json.loads(data))
    return found


def capture(name: str) -> str:
    return (CAPTURES / name).read_text(encoding="utf-8")


def shape(value: Any) -> Any:
    """Keys and types without values; a list is its first element's shape, null and numbers keep their kind."""
    if isinstance(value, dict):
        return {key: shape(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [shape(value[0])] if value else []
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return type(value).__name__
    return "number"
