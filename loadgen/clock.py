"""The only place that reads a clock. Everything measured is a difference of `monotonic_ns`; `unix_ns` only labels."""

import time

_OFFSET_TRIES = 5


# Nanoseconds of this host's monotonic clock (CLOCK_MONOTONIC); comparable between processes of one host. No function of
# ours around it: it is called for every read.
monotonic_ns = time.monotonic_ns


def unix_ns() -> int:
    """Nanoseconds since 1970 UTC, for people and for file names; never subtracted."""
    return time.time_ns()


def cpu_ns() -> int:
    """Nanoseconds of CPU that this process has used."""
    return time.process_time_ns()


def thread_cpu_ns() -> int:
    """Nanoseconds of CPU that this thread has used."""
    return time.thread_time_ns()


def realtime_offset_ns() -> int:
    """CLOCK_REALTIME minus CLOCK_MONOTONIC in ns, to some 0.1 us: the closest of a few readings of both."""
    best = None
    for _ in range(_OFFSET_TRIES):
        before_ns = time.monotonic_ns()
        realtime_ns = time.time_ns()
        after_ns = time.monotonic_ns()
        reading = (after_ns - before_ns, realtime_ns - (before_ns + after_ns) // 2)
        best = reading if best is None else min(best, reading)
    assert best is not None
    return best[1]
