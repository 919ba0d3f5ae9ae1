"""The servers that the conformance tests speak to: the simulator, and the real SGLang when `--real-sglang` says where.

Both are started with the same flags. Each kind of server is started once a session, when a test first asks for it.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from live_server import LiveServer
from server_makes import API_KEY, NGRAM_FLAGS, PLAIN_FLAGS, Command, Servers


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
