"""What runs in the subprocess: a guard that never runs the program, and forked from it the process that does.

Descriptors at start: 0 brings the job (one line) and then one line for each call, 1 takes one frame for each of them,
2 takes what goes wrong before the program starts, and the control socket, named on the command line, joins the guard
to the grader. The program's process closes the control socket before it runs any of the program's code, and the
nonce that marks the guard's words is read from it after the fork, so it is never in the program's memory.
"""

import json
import os
import select
import signal
import sys
import time
import types
from collections.abc import Callable
from typing import Any, NoReturn

from loadgen.grading import _jail, wire

_MODULE = "solution"
_MAX_MESSAGE_CHARS = 500
_MAX_NONCE_BYTES = 64
_LAST_BREATH_MS = 300


def main() -> None:
    """Guard's life: make the jail, fork, wait, kill what is left, report."""
    root, package, control_fd = sys.argv[1], sys.argv[2], int(sys.argv[3])
    for name in [name for name in sys.modules if name.startswith("loadgen")]:
        del sys.modules[name]  # so that no program imports this package
    job = json.loads(_read_line(0))
    job["limits"]["own_bytes"] = _jail.own_bytes()
    refused = _enter(root, package, job["limits"]["file_bytes"])
    _jail.guard_self()  # not before: it closes /proc/self to a normal user, and the maps are there
    gate_read, gate_write = os.pipe()
    ready_read, ready_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        for fd in (control_fd, gate_write, ready_read):
            os.close(fd)
        _program_process(job, gate_read, ready_write, in_namespaces=refused is None)
    for fd in (0, 1, gate_read, ready_write):
        os.close(fd)
    _guard(control_fd, pid, gate_write, ready_read, job["limits"], refused)


def _enter(root: str, hidden: str, file_bytes: int) -> str | None:
    """Why there are no namespaces; None when there are."""
    try:
        _jail.enter_namespaces(root, hidden, 2 * file_bytes)
    except OSError as error:
        return error.strerror
    return None


def _guard(
    control: int, pid: int, gate: int, ready: int, limits: dict[str, Any], refused: str | None
) -> None:
    nonce = os.read(control, _MAX_NONCE_BYTES).decode()
    locked = _read_line(ready)
    if not locked:
        _, status = os.waitpid(pid, 0)
        raise RuntimeError(f"the program's process was not set up: status {status}")
    _tell(control, nonce, {"started": _layers(refused, json.loads(locked)["no_filter"])})
    began = time.monotonic()
    os.write(gate, b"g")
    os.close(gate)
    ended = _wait(control, pid, limits["wall_s"])
    if not ended:
        os.kill(pid, signal.SIGKILL)
    _, status, usage = os.wait4(pid, 0)
    if refused is not None:
        _jail.kill_descendants()
    report = {
        "ended": os.waitstatus_to_exitcode(status),
        "stopped": not ended,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "run_ms": (time.monotonic() - began) * 1e3,
    }
    _tell(control, nonce, report)


def _wait(control: int, pid: int, wall_s: float) -> bool:
    """Whether the program's process ended by itself before its time and before the grader hung up or said to stop."""
    process = os.pidfd_open(pid)
    poller = select.poll()
    poller.register(process, select.POLLIN)
    poller.register(control, select.POLLIN)
    ready = [fd for fd, _ in poller.poll(wall_s * 1e3)]
    if ready == [control]:  # the grader saw the channel end; so it does just before a process is gone
        poller.unregister(control)
        ready = [fd for fd, _ in poller.poll(_LAST_BREATH_MS)]
    os.close(process)
    return process in ready


def _layers(refused: str | None, no_filter: str | None) -> str:
    files = "namespaces (user, pid, net, ipc, uts, mount: read-only system, memory disk)"
    parts = [
        files if refused is None else f"no namespaces ({refused}): the user's files can be reached",
        "system call filter (no process, exec, socket)" if no_filter is None else f"no filter ({no_filter})",
        "resource limits",
    ]
    return "; ".join(parts)


