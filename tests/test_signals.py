"""Signals that end a run: they cancel it, wait where waiting is needed, and a terminal that is gone is written to no more."""

import asyncio
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cluster import signals

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.mark.parametrize("number", ENDING)
def test_each_cancels_the_task(number: signal.Signals) -> None:
    async def work() -> None:
        main = asyncio.current_task()
        assert main is not None
        signals.cancel_on_signals(main)
        os.kill(os.getpid(), number)
        await asyncio.sleep(30)

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(work())


def test_under_nohup_the_end_of_the_terminal_ends_nothing() -> None:
    async def work() -> str:
        main = asyncio.current_task()
        assert main is not None
        signals.cancel_on_signals(main)
        os.kill(os.getpid(), signal.SIGHUP)
        await asyncio.sleep(0.05)
        return "done"

    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert asyncio.run(work()) == "done"
    finally:
        signal.signal(signal.SIGHUP, before)


def work_with(*numbers: signal.Signals) -> list[str]:
    """What is done in a held block in which these signals come; it is a KeyboardInterrupt in any case."""
    done: list[str] = []

    def work() -> None:
        with signals.held():
            for count, number in enumerate(numbers, 1):
                os.kill(os.getpid(), number)
                done.append(f"after {count}")

    with pytest.raises(KeyboardInterrupt):
        work()
    return done


@pytest.mark.parametrize("number", ENDING)
def test_the_first_waits_for_the_end_of_the_block(number: signal.Signals) -> None:
    before = signal.getsignal(number)
    assert work_with(number) == ["after 1"]
    assert signal.getsignal(number) is before


def test_the_second_does_not_wait() -> None:
    assert work_with(signal.SIGINT, signal.SIGTERM, signal.SIGINT) == ["after 1"]


def test_an_error_in_the_block_is_itself() -> None:
    with pytest.raises(ValueError, match="mine"), signals.held():
        raise ValueError("mine")


WRITES_ON = """
import asyncio, sys
from cluster import signals

async def work():
    signals.cancel_on_signals(asyncio.current_task())
    print("ready", flush=True)
    await asyncio.sleep(30)

try:
    asyncio.run(work())
except asyncio.CancelledError:
    for stream in (sys.stdout, sys.stderr):
        stream.write("words to nobody")
        stream.flush()
    open("end", "w").write("reached")
"""


def test_a_terminal_that_is_gone_is_no_error(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", WRITES_ON]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    os.close(theirs)
    said = b""
    while b"\n" not in said:
        said += os.read(ours, 100)
    os.close(ours)
    process.send_signal(signal.SIGHUP)
    assert process.wait(30) == 0
    assert (tmp_path / "end").read_text() == "reached"
