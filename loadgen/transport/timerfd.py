"""A timer as a file descriptor, exact to some 0.05 ms (Linux, timerfd_create(2)); epoll's own timeout has a grain of 1 ms."""

import ctypes
import os

_CLOCK_MONOTONIC = 1
_NONBLOCK_CLOEXEC = os.O_NONBLOCK | os.O_CLOEXEC
_ABSTIME = 1
_NS = 1_000_000_000


class _Timespec(ctypes.Structure):
    _fields_ = (("sec", ctypes.c_long), ("nsec", ctypes.c_long))


class _Itimerspec(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class TimerFd:
    """Readable from the time it is set to. Raises OSError where the system has no timerfd."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self.fd: int = self._libc.timerfd_create(_CLOCK_MONOTONIC, _NONBLOCK_CLOEXEC)
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create failed")

    def set(self, at_ns: int) -> None:
        """Due at `at_ns` of the monotonic clock, at once if that has passed; replaces what was set."""
        self._arm(max(at_ns, 1))

    def disarm(self) -> None:
        """Nothing is due any more."""
        self._arm(0)

    def clear(self) -> bool:
        """Takes note of its being due, so that the descriptor is no longer readable; whether it was."""
        try:
            os.read(self.fd, 8)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        """Frees the descriptor."""
        os.close(self.fd)

    def _arm(self, at_ns: int) -> None:
        seconds, nanoseconds = divmod(at_ns, _NS)
        spec = _Itimerspec(_Timespec(0, 0), _Timespec(seconds, nanoseconds))
        if self._libc.timerfd_settime(self.fd, _ABSTIME, ctypes.byref(spec), None) != 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime failed")
