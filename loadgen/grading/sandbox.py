"""Runs a program contained, in a fresh process each time, and judges it outside of that process.

A clean interpreter (empty environment, own session) starts as a guard; it forks the process that runs the program.
The grader sends one call at a time and compares each value that comes back; expected answers, their comparison and
the verdict never enter the subprocess, and an exit code is never the verdict. A program can say anything on its own
channel, but only the right values in the right order pass; anything else there is a protocol error.

Contained at every level:
- time (wall, enforced by the guard, and CPU), address space, file size, open files, size of an answer;
- the program's input is at its end and what it prints is dropped; it sees no secret of the environment;
- every process that it leaves is killed and reaped before `run_program` returns.
Contained by the system call filter (x86-64): new processes, exec, sockets, signals to and tracing of other
processes, limits of others.
Contained by namespaces: the host's files (read-only system directories and a memory disk are all there is; this
package is hidden), its processes, network and IPC.

Not contained: how fast the CPU is used within the limits (one core for each run, niceness 10); the rest of the
kernel's system calls; memory of one process counts, not of a group of them (with the filter there is only one);
without namespaces, the files of the grading user, read and write; without the filter for the host's root, the
number of processes. `ProgramResult.sandbox` says for each run which layers were active.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from loadgen.grading import wire
from loadgen.grading.guarded import ForgedError, Guarded, SilentError, parsed
from loadgen.grading.problems import Call

MIB = 1 << 20
# Room in a frame for what is around a value: names, a message, the size of one that was too large.
_FRAME_OVERHEAD_BYTES = 16 * 1024
# The kernel ends a process at its CPU limit by its own coarser count.
_CPU_COUNT_TOLERANCE_S = 0.1


@dataclass(frozen=True, slots=True)
class Limits:
    """`wall_s` is for the program as a whole, all calls; `memory_bytes` comes on top of the bare interpreter's;
    `output_bytes` is for one returned value, encoded; `processes` counts threads too.
    """

    wall_s: float = 10.0
    cpu_s: float = 5.0
    memory_bytes: int = 512 * MIB
    processes: int = 64
    output_bytes: int = MIB
    file_bytes: int = 16 * MIB
    open_files: int = 256


class Verdict(StrEnum):
    """What became of a program. UNGRADED: the harness could not tell; it never counts as a failure."""

    PASS = "pass"  # noqa: S105 - no password
    WRONG_ANSWER = "wrong_answer"
    RUNTIME_ERROR = "runtime_error"
    COMPILE_ERROR = "compile_error"
    MISSING_ENTRY_POINT = "missing_entry_point"
    MISSING_DEPENDENCY = "missing_dependency"
    TIMEOUT = "timeout"
    MEMORY_LIMIT = "memory_limit"
    OUTPUT_LIMIT = "output_limit"
    CRASHED = "crashed"
    PROTOCOL_ERROR = "protocol_error"
    UNGRADED = "ungraded"


@dataclass(frozen=True, slots=True)
class ProgramResult:
    """`tests_passed` is None when the harness could not run the program; `run_ms` is the program's wall time."""

    verdict: Verdict
    message: str | None
    tests_passed: int | None
    tests_total: int
    run_ms: float
    sandbox: str


def run_program(program: str, entry_point: str, calls: Sequence[Call], limits: Limits) -> ProgramResult:
    """Runs the program, makes all calls in order, and gives the first thing that went wrong as the verdict.

    Never raises for anything that a program does; when the harness cannot run it the verdict is `ungraded`.
    """
    try:
        with Guarded(limits.wall_s, limits.output_bytes + _FRAME_OVERHEAD_BYTES) as child:
            return _judge(child, program, entry_point, calls, limits)
    except OSError as error:
        return _ungraded(f"{type(error).__name__}: {error}", len(calls))


def _ungraded(message: str, tests_total: int) -> ProgramResult:
    return ProgramResult(Verdict.UNGRADED, message, None, tests_total, 0.0, "not started")


def _frame(line: bytes) -> dict[str, Any]:
    frame = parsed(line)
    if line.count(b"\n") != 1 or not isinstance(frame, dict):
        raise ForgedError("not one frame")
    if not (frame.keys() in ({"value"}, {"too_large"}) or _is_error(frame)):
        raise ForgedError("a frame of unknown form")
    return frame


