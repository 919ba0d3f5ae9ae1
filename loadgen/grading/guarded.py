"""The subprocess that runs one program, and the three ways to talk to it: lines in, frames out, the guard's reports.

Knows nothing of what the lines mean; the deadline here only backs up the guard's own.
"""

import json
import math
import os
import secrets
import select
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO, Any, Self

from loadgen.clock import monotonic_ns
from loadgen.grading import wire

# What the guard may take on top of the program's time to start and to kill what is left.
_GRACE_S = 5.0
_PACKAGE = str(Path(__file__).resolve().parents[1])
# The package's own __init__ wants an installed distribution, which a bare interpreter does not see.
_BOOT = (
    "import sys, types; package = types.ModuleType('loadgen'); package.__path__ = [sys.argv[2]]; "
    "sys.modules['loadgen'] = package; from loadgen.grading._child import main; main()"
)
_MAX_REPORT_BYTES = 64 * 1024


class SilentError(Exception):
    """The program's channel ended, or its time did, before a frame came."""


class ForgedError(Exception):
    """What came on the program's channel is no frame, or came unasked."""


class Guarded:
    """The guard's process and the three ways to talk to it. Leaving the block ends and reaps all of it."""

    def __init__(self, wall_s: float, max_frame_bytes: int) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._nonce = secrets.token_hex(16)
        self._cleanup = ExitStack()
        self._received = bytearray()
        self._said = bytearray()
        self._deadline_ns = monotonic_ns() + int((wall_s + _GRACE_S) * 1e9)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            directory = stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
            self._errors: IO[bytes] = stack.enter_context(tempfile.TemporaryFile())
            self._control, theirs = socket.socketpair()
            stack.enter_context(self._control)
            with theirs:
                self._process = self._start(directory, theirs.fileno())
            stack.callback(self._end)
            with suppress(BrokenPipeError):  # a guard that ended already has said why in its errors
                self._control.sendall(self._nonce.encode())
            self._cleanup = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()

    def _start(self, directory: str, control_fd: int) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-B", "-c", _BOOT, directory, _PACKAGE, str(control_fd)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            bufsize=0,
            cwd=directory,
            env={},
            start_new_session=True,
            pass_fds=(control_fd,),
        )
        assert process.stdin is not None
        assert process.stdout is not None
        os.set_blocking(process.stdin.fileno(), False)
        return process

    def send(self, tree: Any) -> None:
        """One line to the program's process; SilentError when it does not take it in time."""
        assert self._process.stdin is not None
        view = memoryview(wire.dumps(tree))
        while view:
            self._wait(self._process.stdin, select.POLLOUT)
            try:
                view = view[self._process.stdin.write(view) or 0 :]
            except BrokenPipeError:
                raise SilentError from None

    def receive(self) -> bytes:
        """The next frame's line. One frame answers one line sent: bytes beyond it were not asked for."""
        assert self._process.stdout is not None
        while not self._received.endswith(b"\n"):
            self._wait(self._process.stdout, select.POLLIN)
            part = os.read(self._process.stdout.fileno(), 1 << 16)
            if not part and self._received:
                raise ForgedError("the last frame is not complete")
            if not part:
                raise SilentError
            self._received += part
            if len(self._received) > self._max_frame_bytes:
                raise ForgedError("a frame beyond the size that was agreed")
        line, self._received = bytes(self._received), bytearray()
        return line

    def finish(self) -> list[dict[str, Any]]:
        """No more calls: waits for the end; the guard's reports. ForgedError when the program's process said more."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        reports = self.reports()
        self._wait(self._process.stdout, select.POLLIN)
        if self._received or os.read(self._process.stdout.fileno(), 1):
            raise ForgedError("more frames than calls")
        return reports

    def reports(self) -> list[dict[str, Any]]:
        """All that the guard said until it ended, however often it is asked for. Words without the nonce are dropped."""
        try:
            while len(self._said) < _MAX_REPORT_BYTES:
                self._wait(self._control, select.POLLIN)
                part = self._control.recv(4096)
                if not part:
                    break
                self._said += part
        except SilentError:
            self._process.kill()
        except ConnectionResetError:
            pass  # the guard ended before it had read all: what it said before counts
        lines = [parsed(line) for line in bytes(self._said).split(b"\n") if line]
        return [line for line in lines if isinstance(line, dict) and line.get("nonce") == self._nonce]

    def stop(self) -> None:
        """Tells the guard to end the program now."""
        self._control.shutdown(socket.SHUT_WR)

    def setup_errors(self) -> str:
        self._errors.seek(0)
        return self._errors.read(_MAX_REPORT_BYTES).decode(errors="replace").strip()[-500:]

    def _wait(self, stream: IO[bytes] | socket.socket, event: int) -> None:
        poller = select.poll()
        poller.register(stream, event)
        left_ms = (self._deadline_ns - monotonic_ns()) / 1e6
        if left_ms <= 0 or not poller.poll(math.ceil(left_ms)):
            raise SilentError

    def _end(self) -> None:
        """The guard ends when its control socket does, killing what is below it; it is killed if it does not."""
        self._control.close()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()
        try:
            self._process.wait(timeout=_GRACE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def parsed(line: bytes) -> Any:
    """JSON of the subprocess, or None for what is none."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
