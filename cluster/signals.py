"""What ends a run politely: Ctrl-C, SIGTERM, and the end of the terminal, which comes where a connection by ssh breaks."""

import asyncio
import os
import signal
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def cancel_on_signals(main: "asyncio.Task[Any]") -> None:
    """Lets each of them cancel the task, in the loop that runs now. Under nohup the end of the terminal does not."""
    loop = asyncio.get_running_loop()
    for number in _ours():
        if number == signal.SIGHUP:
            loop.add_signal_handler(number, _hang_up, main)
        else:
            loop.add_signal_handler(number, main.cancel)


@contextmanager
def held() -> Iterator[None]:
    """The first of them waits for the end of the block, where it is a KeyboardInterrupt; a second one is one at once.

    Raises KeyboardInterrupt.
    """
    came: list[int] = []

    def note(number: int, _: FrameType | None) -> None:
        came.append(number)
        if len(came) > 1:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, note) for number in _ours()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if came:
        raise KeyboardInterrupt


def _ours() -> list[signal.Signals]:
    return [number for number in _ENDING if signal.getsignal(number) is not signal.SIG_IGN]


def _hang_up(main: "asyncio.Task[Any]") -> None:
    """Words to a terminal that is gone would be errors."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for descriptor in (1, 2):
        with suppress(OSError):  # it may be closed
            if stat.S_ISCHR(os.fstat(descriptor).st_mode):  # isatty() is false once the terminal is gone
                os.dup2(nowhere, descriptor)
    os.close(nowhere)
    main.cancel()
