"""A timer of the event loop that is exact to some 0.1 ms; the loop's own has a grain of 1 ms.

On Linux it is a timerfd watched by the loop, elsewhere `loop.call_at`. With a simulated clock that runs twenty
times faster than real, one millisecond late would be a whole decode step late.
"""

import asyncio
import ctypes
import os
import sys
from collections.abc import Callable

_CLOCK_MONOTONIC = 1
_TFD_NONBLOCK_CLOEXEC = os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0)
_TFD_TIMER_ABSTIME = 1


class _Timespec(ctypes.Structure):
    _fields_ = (("sec", ctypes.c_long), ("nsec", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class PreciseTimer:
    """Calls `callback` once at each time it is set to. Setting it again replaces what was set."""

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
        self._loop = loop
        self._callback = callback
        self._handle: asyncio.TimerHandle | None = None
        self._libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None
        self._fd = self._open()

    def set(self, at_s: float) -> None:
        """Due at `at_s` seconds of CLOCK_MONOTONIC (`time.monotonic`); at once if that has passed."""
        if self._libc is None:
            self.cancel()
            self._handle = self._loop.call_later(max(0.0, at_s - self._loop.time()), self._callback)
            return
        self._arm(max(at_s, 1e-9))

    def cancel(self) -> None:
        """Nothing is due any more."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if self._fd >= 0:
            self._arm(0.0)

    def close(self) -> None:
        """Frees the descriptor."""
        self.cancel()
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _open(self) -> int:
        if self._libc is None:
            return -1
        fd: int = self._libc.timerfd_create(_CLOCK_MONOTONIC, _TFD_NONBLOCK_CLOEXEC)
        if fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create failed")
        self._loop.add_reader(fd, self._expired)
        return fd

    def _arm(self, at_s: float) -> None:
        assert self._libc is not None
        seconds = int(at_s)
        value = _Timespec(seconds, int((at_s - seconds) * 1e9))
        spec = _Itimerspec(_Timespec(0, 0), value)
        if self._libc.timerfd_settime(self._fd, _TFD_TIMER_ABSTIME, ctypes.byref(spec), None) != 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime failed")

    def _expired(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return  # set anew between the wake-up and here
        self._callback()
