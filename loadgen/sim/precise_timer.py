"""A timer of the event loop that is exact to some 0.1 ms; the loop's own has a grain of 1 ms.

On Linux it is a timerfd watched by the loop, elsewhere `loop.call_at`. With a simulated clock that runs twenty
times faster than real, one millisecond late would be a whole decode step late.
"""

import asyncio
import sys
from collections.abc import Callable

from loadgen.transport.timerfd import TimerFd

_NS = 1_000_000_000


class PreciseTimer:
    """Calls `callback` once at each time it is set to. Setting it again replaces what was set."""

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
        self._loop = loop
        self._callback = callback
        self._handle: asyncio.TimerHandle | None = None
        self._timer = TimerFd() if sys.platform == "linux" else None
        if self._timer is not None:
            loop.add_reader(self._timer.fd, self._expired)

    def set(self, at_s: float) -> None:
        """Due at `at_s` seconds of CLOCK_MONOTONIC (`time.monotonic`); at once if that has passed."""
        if self._timer is not None:
            self._timer.set(round(at_s * _NS))
            return
        self.cancel()
        self._handle = self._loop.call_later(max(0.0, at_s - self._loop.time()), self._callback)

    def cancel(self) -> None:
        """Nothing is due any more."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if self._timer is not None:
            self._timer.disarm()

    def close(self) -> None:
        """Frees the descriptor."""
        self.cancel()
        if self._timer is not None:
            self._loop.remove_reader(self._timer.fd)
            self._timer.close()
            self._timer = None

    def _expired(self) -> None:
        # not due where it was set anew between the wake-up and here
        if self._timer is not None and self._timer.clear():
            self._callback()
