"""The servers that the conformance tests speak to: the simulator, and the real SGLang when `--real-sglang` says where.

Both are started with the same flags. Each kind of server is started once a session, when a test first asks for it.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from live_server import LiveServer, free_port

API_KEY = "conformance-key"
SEED = 20260
CONTEXT_TOKENS = 4096

COMMON_FLAGS = (
    "--served-model-name", "conformance", "--random-seed", str(SEED), "--reasoning-parser", "kimi_k2",
    "--context-length", str(CONTEXT_TOKENS), "--enable-metrics", "--enable-cache-report",
)  # fmt: skip
PLAIN_FLAGS = ("--max-running-requests", "2", "--max-queued-requests", "1")
NGRAM_FLAGS = (
    "--max-running-requests", "4", "--api-key", API_KEY, "--decode-log-interval", "4",
    "--speculative-algorithm", "NGRAM", "--speculative-num-draft-tokens", "8",
    "--speculative-ngram-max-bfs-breadth", "1",
)  # fmt: skip

Command = list[str]


class Servers:
    """Starts servers of one make (`program`) when they are asked for, and again when a test has ended one."""

    def __init__(self, program: Command, logs: Path, ready_timeout_s: float) -> None:
        self.program = program
        self.logs = logs
        self.ready_timeout_s = ready_timeout_s
        self.started: dict[tuple[str, ...], LiveServer] = {}

    def get(self, flags: tuple[str, ...], api_key: str | None = None) -> LiveServer:
        server = self.started.get(flags)
        if server is None or not server.running:
            port = free_port()
            command = [*self.program, "--port", str(port), *COMMON_FLAGS, *flags]
            server = LiveServer(command, port, self.logs / f"server-{port}.log", api_key)
            server.wait_ready(self.ready_timeout_s)
            self.started[flags] = server
        return server

    def stop(self) -> None:
        for server in self.started.values():
            if server.running:
                server.stop()


def _real(request: pytest.FixtureRequest) -> Command:
    venv = request.config.getoption("--real-sglang")
    if venv is None:
        pytest.skip("needs --real-sglang DIR")
    return [sys.executable, "tests/servers/sglang/launch.py", str(Path(venv).resolve())]


def _sim(request: pytest.FixtureRequest) -> Command:
    return [sys.executable, "-m", "loadgen.sim", "--time-scale", "6", "--sim-startup-s", "0"]


MAKES: dict[str, Callable[[pytest.FixtureRequest], Command]] = {"sim": _sim, "sglang": _real}


@pytest.fixture(scope="session", params=["sim", pytest.param("sglang", marks=pytest.mark.real_sglang)])
def servers(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    program = MAKES[request.param](request)
    running = Servers(program, tmp_path_factory.mktemp(request.param), ready_timeout_s=240)
    yield running
    running.stop()


@pytest.fixture
def plain(servers: Servers) -> LiveServer:
    """No speculation, two requests at once, one in the queue, no key."""
    return servers.get(PLAIN_FLAGS)


@pytest.fixture
def ngram(servers: Servers) -> LiveServer:
    """NGRAM speculation, four requests at once, an API key."""
    return servers.get(NGRAM_FLAGS, API_KEY)
