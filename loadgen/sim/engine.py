"""Runs the scheduler against the real clock: each pass ends when it is due, and its tokens go out at that moment.

The next pass starts when the last was due, never when it was handled, so being late does not add up: the simulator
catches up without sleeping, and counts how late it was.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from loadgen import clock
from loadgen.sim.lag import Lag
from loadgen.sim.precise_timer import PreciseTimer
from loadgen.sim.scheduler import Limits, Result, Scheduler, Sequence
from loadgen.sim.settings import Settings
from loadgen.sim.stats import Stats


class Owner(Protocol):
    """Who waits for a sequence's tokens."""

    streaming: bool

    def progressed(self) -> bool:
        """New tokens, or the end. Returns whether a chunk was sent."""


class Engine:
    """The simulated model server behind the endpoints. `log` takes one line of text."""

    def __init__(self, settings: Settings, log: Callable[[str], None]) -> None:
        limits = Limits(
            max_running=settings.args["max_running_requests"],
            kv_tokens=settings.kv_tokens,
            max_queued=settings.args["max_queued_requests"],
            radix_cache=not settings.args["disable_radix_cache"],
        )
        self.scheduler = Scheduler(settings.profile, settings.speculation, limits)
        self.proposed = settings.speculation.drafts if settings.speculation else 0
        self.stats = Stats(settings.args["decode_log_interval"], self.proposed)
        self.lag = Lag()
        self.draining = False
        self._log = log
        self._scale = settings.time_scale
        self._origin_ns = clock.monotonic_ns()
        self._unix_origin_s = clock.unix_ns() / 1e9
        self._timer = PreciseTimer(asyncio.get_running_loop(), self._tick)
        self._due_s: float | None = None
        self._free_s = 0.0  # when the last pass ended; a request stamped earlier waited for it
        self._live: dict[str, Sequence] = {}
        self._idle = asyncio.Event()
        self._idle.set()

    def now_s(self) -> float:
        """Simulated seconds since this engine was made."""
        return (clock.monotonic_ns() - self._origin_ns) / 1e9 * self._scale

    def unix_s(self, simulated_s: float) -> float:
        """A simulated moment as a Unix time, on the server's own fast clock."""
        return self._unix_origin_s + simulated_s

    def late_ms(self, due_s: float) -> float:
        """Real milliseconds since `due_s`."""
        return (self.now_s() - due_s) / self._scale * 1e3

    def is_live(self, rid: str) -> bool:
        """Whether a request of that id is waiting or running."""
        return rid in self._live

    def submit(self, seq: Sequence) -> bool:
        """Takes a request in; False when the queue is full. `seq.owner` is told of its tokens."""
        if not self.scheduler.submit(seq):
            return False
        self._live[seq.rid] = seq
        self._idle.clear()
        if self._due_s is None:
            self._due_s = self.scheduler.begin(max(seq.arrival_s, self._free_s))
            self._arm()
        return True

    def abort(self, seq: Sequence) -> None:
        """Ends a request now; its owner is told. Nothing happens if it has ended already."""
        if seq.end is None:
            self.scheduler.abort(seq, self.now_s())
            self._end(seq)
            seq.owner.progressed()

    def abort_rid(self, rid: str) -> None:
        """Ends the request of that id, if it lives."""
        seq = self._live.get(rid)
        if seq is not None:
            self.abort(seq)

    def abort_all(self) -> None:
        """Ends all requests."""
        for seq in list(self._live.values()):
            self.abort(seq)

    def flush(self) -> bool:
        """Empties the prefix cache and the windows of statistics; False while requests are live."""
        if not self.scheduler.flush():
            return False
        self.stats.flushed()
        self.lag.reset()
        return True

    async def wait_idle(self) -> None:
        """Until no request is live."""
        await self._idle.wait()

    def close(self) -> None:
        """Stops the clock."""
        self._timer.close()

    def _tick(self) -> None:
        now_s = self.now_s()
        while self._due_s is not None and self._due_s <= now_s:
            due_s = self._free_s = self._due_s
            result = self.scheduler.complete()
            self._due_s = self.scheduler.begin(due_s)
            self._deliver(result, due_s)
        self._arm()

    def _deliver(self, result: Result, due_s: float) -> None:
        for seq in result.finished:
            self._end(seq)
        sent = 0
        for seq in result.progressed:
            sent += seq.owner.progressed()
        self.lag.record(self.late_ms(due_s), sent)
        line = self.stats.passed(result, self.scheduler, due_s)
        if line is not None:
            self._log(line)

    def _end(self, seq: Sequence) -> None:
        del self._live[seq.rid]
        self.stats.ended(seq, streaming=seq.owner.streaming)
        if not self._live:
            self.stats.look(self.scheduler)
            self._idle.set()

    def _arm(self) -> None:
        if self._due_s is None:
            self._timer.cancel()
        else:
            self._timer.set((self._origin_ns + self._due_s / self._scale * 1e9) / 1e9)
