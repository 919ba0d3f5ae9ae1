"""Processes of servers on this host: whose they are, which port they hold, and how all of them are ended.

A server that loadgen starts carries two variables in its environment, so that a later run can tell a leftover of a
dead head node from a stranger's server: what life it is, and which process (pid and start time) started it.
"""

import asyncio
import contextlib
import os
import signal
import socket

import psutil

LIFE_VARIABLE = "LOADGEN_SERVER_ID"
HEAD_VARIABLE = "LOADGEN_HEAD"
_POLL_S = 0.05


def marks(server_id: str) -> dict[str, str]:
    """Environment variables that mark a server as this process's."""
    me = psutil.Process()
    return {LIFE_VARIABLE: server_id, HEAD_VARIABLE: f"{me.pid}:{me.create_time()}"}


def is_port_open(host: str, port: int) -> bool:
    """Whether something accepts connections there."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((host, port)) == 0


def listener(port: int) -> psutil.Process | None:
    """The process that listens on a TCP port of this host; None when none does, or when we may not see it."""
    with contextlib.suppress(psutil.AccessDenied):
        for connection in psutil.net_connections("tcp"):
            if (
                connection.status == psutil.CONN_LISTEN
                and connection.laddr
                and connection.laddr.port == port
                and connection.pid
            ):
                with contextlib.suppress(psutil.NoSuchProcess):
                    return psutil.Process(connection.pid)
    return None


def orphaned_life(process: psutil.Process) -> str | None:
    """The server life that a process belongs to, if a head node that is dead by now started it; else None."""
    try:
        environment = process.environ()
    except (psutil.AccessDenied, psutil.NoSuchProcess):
        return None
    pid, _, started = environment.get(HEAD_VARIABLE, "").partition(":")
    if not pid.isdigit():
        return None
    try:
        is_alive = str(psutil.Process(int(pid)).create_time()) == started
    except psutil.NoSuchProcess:
        is_alive = False
    return None if is_alive else environment.get(LIFE_VARIABLE)


def describe(process: psutil.Process) -> str:
    """A process in a few words."""
    try:
        return f"pid {process.pid} ({' '.join(process.cmdline())[:80] or process.name()})"
    except psutil.Error:
        return f"pid {process.pid}"


async def stop_group(leader: int, grace_s: float) -> None:
    """Ends a server's process group and all that came of its leader: SIGTERM, the grace, then SIGKILL."""
    tree = _tree(leader)
    _signal_group(leader, signal.SIGTERM)
    await _gone(tree, grace_s)
    _signal_group(leader, signal.SIGKILL)
    for member in tree:
        with contextlib.suppress(psutil.NoSuchProcess):
            member.kill()
    await _gone(tree, 10.0)


async def port_closed(host: str, port: int, within_s: float) -> bool:
    """Waits until nothing accepts connections there; says whether that came in time."""
    try:
        async with asyncio.timeout(within_s):
            while is_port_open(host, port):
                await asyncio.sleep(_POLL_S)
    except TimeoutError:
        return False
    return True


def _tree(leader: int) -> list[psutil.Process]:
    with contextlib.suppress(psutil.NoSuchProcess):
        process = psutil.Process(leader)
        return [process, *process.children(recursive=True)]
    return []


async def _gone(processes: list[psutil.Process], within_s: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            while any(_is_alive(process) for process in processes):
                await asyncio.sleep(_POLL_S)


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _signal_group(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)
