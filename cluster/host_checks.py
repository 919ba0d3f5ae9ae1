"""What this host has, against what a run needs of it: refused where it cannot work, said where it makes numbers doubtful.

Paths below /proc and /sys are read under `root`, so that a test can show another host.
"""

import os
import resource
import select
import shutil
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from cluster.commands import address
from loadgen.errors import RunFailed
from loadgen.plan import Cell, Plan
from loadgen.spec import Sweep
from loadgen.transport.stamps import ANCILLARY_BYTES, ask_for_stamps

# Of a process: Python's own files, epoll, timer, logs, Ray's sockets.
_OTHER_FILES = 128
# As many connections are opened at once (transport/raw.py); a shorter queue drops some, which costs a second each.
_OPENED_AT_ONCE = 128
# Closed connections keep their port for a minute (TIME_WAIT).
_PORTS_SHARE = 0.8
# Reading any other clock is a system call or an access to a device, microseconds each.
_FAST_CLOCKS = ("tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter")
# Of a worker: what waits to be decoded, ready bodies, and Python with its libraries.
_WORKER_BYTES = 512 * 2**20
_DISK_SHARE = 0.5
_LOCAL = ("127.0.0.1", "localhost", "::1")
_STAMP_TRIES = 50
_STAMP_WAIT_S = 0.2
_STAMP_PAUSE_S = 0.002


@dataclass(frozen=True, slots=True)
class HostFacts:
    """What a host has; None: unknown, or not there."""

    open_files: int
    ephemeral_ports: int | None
    listen_backlog: int | None
    cpu_governors: tuple[str, ...]
    clock_source: str | None
    kernel_stamps: bool
    memory_available_bytes: int
    disk_free_bytes: int


@dataclass(frozen=True, slots=True)
class Need:
    """What a plan takes of it at most; an open loop without a bound counts as none."""

    connections_per_worker: int
    connections_per_endpoint: int
    workers: int
    disk_bytes: int
    is_raw: bool
    has_local_server: bool


def host_facts(folder: Path, root: Path = Path("/")) -> HostFacts:
    """Facts of this host; `folder` is where the run will be, or where it is to be made."""
    return HostFacts(
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[1],
        ephemeral_ports=_port_count(_read(root / "proc/sys/net/ipv4/ip_local_port_range")),
        listen_backlog=_number(_read(root / "proc/sys/net/core/somaxconn")),
        cpu_governors=_governors(root),
        clock_source=_read(root / "sys/devices/system/clocksource/clocksource0/current_clocksource"),
        kernel_stamps=has_kernel_stamps(),
        memory_available_bytes=psutil.virtual_memory().available,
        disk_free_bytes=shutil.disk_usage(_existing(folder)).free,
    )


