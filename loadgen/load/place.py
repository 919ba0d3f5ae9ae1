"""Where a worker runs: its host, process and core, and the time that the host's hypervisor took from that core."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from loadgen.errors import RunFailed

_STAT = Path("/proc/stat")
# user nice system idle iowait irq softirq steal; guest time is in user already (proc(5))
_FIELDS = 8
_STEAL = 7


@dataclass(frozen=True, slots=True)
class Place:
    """Who measured: host name, process, and the cores that its measuring thread may use."""

    host: str
    pid: int
    cores: tuple[int, ...]
    is_pinned: bool


def this_place(*, is_pinned: bool = False) -> Place:
    """The place of the calling thread."""
    return Place(socket.gethostname(), os.getpid(), tuple(sorted(_cores())), is_pinned)


@contextmanager
def on_core(core: int | None) -> Iterator[None]:
    """The calling thread alone on `core`, so that the rest of its process (Ray's threads, say) does not disturb it.

    None leaves it where it is. Raises RunFailed for a core that this process may not use.
    """
    if core is None:
        yield
        return
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {core})
    except OSError as error:
        raise RunFailed(
            f"a load worker may not use core {core} of its host ({error.strerror}): give its process that core, or set "
            "clients.allow_shared_cores: true"
        ) from error
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@dataclass(frozen=True, slots=True)
class Ticks:
    """Clock ticks of some cores since the host's start: all, and those that its hypervisor gave to others."""

    total: int
    stolen: int

    def stolen_share(self, later: "Ticks") -> float | None:
        """Of the time until `later`; None where no tick has passed."""
        total = later.total - self.total
        return max(0, later.stolen - self.stolen) / total if total > 0 else None


def core_ticks(stat: Path = _STAT) -> Ticks | None:
    """Ticks of the cores that the calling thread may use; None where the system does not say (no Linux)."""
    try:
        lines = stat.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    wanted = {f"cpu{core}" for core in _cores()}
    rows = [
        [int(field) for field in fields[: _FIELDS + 1][1:]]
        for fields in map(str.split, lines)
        if fields and fields[0] in wanted
    ]
    if not rows or any(len(row) < _FIELDS for row in rows):
        return None
    return Ticks(sum(map(sum, rows)), sum(row[_STEAL] for row in rows))


def _cores() -> set[int]:
    return os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
