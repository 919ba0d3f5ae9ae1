"""When the bytes of an exchange came: its reads, the client's own lag, and the read that completed each event."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from loadgen.records import StampSource
from loadgen.transport.exchange import ClockOffsets, Exchange, Integers, Reads

_NO_OFFSETS = ClockOffsets()


@dataclass(frozen=True, slots=True)
class EventArrivals:
    """For each event, in order: when the read that completed it came, and whether that read went on behind it.

    The stamp of a read is its last byte's: where `is_shared`, the event's is an upper bound.
    """

    at_ns: Integers
    is_shared: npt.NDArray[np.bool_]


def reads_of(exchange: Exchange, offsets: ClockOffsets | None) -> Reads:
    """The reads of `exchange` on the monotonic clock; without `offsets`, all by our own stamps."""
    return (offsets or _NO_OFFSETS).reads(exchange)


def event_arrivals(event_ends: list[int], payload_ends: Integers, reads: Reads) -> EventArrivals:
    """Arrivals of the events that end at these payload offsets. `payload_ends`: payload bytes there after each read."""
    ends = np.array(event_ends, np.int64)
    read = np.searchsorted(payload_ends, ends)
    # A byte came no later than those behind it: a later kernel stamp bounds an earlier one of ours.
    at_ns = np.minimum.accumulate(reads.arrival_ns[::-1])[::-1]
    return EventArrivals(at_ns[read], payload_ends[read] > ends)


def stamp_source(reads: Reads) -> StampSource | None:
    """Whose stamps the arrivals are; None without a read."""
    if not reads.is_kernel.size:
        return None
    if reads.is_kernel.all():
        return StampSource.KERNEL
    return StampSource.MIXED if reads.is_kernel.any() else StampSource.USER


def read_lags_ns(exchange: Exchange, offsets: ClockOffsets | None) -> Integers:
    """Our stamp minus the kernel's, for each read that has a kernel stamp: the client's own lag."""
    return lags_ns(reads_of(exchange, offsets))


def lags_ns(reads: Reads) -> Integers:
    """As `read_lags_ns`, of reads that are already on the monotonic clock."""
    return (reads.user_ns - reads.arrival_ns)[reads.is_kernel]
