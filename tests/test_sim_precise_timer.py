"""The exact timer: order and replacement, never early. How exact is for a benchmark to say."""

import asyncio
import time

import uvloop

from loadgen.sim.precise_timer import PreciseTimer


def fired(*sets: tuple[float, float]) -> list[float]:
    """Sets the timer to (at, +s) at moments, then waits; how late after the last setting each call came."""

    async def run() -> list[float]:
        late = []
        due = 0.0
        timer = PreciseTimer(asyncio.get_running_loop(), lambda: late.append(time.monotonic() - due))
        for wait_s, in_s in sets:
            await asyncio.sleep(wait_s)
            due = time.monotonic() + in_s
            timer.set(due)
        await asyncio.sleep(0.3)
        timer.close()
        return late

    return uvloop.run(run())


def test_it_fires_once_and_not_early() -> None:
    late = fired((0, 0.01))
    assert len(late) == 1
    assert late[0] >= 0


def test_a_moment_that_has_passed_fires_at_once() -> None:
    assert len(fired((0, -5.0))) == 1


def test_setting_it_again_replaces_what_was_set() -> None:
    late = fired((0, 0.1), (0, 0.02))
    assert len(late) == 1
    assert late[0] >= 0
    assert fired((0, 0.01), (0, 100.0)) == []


def test_cancel() -> None:
    async def run() -> list[int]:
        calls: list[int] = []
        timer = PreciseTimer(asyncio.get_running_loop(), lambda: calls.append(1))
        timer.set(time.monotonic() + 0.01)
        timer.cancel()
        await asyncio.sleep(0.05)
        timer.close()
        timer.close()
        return calls

    assert uvloop.run(run()) == []
