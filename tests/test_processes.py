"""Whose a process is, and how all that came of a server is ended: real processes, their marks and sessions."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial

import psutil
import pytest
from cluster_fixtures import ours
from scripted_server import closed_port

from cluster import processes
from cluster.preflight import check_cores, preflight
from cluster.processes import HEAD_VARIABLE, LIFE_VARIABLE, PORT_VARIABLE
from loadgen.errors import RunFailed
from loadgen.spec import Clients

SLEEP = [sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)"]
LISTEN = [
    sys.executable,
    "-c",
    "import socket, sys, time; s = socket.create_server(('127.0.0.1', int(sys.argv[1]))); print('up', flush=True); time.sleep(60)",
]  # fmt: skip


class Started:
    """Processes in sessions of their own, ended with the test."""

    def __init__(self) -> None:
        self.all: list[subprocess.Popen[bytes]] = []

    def __call__(self, command: list[str], env: dict[str, str] | None = None) -> psutil.Process:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, env={**os.environ, **(env or {})}, start_new_session=True
        )
        self.all.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        return psutil.Process(process.pid)


@pytest.fixture
def start() -> Iterator[Started]:
    started = Started()
    yield started
    for process in started.all:
        process.kill()
        process.wait()
        process.stdout.close()


def dead_heads(port: int, life: str = "box.plain.aa") -> dict[str, str]:
    """The marks of a server whose head is dead: its pid is this process's, born at another time."""
    return {**processes.marks(life, port), HEAD_VARIABLE: f"{os.getpid()}:1"}


def test_a_server_of_a_living_head_is_no_orphan_and_one_of_a_dead_head_is(start):
    port = closed_port()
    start(SLEEP, processes.marks("box.plain.living", port))
    start(SLEEP, dead_heads(port + 1, "box.plain.elsewhere"))
    start(SLEEP, {LIFE_VARIABLE: "box.plain.nobody", PORT_VARIABLE: str(port)})
    orphan = start(SLEEP, dead_heads(port))
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    other = start(SLEEP, {**dead_heads(port, "box.plain.bb"), HEAD_VARIABLE: f"{gone.pid}:17"})
    found = {life: process.pid for life, process in processes.orphans(port).items()}
    assert found == {"box.plain.aa": orphan.pid, "box.plain.bb": other.pid}


def test_preflight_stops_an_orphan_that_does_not_hold_its_port_yet(start):
    """It loads: a second server beside it would not fit into the memory."""
    platform = ours(["x"])
    port = int(platform.server.endpoint.rpartition(":")[2])
    orphan = start([*SLEEP, "--api-key", "sk-1"], dead_heads(port))
    (line,) = asyncio.run(preflight(platform))
    assert "box.plain.aa was left running by a loadgen that is dead; stopped (pid" in line
    assert "sk-1" not in line
    assert orphan.status() == psutil.STATUS_ZOMBIE


def test_preflight_leaves_a_stranger_alone_and_names_it(start):
    port = closed_port()
    stranger = start([*LISTEN, str(port), "--api-key", "sk-1"])
    with pytest.raises(RunFailed, match=f"port {port} is in use by pid {stranger.pid} ") as failure:
        asyncio.run(preflight(ours(["x"], port=port)))
    assert "sk-1" not in str(failure.value)
    assert stranger.is_running()


def test_preflight_refuses_a_key_that_is_not_set_and_a_host_that_is_none(monkeypatch):
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    with pytest.raises(RunFailed, match="NO_SUCH_KEY"):
        asyncio.run(preflight(ours(["x"], api_key_env="NO_SUCH_KEY")))
    with pytest.raises(RunFailed, match="no address to start a server on"):
        asyncio.run(preflight(ours(["x"], endpoint="http://no-such-host.invalid:1234")))


def test_the_listener_of_a_port(start):
    port = closed_port()
    assert processes.listener(port) is None
    assert not processes.is_port_open("127.0.0.1", port)
    process = start([*LISTEN, str(port)])
    assert processes.listener(port) == process
    assert processes.is_port_open("127.0.0.1", port)


def test_members_are_the_session_and_the_marked_and_nobody_else(start):
    code = (
        "import os, subprocess, sys;"
        "new = [sys.executable, '-c', 'import time; time.sleep(60)'];"
        "subprocess.Popen(new, env={});"  # same session, environment hidden
        "subprocess.Popen(new, start_new_session=True, env={});"  # own session, still a child
        "os.fork() or (os.setsid(), subprocess.Popen(new), os._exit(0));"  # own session, no child any more
        "os.wait(); print('up', flush=True); subprocess.Popen(new).wait()"
    )
    leader = start([sys.executable, "-c", code], processes.marks("box.plain.cc", 1))
    start(SLEEP)
    find = partial(processes.members, "box.plain.cc", leader.pid)
    deadline = time.monotonic() + 10
    while len(find()) < 5 and time.monotonic() < deadline:
        time.sleep(0.05)
    family = find()
    assert len(family) == 5
    assert leader in family
    asyncio.run(processes.stop_all(find, 5.0))
    assert not find()
    assert all(not p.is_running() or p.status() == psutil.STATUS_ZOMBIE for p in family)


def test_our_own_session_is_never_taken_for_a_servers(start):
    start(SLEEP)
    assert processes.members("box.plain.none", os.getsid(0)) == []


def test_what_ignores_sigterm_is_killed(start):
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
    process = start([sys.executable, "-c", code], processes.marks("box.plain.dd", 1))
    asyncio.run(processes.stop_all(partial(processes.members, "box.plain.dd", process.pid), 0.3))
    assert process.wait(5) == -signal.SIGKILL


def test_waiting_for_a_port_to_close():
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert asyncio.run(processes.port_closed("127.0.0.1", port, 0.2)) is False

    assert asyncio.run(processes.port_closed("127.0.0.1", port, 5)) is True


def test_load_workers_have_a_core_each_and_one_is_left_or_the_config_says_that_they_may_share():
    two = Clients(workers_per_platform=1, max_workers_per_platform=2)
    assert not check_cores(two, platforms=2, cores=5)
    with pytest.raises(RunFailed) as caught:
        check_cores(two, platforms=2, cores=4)
    assert str(caught.value) == (
        "4 load worker(s) and the coordinator need 5 cores, this host has 4: lower clients.workers_per_platform, or set "
        "clients.allow_shared_cores: true (the cells are marked then)"
    )
    assert check_cores(Clients(allow_shared_cores=True), platforms=4, cores=4)
    assert not check_cores(Clients(allow_shared_cores=True), platforms=3, cores=4)
