"""Warm-up, measurement window and drain of a cell, all bounded in time. No clock and no transport: asked with the time.

WARMUP   until as many requests as asked for have ended, the load has fully begun and the output rate has settled
MEASURE  until, from there, as many have ended as asked for and the least time is over
DRAIN    nothing new is sent; what is in flight may end, and is cut at last
"""

from dataclasses import dataclass, field
from enum import Enum, auto

from loadgen.job import CellJob
from loadgen.load.windows import TICK_S, is_stationary, measure_requests, warmup_requests
from loadgen.schedule import Shard
from loadgen.spec import Load

_NS = 1_000_000_000


class Stage(Enum):
    WARMUP = auto()
    MEASURE = auto()
    DRAIN = auto()


@dataclass(slots=True)
class Phases:
    """The stage of one worker's part of a load cell. Times are monotonic ns; durations of `load` in the server's time."""

    load: Load
    shard: Shard
    time_scale: float
    start_ns: int
    settled_ns: int
    stage: Stage = Stage.WARMUP
    ended: int = 0
    window_start_ns: int = 0
    window_end_ns: int = 0
    is_stationary: bool = True
    is_complete: bool = False
    _counts: list[int] = field(default_factory=list)
    _seen: int = 0
    _is_settled: bool = False
    _ended_before: int = 0
    _is_warm_in_time: bool = True

    @property
    def tick_ns(self) -> int:
        """Real time between two `tick`s."""
        return self._real_ns(TICK_S)

    @property
    def warmup_deadline_ns(self) -> int:
        return self.start_ns + self._real_ns(self.load.warmup_max_s)

    @property
    def least_end_ns(self) -> int:
        """When the window may close at the earliest."""
        return self.window_start_ns + self._real_ns(min(self.load.measure_min_s, self.load.measure_max_s))

    @property
    def deadline_ns(self) -> int:
        """When the window closes at the latest."""
        return self.window_start_ns + self._real_ns(self.load.measure_max_s)

    @property
    def drain_deadline_ns(self) -> int:
        return self.window_end_ns + self._real_ns(self.load.drain_max_s)

    def tick(self, output: int) -> None:
        """Takes in how much output there has been so far, once a tick."""
        self._counts.append(output - self._seen)
        self._seen = output
        if self.stage is Stage.WARMUP and not self._is_settled:
            self._is_settled = is_stationary(self._counts)

    def is_over(self, now_ns: int, *, is_exhausted: bool) -> bool:
        """Whether it is time for the next stage."""
        if self.stage is Stage.WARMUP:
            return self._may_open(now_ns, is_exhausted=is_exhausted)
        return self.stage is Stage.MEASURE and self._may_close(now_ns, is_exhausted=is_exhausted)

    def open_window(self, at_ns: int) -> None:
        """The warm-up ends at `at_ns`."""
        self.stage, self.window_start_ns, self._ended_before = Stage.MEASURE, at_ns, self.ended

    def close_window(self, at_ns: int) -> None:
        """The measurement ends at `at_ns`."""
        self.stage, self.window_end_ns = Stage.DRAIN, at_ns

    def _may_open(self, now_ns: int, *, is_exhausted: bool) -> bool:
        is_settled = self._is_settled or not self.load.warmup_until_stationary
        has_begun = now_ns >= self.start_ns + self.settled_ns
        is_warm = self.ended >= warmup_requests(self.load, self.shard)
        if has_begun and is_warm and is_settled:
            return True
        if now_ns < self.warmup_deadline_ns and not is_exhausted:
            return False
        self.is_stationary = is_settled
        self._is_warm_in_time = is_warm
        return True

    def _may_close(self, now_ns: int, *, is_exhausted: bool) -> bool:
        is_counted = self.ended - self._ended_before >= measure_requests(self.load, self.shard)
        if not ((is_counted and now_ns >= self.least_end_ns) or now_ns >= self.deadline_ns or is_exhausted):
            return False
        self.is_complete = is_counted and self._is_warm_in_time
        return True

    def _real_ns(self, server_s: float) -> int:
        return round(server_s / self.time_scale * _NS)


def make_phases(job: CellJob, start_ns: int, settled_ns: int) -> Phases:
    """The phases of a job that starts at `start_ns`."""
    return Phases(job.load, job.shard, job.time_scale, start_ns, settled_ns)
