"""Where the workers of a cell wait for each other, so that they start, and open and close their window, at one moment.

A worker says that it has come to a point and goes on as it is; whoever conducts the cell waits for all of them and
names the time at which each passes it. A worker that is alone passes at once.
"""

from collections.abc import Callable
from concurrent.futures import Future
from enum import StrEnum

from loadgen.clock import monotonic_ns
from loadgen.transport.pick import Transport


class Point(StrEnum):
    """What a worker has come to, in order."""

    READY = "ready"  # connections are open
    WARM = "warm"  # its window may open
    COUNTED = "counted"  # its window may close


class Meeting:
    """One worker's side. `reach` belongs to the thread of the loop; `reached` and `pass_at` are for any other."""

    def __init__(self, *, is_alone: bool) -> None:
        self._is_alone = is_alone
        self._reached: dict[Point, Future[None]] = {point: Future() for point in Point}
        self._then: dict[Point, Callable[[int], None]] = {}

    def reach(self, point: Point, then: Callable[[int], None]) -> None:
        """Calls `then` with the time at which the point is passed. Reached again, it changes nothing."""
        if point in self._then:
            return
        self._then[point] = then
        if self._is_alone:
            then(monotonic_ns())
        else:
            self._reached[point].set_result(None)

    def reached(self, point: Point) -> "Future[None]":
        """Done when the worker is there."""
        return self._reached[point]

    def pass_at(self, point: Point, at_ns: int, transport: Transport) -> None:
        """The worker passes the point at `at_ns` of this host's monotonic clock."""
        transport.wake(lambda: transport.at(at_ns, lambda: self._then[point](at_ns)))
