"""One round: a sweep is disturbed at a random moment, and must open, report and resume, with nothing left of it."""

import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from kin import Family, command, descendants, family
from whole_runs import check_finished, check_whole, finished_parts

PLANNED = 5
SWEEP = """
name: kills
platforms:
  - name: box
    server:
      control: process
      endpoint: http://127.0.0.1:{port}
      command: [loadgen, sim, --time-scale, "100", --sim-startup-s, "0", --port, "{{port}}", --reasoning-parser, kimi_k2]
      ready_timeout_s: 60
      stop_timeout_s: 10
workloads:
  - {{context_tokens: 60, output_tokens: 16}}
load: {{concurrency: [1, 4], warmup_until_stationary: false, ramp_s: 0, measure_min_s: 20}}
repeats: 2
clients: {{allow_shared_cores: true}}
grading: {{max_tokens: 4096}}
"""
# By what a round disturbs: which processes below the command's own it is; None: that process itself.
TARGETS = {
    "Ctrl-C": None,
    "SIGTERM": None,
    "hang-up": None,
    "coordinator": None,
    "program": "loadgen.grading._child",
    "server": "loadgen sim",
    "worker": "ray::LoadWorker",
    "grader": "ray::Grader",
}
_SIGNALS = {"Ctrl-C": signal.SIGINT, "SIGTERM": signal.SIGTERM, "hang-up": signal.SIGHUP}
_LOOK_S = 0.005
_END_S = 120.0
_LEFT_S = 20.0


class Nursery:
    """Starts `loadgen` command lines; see `nursery.py`."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("nursery.py"))],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def start(self, words: list[str], folder: Path) -> int:
        """The pid of the command, which leads a session of its own."""
        order = {"words": words, "folder": str(folder), "output": str(folder / "said.txt")}
        print(json.dumps(order), file=self._pipe(self._process.stdin), flush=True)
        return int(self._pipe(self._process.stdout).readline())

    def wait(self) -> int:
        """The exit code of the command that was started last; waits for it."""
        return int(self._pipe(self._process.stdout).readline())

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    @staticmethod
    def _pipe(pipe: IO[str] | None) -> IO[str]:
        assert pipe is not None
        return pipe


@dataclass
class Rig:
    """What all rounds share: where commands are started, whose family it is, and how long an undisturbed run takes."""

    nursery: Nursery
    family: Family
    words: list[str]
    whole_s: float = 0.0


@contextmanager
def rig(folder: Path, *words: str) -> Iterator[Rig]:
    """A rig whose `loadgen run` has these words beside; one undisturbed run says how long it takes."""
    with family() as kin:
        nursery = Nursery(folder)
        try:
            nursery.start(["--version"], folder)
            nursery.wait()
            kin.known |= set(descendants(os.getpid()))
            whole = Rig(nursery, kin, list(words))
            Round(whole, folder, "nothing", random.Random(0)).play()
            yield whole
        finally:
            nursery.close()


class Round:
    """One sweep in a folder of its own."""

    def __init__(self, rig: Rig, folder: Path, kind: str, dice: random.Random) -> None:
        self._rig = rig
        self._folder = folder
        self._kind = kind
        self._dice = dice
        self._run = folder / "run"
        (folder / "sweep.yaml").write_text(SWEEP.format(port=_free_port()), encoding="utf-8")

    def play(self) -> str:
        """Plays it; what came of the first command, in words. Raises AssertionError."""
        started = time.monotonic()
        pid = self._start("run", "sweep.yaml", "--out", "run", *self._rig.words)
        is_disturbed = self._kind != "nothing" and self._disturb(pid)
        struck_s = time.monotonic() - started
        code = self._rig.nursery.wait()
        if self._kind == "nothing":
            self._rig.whole_s = time.monotonic() - started
        self._check_end(code, is_disturbed=is_disturbed)
        if not (self._run / "run.json").exists():  # nothing had begun
            assert self._command("run", "sweep.yaml", "--out", "run", *self._rig.words) == 0, self._said()
        run = check_whole(self._run)
        assert self._command("report", "run") == 0, self._said()
        before = finished_parts(run)
        assert self._command("run", "--resume", "run", *self._rig.words) == 0, self._said()
        run = check_whole(self._run)
        check_finished(run, PLANNED)
        after = finished_parts(run)
        assert {name: after[name] for name in before} == before, "a finished cell was run again"
        assert self._rig.family.left(_LEFT_S) == []
        finished = sum(name.startswith("cells/") for name in before)
        when = f"struck after {struck_s:.2f} s" if is_disturbed else "not struck"
        return f"{self._kind} {when}: exit code {code}, {finished} cells were finished"

    def _check_end(self, code: int, *, is_disturbed: bool) -> None:
        allowed = {0, 1}
        if self._kind in _SIGNALS:  # before the run has begun a signal acts as on any program
            allowed = {0, 130, -_SIGNALS[self._kind]}
        elif self._kind == "coordinator":
            allowed = {0, -signal.SIGKILL}
        assert code in (allowed if is_disturbed else {0}), (code, self._said())
        assert "Traceback" not in self._said(), self._said()
        # only where nobody could stop them, servers are left for the next session to find
        is_abrupt = code < 0
        assert self._rig.family.left(_LEFT_S, but_servers=is_abrupt) == []

    def _disturb(self, pid: int) -> bool:
        """Waits for the moment, and strikes; False when the run had ended by then."""
        target = TARGETS[self._kind]
        moment = time.monotonic() + self._dice.uniform(0, self._rig.whole_s)
        while time.monotonic() < moment:
            time.sleep(_LOOK_S)
        if target is None:
            return self._strike(pid)
        while not (found := _named(pid, target)):
            if not command(pid):
                return False
            time.sleep(_LOOK_S)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._dice.choice(found), signal.SIGKILL)
            return True
        return False

    def _strike(self, pid: int) -> bool:
        with contextlib.suppress(ProcessLookupError):
            match self._kind:
                case "Ctrl-C" | "hang-up":  # as a terminal does: all that runs in its foreground
                    os.killpg(pid, _SIGNALS[self._kind])
                case "SIGTERM":
                    os.kill(pid, signal.SIGTERM)
                case _:
                    os.kill(pid, signal.SIGKILL)
            return True
        return False

    def _command(self, *words: str) -> int:
        self._start(*words)
        return self._rig.nursery.wait()

    def _start(self, *words: str) -> int:
        return self._rig.nursery.start(list(words), self._folder)

    def _said(self) -> str:
        return (self._folder / "said.txt").read_text(encoding="utf-8", errors="replace")


def _named(pid: int, word: str) -> list[int]:
    return [one for one in descendants(pid) if word in command(one)]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
