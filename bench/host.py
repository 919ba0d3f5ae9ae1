"""This machine: its facts for the record, and how a process gets a core of its own."""

import os
import platform
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadgen.sink import compiled

SINK_PRIORITY, CLIENT_PRIORITY, NEIGHBOUR_PRIORITY = 50, 50, 60
_HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Host:
    """The two cores of a benchmark, and whether processes may run at real-time priority on them."""

    sink_core: int
    client_core: int
    is_real_time: bool

    @classmethod
    def this(cls) -> "Host":
        cores = sorted(os.sched_getaffinity(0))
        return cls(cores[0], cores[1] if len(cores) > 1 else cores[0], _may_be_real_time())

    def pinned(self, core: int, priority: int, policy: str = "-f") -> list[str]:
        """What goes before a command, so that it runs on `core`, at a real-time priority if that is allowed.

        `policy` is chrt's: -f first come first served, -r in turns, for programs with several threads.
        """
        command = ["taskset", "-c", str(core)]
        return ["chrt", policy, str(priority), *command] if self.is_real_time else command

    @property
    def notes(self) -> list[str]:
        """What makes figures of this host doubtful."""
        notes = []
        if self.sink_core == self.client_core:
            notes.append("one core only: sink and client share it, so every figure holds both")
        if not self.is_real_time:
            notes.append("no real-time priority (not root): other programs' time on the cores counts as lag")
        return notes

    def facts(self) -> dict[str, Any]:
        """For the record."""
        model = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if "model name" in line]
        return {
            "cpu": model[0].partition(":")[2].strip() if model else platform.machine(),
            "cores": os.cpu_count(),
            "kernel": platform.release(),
            "python": platform.python_version(),
            "load_average": os.getloadavg()[0],
            "notes": self.notes,
        }


@contextmanager
def neighbour(host: Host) -> Iterator[None]:
    """Another program on the client's core: takes 5 of every 15 ms of it, before the client."""
    program = compiled([_HERE / "neighbour.c"], "neighbour")
    with subprocess.Popen([*host.pinned(host.client_core, NEIGHBOUR_PRIORITY), str(program)]) as process:
        try:
            yield
        finally:
            process.kill()


def c_reader(port: int, options: Sequence[str]) -> list[str]:
    """The command of the C reader."""
    return [str(compiled([_HERE / "c_reader.c"], "c_reader")), "-p", str(port), *options]


def _may_be_real_time() -> bool:
    try:
        return subprocess.run(["chrt", "-f", "1", "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False
