"""Which cores are the load workers' and which the rest's: the coordinator, the grader, and servers started here.

A worker's measuring thread has a core of its own; nothing else that a run starts may use it. What else runs on the
host may: the evidence of each cell (`workers`) says what it took.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

_TASKS = Path("/proc/self/task")


def reserve_cores(
    platforms: Sequence[str], workers: int, cores: Iterable[int]
) -> Mapping[str, tuple[int, ...]]:
    """A core for each of `workers` workers of each platform: the highest ones, because a host's own work and interrupts
    tend to be on the lowest. Empty where there would be none left for the rest.
    """
    available = sorted(cores)
    count = len(platforms) * workers
    if len(available) <= count:
        return {}
    reserved = available[-count:]
    return {
        name: tuple(reserved[number * workers : (number + 1) * workers])
        for number, name in enumerate(platforms)
    }


@contextmanager
def kept_off(reserved: Mapping[str, Sequence[int]]) -> Iterator[None]:
    """This process, and what it starts meanwhile, on the other cores."""
    taken = {core for cores in reserved.values() for core in cores}
    before = os.sched_getaffinity(0)
    if not taken:
        yield
        return
    _move(before - taken)
    try:
        yield
    finally:
        _move(before)


def _move(cores: set[int]) -> None:
    """All threads of this process: a core's mask is each thread's own."""
    for task in _TASKS.iterdir():
        try:
            os.sched_setaffinity(int(task.name), cores)
        except ProcessLookupError:  # it ended meanwhile
            continue
