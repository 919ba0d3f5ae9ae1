"""Processes of servers on this host: whose they are, which port they hold, and how all of them are ended.

A server that loadgen starts carries three variables in its environment, so that a later run can tell a leftover of a
dead head node from a stranger's server: what life it is, its port, and which process (pid and birth) started it.
"""

import asyncio
import contextlib
import os
import shlex
import signal
import socket
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import psutil

from loadgen.redact import mask_command

LIFE_VARIABLE = "LOADGEN_SERVER_ID"
PORT_VARIABLE = "LOADGEN_PORT"
HEAD_VARIABLE = "LOADGEN_HEAD"
_POLL_S = 0.05
_KILLED_S = 10.0


def marks(server_id: str, port: int) -> dict[str, str]:
    """Environment variables that mark a server as this process's."""
    head = f"{os.getpid()}:{_birth(os.getpid())}"
    return {LIFE_VARIABLE: server_id, PORT_VARIABLE: str(port), HEAD_VARIABLE: head}


def life_of(process: psutil.Process) -> str | None:
    """The server life whose mark a process carries; None without one, or when we may not see its environment."""
    return _environment(process).get(LIFE_VARIABLE)


def orphans(port: int) -> dict[str, psutil.Process]:
    """By server life, one living process of each that a dead head node started for this port; it may not hold it yet."""
    return {life: process for process in _alive() if (life := _orphaned_life(process, port))}


def members(server_id: str, leader: int | None) -> list[psutil.Process]:
    """The living processes of a server life: the leader's session and children, and whatever carries the life's mark.

    A process may leave its parent and its session (a double fork), or hide its environment (a new title overwrites
    it); all at once is not known to happen. Our own session is never a server's, whatever a caller says.
    """
    if leader == session(os.getpid()):
        leader = None
    family = _children(leader) if leader else set()
    return [
        process
        for process in _alive()
        if process.pid in family
        or life_of(process) == server_id
        or (leader is not None and session(process.pid) == leader)
    ]


def session(pid: int) -> int | None:
    """The session of a process; None when it is gone."""
    try:
        return os.getsid(pid)
    except (ProcessLookupError, PermissionError):
        return None


def is_port_open(host: str, port: int) -> bool:
    """Whether something accepts connections there. Raises OSError for a host that has no address."""
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


def describe(process: psutil.Process) -> str:
    """A process in a few words, without the secrets of its command line."""
    try:
        words = shlex.join(mask_command(process.cmdline())) or process.name()
    except psutil.Error:
        return f"pid {process.pid}"
    return f"pid {process.pid} ({words[:80]})"


async def stop_all(find: Callable[[], Iterable[psutil.Process]], grace_s: float) -> None:
    """Ends all that `find` finds: SIGTERM, the grace, then SIGKILL to what is there by then, newcomers included."""
    first = _signal(find(), signal.SIGTERM)
    await _gone(first, grace_s)
    late = _signal(find(), signal.SIGKILL)
    await _gone(late, _KILLED_S)


async def port_closed(host: str, port: int, within_s: float) -> bool:
    """Waits until nothing accepts connections there; says whether that came in time."""
    try:
        async with asyncio.timeout(within_s):
            while is_port_open(host, port):
                await asyncio.sleep(_POLL_S)
    except TimeoutError:
        return False
    return True


def _orphaned_life(process: psutil.Process, port: int) -> str | None:
    environment = _environment(process)
    pid, _, birth = environment.get(HEAD_VARIABLE, "").partition(":")
    if environment.get(PORT_VARIABLE) != str(port) or not pid.isdigit() or _birth(int(pid)) == birth:
        return None
    return environment.get(LIFE_VARIABLE)


def _environment(process: psutil.Process) -> dict[str, str]:
    try:
        return process.environ()
    except (psutil.Error, OSError):
        return {}


def _birth(pid: int) -> str | None:
    """When a process was started, as a word that no change of the clock alters; None when it is gone."""
    try:
        if not Path("/proc/self/stat").exists():
            return str(psutil.Process(pid).create_time())
        # clock ticks since boot: psutil's create_time() moves when the clock is set, and a living head would look dead
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[19]
    except (psutil.NoSuchProcess, FileNotFoundError, ProcessLookupError):
        return None


def _alive() -> Iterator[psutil.Process]:
    return (process for process in psutil.process_iter() if _is_alive(process))


def _is_alive(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _children(pid: int) -> set[int]:
    try:
        return {child.pid for child in psutil.Process(pid).children(recursive=True)}
    except psutil.NoSuchProcess:
        return set()


def _signal(processes: Iterable[psutil.Process], number: signal.Signals) -> list[psutil.Process]:
    signalled = list(processes)
    for process in signalled:
        with contextlib.suppress(psutil.Error):
            process.send_signal(number)
    return signalled


async def _gone(processes: list[psutil.Process], within_s: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            while any(_is_alive(process) for process in processes):
                await asyncio.sleep(_POLL_S)
