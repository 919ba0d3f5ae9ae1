"""Processes below one, by /proc: cheap enough to be asked every few ms, and blind to none by a hidden environment."""

import contextlib
import ctypes
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cluster.processes import LIFE_VARIABLE

_PR_SET_CHILD_SUBREAPER = 36


def descendants(pid: int) -> list[int]:
    """All living processes below `pid`, in no order; zombies are none."""
    found: list[int] = []
    todo = [pid]
    while todo:
        children = _children(todo.pop())
        todo += children
        found += [child for child in children if not _is_zombie(child)]
    return found


def command(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return ""


def is_server(pid: int) -> bool:
    """Whether it carries the mark of a server life."""
    with contextlib.suppress(OSError):
        return f"{LIFE_VARIABLE}=".encode() in Path(f"/proc/{pid}/environ").read_bytes()
    return False


@contextmanager
def family() -> Iterator["Family"]:
    """Within the block all orphans of processes that are started in it become this process's children."""
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    try:
        yield Family()
    finally:
        assert libc.prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0) == 0


class Family:
    """What this process has below it now is known; `left` names newcomers."""

    def __init__(self) -> None:
        self.known = set(descendants(os.getpid()))

    def left(self, within_s: float, *, but_servers: bool = False) -> list[str]:
        """The processes that are still there after at most `within_s`, in words."""
        deadline = time.monotonic() + within_s
        while True:
            self._reap()
            there = [pid for pid in descendants(os.getpid()) if pid not in self.known]
            there = [pid for pid in there if not (but_servers and is_server(pid))]
            if not there or time.monotonic() > deadline:
                return [f"{pid} {command(pid)[:150]}" for pid in there]
            time.sleep(0.02)

    def _reap(self) -> None:
        for pid in _children(os.getpid()):
            if pid not in self.known and _is_zombie(pid):
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                found += [int(word) for word in (task / "children").read_text().split()]
    return found


def _is_zombie(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] == "Z"
    return True