def _tell(control: int, nonce: str, report: dict[str, Any]) -> None:
    _write(control, wire.dumps({"nonce": nonce, **report}))


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _read_line(fd: int) -> bytes:
    """Up to a newline. The peer sends nothing after it before it has an answer, so reading in blocks takes no more."""
    parts: list[bytes] = []
    while not parts or not parts[-1].endswith(b"\n"):
        part = os.read(fd, 1 << 16)
        if not part:
            break
        parts.append(part)
    return b"".join(parts)


def _program_process(job: dict[str, Any], gate: int, ready: int, *, in_namespaces: bool) -> NoReturn:
    no_filter = _jail.lock(job["limits"], in_namespaces=in_namespaces)
    os.write(ready, wire.dumps({"no_filter": no_filter}))
    os.close(ready)
    calls, frames = _own_channels()
    os.read(gate, 1)
    os.close(gate)
    code = 1
    try:
        _Runner(calls, frames, job["limits"]["output_bytes"]).run(job["program"], job["entry_point"])
        code = 0
    finally:
        os._exit(code)  # without the program's exit handlers


def _own_channels() -> tuple[int, int]:
    """The two channels moved away from 0 and 1, which become an ended input and a sink."""
    calls, frames = os.dup(0), os.dup(1)
    sink = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(sink, fd)
    os.close(sink)
    return calls, frames


class _Runner:
    """Loads the program and answers calls. What the program patches can only spoil its own frames."""

    def __init__(self, calls: int, frames: int, output_bytes: int) -> None:
        self._calls = calls
        self._frames = frames
        self._output_bytes = output_bytes

    def run(self, program: str, entry_point: str) -> None:
        function: Callable[..., object] | None = None

        def load() -> object:
            nonlocal function
            function = _load(program, entry_point)
            return function is not None

        self._send(_attempt(load))
        while function is not None and (line := _read_line(self._calls)):
            args = wire.decode(json.loads(line))
            found = function
            self._send(_attempt(lambda found=found, args=args: found(*args)))  # type: ignore[misc]

    def _send(self, frame: dict[str, Any]) -> None:
        data = wire.dumps(frame)
        if len(data) > self._output_bytes:
            data = wire.dumps({"too_large": len(data)})
        _write(self._frames, data)


def _attempt(action: Callable[[], object]) -> dict[str, Any]:
    """The frame of one action. Whatever the program raises, SystemExit and KeyboardInterrupt included, is its error."""
    try:
        return {"value": wire.encode(action())}
    except wire.TooLargeError:
        return {"too_large": None}
    except BaseException as error:  # noqa: BLE001 - as said
        return {"error": _kind(error), "message": _describe(error)}


def _kind(error: BaseException) -> str:
    for kind, types_ in (
        ("memory_limit", MemoryError),
        ("compile_error", _CompileError),
        ("missing_dependency", ModuleNotFoundError),
    ):
        if isinstance(error, types_):
            return kind
    return "runtime_error"


class _CompileError(Exception):
    pass


def _describe(error: BaseException) -> str:
    """Runs the program's own `__str__`, so it must stay inside the limits."""
    text = str(error)
    if isinstance(error, _CompileError):
        return text[:_MAX_MESSAGE_CHARS]
    return f"{type(error).__name__}: {text}"[:_MAX_MESSAGE_CHARS]


def _load(program: str, entry_point: str) -> Callable[..., object] | None:
    """Runs the program as the module `solution`; its entry point, or None when it has none."""
    try:
        code = compile(program, "solution.py", "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, OverflowError) as error:
        raise _CompileError(f"{type(error).__name__}: {error}") from None
    module = types.ModuleType(_MODULE)
    sys.modules[_MODULE] = module
    exec(code, module.__dict__)  # noqa: S102 - the purpose
    name, _, method = entry_point.partition(".")
    found = module.__dict__.get(name)
    if method and isinstance(found, type):
        found = getattr(found(), method, None)
    return found if callable(found) else None