def need_of(sweep: Sweep, plan: Plan, *, is_resumed: bool = False) -> Need:
    """What a plan needs; of disk nothing is known to be left of a resumed one."""
    most = max((_streams(sweep, execution.cell) for _, execution in plan.executions()), default=0)
    platforms = [platform for platform in sweep.platforms if platform.name in plan.lives]
    largest = max((_largest_share([t.weight for t in p.server.targets]) for p in platforms), default=1.0)
    return Need(
        connections_per_worker=-(-most // sweep.clients.workers_per_platform),
        connections_per_endpoint=round(most * largest),
        workers=len(platforms) * sweep.clients.workers_per_platform,
        disk_bytes=0 if is_resumed else plan.estimate.disk_bytes,
        is_raw=sweep.clients.transport == "raw",
        has_local_server=any(address(p.server.endpoint)[0] in _LOCAL for p in platforms),
    )


def host_warnings(facts: HostFacts, need: Need) -> list[str]:
    """What makes numbers of this host doubtful, a line each. Raises RunFailed for what cannot work on it at all."""
    _refuse(facts, need)
    return list(_doubts(facts, need))


def has_kernel_stamps() -> bool:
    """Whether a read over loopback comes with a kernel stamp; not where there is no loopback."""
    try:
        with socket.create_server(("127.0.0.1", 0)) as listener, socket.socket() as client:
            client.settimeout(_STAMP_WAIT_S)
            client.connect(listener.getsockname())
            server, _ = listener.accept()
            with server:
                return ask_for_stamps(client) and any(
                    _is_stamped(server, client) for _ in range(_STAMP_TRIES)
                )
    except OSError:
        return False


def _is_stamped(server: socket.socket, client: socket.socket) -> bool:
    """The kernel begins to stamp some time after the first socket of the host has asked for it: hence the pause."""
    server.send(b".")
    if client.recvmsg(1, ANCILLARY_BYTES)[1]:
        return True
    select.select([], [], [], _STAMP_PAUSE_S)
    return False


def _refuse(facts: HostFacts, need: Need) -> None:
    files = need.connections_per_worker + _OTHER_FILES
    if facts.open_files < files:
        raise RunFailed(
            f"a load worker needs {files} descriptors, this host gives a process {facts.open_files}: raise the hard "
            "limit (ulimit -Hn), or spread the streams over more clients.workers_per_platform"
        )
    if facts.ephemeral_ports is not None and facts.ephemeral_ports < need.connections_per_endpoint:
        raise RunFailed(
            f"{need.connections_per_endpoint} connections to one endpoint need as many ports, this host has "
            f"{facts.ephemeral_ports}: widen net.ipv4.ip_local_port_range, or lower load.concurrency"
        )
    if facts.disk_free_bytes < need.disk_bytes:
        raise RunFailed(
            f"the run writes {_size(need.disk_bytes)} or more, the disk has {_size(facts.disk_free_bytes)} free: make "
            "room, or name another folder with --out"
        )


def _doubts(facts: HostFacts, need: Need) -> Iterator[str]:
    ports, backlog = facts.ephemeral_ports, facts.listen_backlog
    if ports is not None and need.connections_per_endpoint > _PORTS_SHARE * ports:
        yield (
            f"{need.connections_per_endpoint} connections to one endpoint take most of its {ports} ports, and closed "
            "ones keep theirs for a minute: widen net.ipv4.ip_local_port_range"
        )
    if need.has_local_server and backlog is not None and backlog < _OPENED_AT_ONCE:
        yield (
            f"net.core.somaxconn is {backlog}: of {_OPENED_AT_ONCE} connections opened at once some are dropped, "
            "and tried again after a second"
        )
    if slow := [governor for governor in facts.cpu_governors if governor != "performance"]:
        yield f"the CPU governor is {', '.join(slow)}: cores wake up slow, set performance"
    if facts.clock_source is not None and facts.clock_source not in _FAST_CLOCKS:
        yield f"the clock source is {facts.clock_source}: reading the time is slow, and every stamp costs one"
    if need.is_raw and not facts.kernel_stamps:
        yield "reads have no kernel stamps here: arrivals are stamped when the client reads them"
    if facts.memory_available_bytes < need.workers * _WORKER_BYTES:
        yield (
            f"{need.workers} load worker(s) may take {_size(need.workers * _WORKER_BYTES)}, "
            f"{_size(facts.memory_available_bytes)} are free: paging would stop them"
        )
    if need.disk_bytes > _DISK_SHARE * facts.disk_free_bytes:
        yield f"the run writes {_size(need.disk_bytes)} or more, the disk has {_size(facts.disk_free_bytes)} free"


def _streams(sweep: Sweep, cell: Cell) -> int:
    if cell.is_search_step:
        return sweep.load.saturate.max
    return cell.concurrency or sweep.load.max_in_flight or 0


def _largest_share(weights: Sequence[int]) -> float:
    return max(weights) / sum(weights)


def _governors(root: Path) -> tuple[str, ...]:
    cores = sorted(os.sched_getaffinity(0))
    words = [_read(root / f"sys/devices/system/cpu/cpu{core}/cpufreq/scaling_governor") for core in cores]
    return tuple(sorted({word for word in words if word}))


def _port_count(text: str | None) -> int | None:
    """`32768 60999`: both ends may be used."""
    ends = [_number(word) for word in (text or "").split()]
    low, high = ends if len(ends) == 2 else (None, None)
    return None if low is None or high is None else max(0, high - low + 1)


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None


def _read(path: Path) -> str | None:
    try:
        return path.read_text(encoding="ascii").strip() or None
    except (OSError, ValueError):
        return None


def _existing(folder: Path) -> Path:
    """The folder, or the nearest one above it that is there."""
    whole = folder.absolute()
    return next(path for path in (whole, *whole.parents) if path.exists())


def _size(count: int) -> str:
    return f"{count / 2**30:.1f} GiB" if count >= 2**30 else f"{count / 2**20:.0f} MiB"
