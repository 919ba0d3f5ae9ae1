"""When bytes came: kernel stamps first, the client's own lag, reads that brought more than one event."""

import numpy as np
import pytest

from loadgen.decode.arrivals import event_arrivals, read_lags_ns, reads_of, stamp_source
from loadgen.records import StampSource
from loadgen.transport.exchange import READ, ClockOffsets, Exchange

S = 1_000_000_000


def exchange_of(*reads: tuple[int | None, int, int]) -> Exchange:
    """Reads as (kernel's stamp on our clock or None, our stamp, bytes); the real-time clock is 100 s ahead."""
    exchange = Exchange()
    for kernel_ns, user_ns, size in reads:
        stamp = (0, 0) if kernel_ns is None else divmod(kernel_ns + 100 * S, S)
        exchange.reads += READ.pack(*stamp, user_ns, size)
        exchange.body += b"x" * size
    return exchange


@pytest.fixture
def offsets() -> ClockOffsets:
    clocks = ClockOffsets()
    clocks.add(0, 100 * S)
    return clocks


def test_an_event_has_the_stamp_of_the_read_that_completed_it(offsets: ClockOffsets) -> None:
    exchange = exchange_of((10, 15, 4), (20, 29, 6), (30, 31, 10))
    reads = reads_of(exchange, offsets)
    # events end at the last byte of a read, one byte later, inside the last read, and at its end
    arrivals = event_arrivals([4, 5, 10, 15, 20], reads.end, reads)
    assert arrivals.at_ns.tolist() == [10, 20, 20, 30, 30]
    assert arrivals.is_shared.tolist() == [False, True, False, True, False]


def test_the_payload_and_not_the_body_says_which_read_it_was(offsets: ClockOffsets) -> None:
    reads = reads_of(exchange_of((10, 15, 40), (20, 29, 60)), offsets)
    arrivals = event_arrivals([3, 5], np.array([3, 5]), reads)
    assert arrivals.at_ns.tolist() == [10, 20]


def test_no_byte_came_later_than_those_behind_it(offsets: ClockOffsets) -> None:
    # the first read has no kernel stamp, and was read late
    reads = reads_of(exchange_of((None, 90, 4), (50, 91, 4)), offsets)
    assert event_arrivals([4, 8], reads.end, reads).at_ns.tolist() == [50, 50]


def test_the_lag_is_ours_minus_the_kernels_where_it_stamped(offsets: ClockOffsets) -> None:
    exchange = exchange_of((10, 15, 4), (None, 29, 6), (30, 5_030, 10))
    assert read_lags_ns(exchange, offsets).tolist() == [5, 5_000]
    assert read_lags_ns(exchange, None).tolist() == []
    assert read_lags_ns(Exchange(), offsets).tolist() == []


def test_the_source_of_the_stamps_is_stated(offsets: ClockOffsets) -> None:
    sources = [
        stamp_source(reads_of(exchange_of(*reads), offsets))
        for reads in ([(1, 2, 3)], [(None, 2, 3)], [(1, 2, 3), (None, 4, 5)], [])
    ]
    assert sources == [StampSource.KERNEL, StampSource.USER, StampSource.MIXED, None]