_PROGRAM_ERRORS = (
    Verdict.RUNTIME_ERROR, Verdict.COMPILE_ERROR, Verdict.MISSING_DEPENDENCY, Verdict.MEMORY_LIMIT,
)  # fmt: skip


def _is_error(frame: dict[str, Any]) -> bool:
    return (
        frame.keys() == {"error", "message"}
        and frame["error"] in _PROGRAM_ERRORS
        and isinstance(frame["message"], str)
    )


@dataclass(slots=True)
class _Score:
    """What the calls gave so far; the first failure stays."""

    passed: int = 0
    verdict: Verdict = Verdict.PASS
    message: str | None = None

    def fail(self, verdict: Verdict, message: str) -> None:
        if self.verdict is Verdict.PASS:
            self.verdict, self.message = verdict, message


def _judge(
    child: Guarded, program: str, entry_point: str, calls: Sequence[Call], limits: Limits
) -> ProgramResult:
    score = _Score()
    silent = False
    try:
        child.send({"program": program, "entry_point": entry_point, "limits": asdict(limits)})
        if _loaded(_frame(child.receive()), entry_point, score):
            _make_calls(child, calls, limits, score)
        reports = child.finish()
    except SilentError:
        silent = True
        child.stop()
        reports = child.reports()
    except ForgedError as error:
        score.verdict, score.message = Verdict.PROTOCOL_ERROR, str(error)
        child.stop()
        reports = child.reports()
    return _result(child, score, reports, len(calls), limits, silent=silent)


def _loaded(frame: dict[str, Any], entry_point: str, score: _Score) -> bool:
    if "error" in frame:
        score.fail(Verdict(frame["error"]), frame["message"])
    elif frame.get("value") is not True:
        score.fail(Verdict.MISSING_ENTRY_POINT, f"no {entry_point} after running the program")
    return score.verdict is Verdict.PASS


def _make_calls(child: Guarded, calls: Sequence[Call], limits: Limits, score: _Score) -> None:
    for number, call in enumerate(calls, 1):
        child.send(wire.encode(call.args))
        frame = _frame(child.receive())
        where = f"call {number} of {len(calls)}"
        if "error" in frame:
            score.fail(Verdict(frame["error"]), f"{where}: {frame['message']}")
        elif "too_large" in frame:
            score.fail(Verdict.OUTPUT_LIMIT, f"{where}: returned more than {limits.output_bytes} bytes")
        elif _same(call.expected, frame["value"]):
            score.passed += 1
        else:
            score.fail(Verdict.WRONG_ANSWER, f"{where}: returned {_short(frame['value'])}")


def _same(expected: object, got: Any) -> bool:
    try:
        return wire.same(wire.encode(expected), got)
    except RecursionError:
        return False


def _short(tree: Any) -> str:
    """A hostile value for a message: plain ASCII of bounded length."""
    try:
        return ascii(tree)[:200]
    except (RecursionError, ValueError):
        return "a value too deep or too large to show"


def _result(
    child: Guarded,
    score: _Score,
    reports: list[dict[str, Any]],
    tests_total: int,
    limits: Limits,
    *,
    silent: bool,
) -> ProgramResult:
    facts = {key: value for report in reports for key, value in report.items()}
    if "started" not in facts:
        return _ungraded(child.setup_errors() or "the sandbox did not start", tests_total)
    if silent:
        score.fail(*_why_silent(facts, limits))
    message = None if score.message is None else ascii(score.message)[1:-1]
    run_ms = float(facts.get("run_ms", limits.wall_s * 1e3))
    return ProgramResult(score.verdict, message, score.passed, tests_total, run_ms, facts["started"])


def _why_silent(facts: dict[str, Any], limits: Limits) -> tuple[Verdict, str]:
    """From the guard's report of the end, which is trusted: why a frame that was due never came."""
    if "ended" not in facts:
        return Verdict.TIMEOUT, "the guard did not end in time"
    if facts["stopped"] and facts["run_ms"] >= limits.wall_s * 1e3:
        return Verdict.TIMEOUT, f"more than {limits.wall_s:g} s"
    if facts["stopped"]:
        return Verdict.PROTOCOL_ERROR, "the program closed its channel"
    if facts["ended"] < 0 and facts["cpu_s"] >= limits.cpu_s - _CPU_COUNT_TOLERANCE_S:
        return Verdict.TIMEOUT, f"more than {limits.cpu_s:g} s of CPU time"
    return Verdict.CRASHED, f"ended (code {facts['ended']}) before it had answered all calls"
