"""The only place that reads a clock. Everything measured is a difference of `monotonic_ns`; `unix_ns` only labels."""

import time


def monotonic_ns() -> int:
    """Nanoseconds of this host's monotonic clock (CLOCK_MONOTONIC); comparable between processes of one host."""
    return time.monotonic_ns()


def unix_ns() -> int:
    """Nanoseconds since 1970 UTC, for people and for file names; never subtracted."""
    return time.time_ns()


def cpu_ns() -> int:
    """Nanoseconds of CPU that this process has used."""
    return time.process_time_ns()
