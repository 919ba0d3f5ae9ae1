"""Reads on the monotonic clock: kernel stamps less the clocks' offset at their time, ours where there is none."""

from loadgen.transport.exchange import READ, ClockOffsets, Exchange

S = 1_000_000_000
OFFSET = 1_700_000_000 * S


def exchange_of(*reads: tuple[int | None, int, int]) -> Exchange:
    """(kernel stamp on the real-time clock or None, our stamp, bytes) each."""
    exchange = Exchange()
    for kernel, user, size in reads:
        seconds, rest = divmod(kernel, S) if kernel is not None else (0, 0)
        exchange.reads += READ.pack(seconds, rest, user, size)
        exchange.body += b"x" * size
    return exchange


def test_a_kernel_stamp_becomes_monotonic_and_a_read_without_one_has_ours():
    offsets = ClockOffsets()
    offsets.add(5 * S, OFFSET)
    reads = offsets.reads(exchange_of((OFFSET + 10 * S - 300, 10 * S, 4), (None, 11 * S, 6)))
    assert reads.arrival_ns.tolist() == [10 * S - 300, 11 * S]
    assert reads.user_ns.tolist() == [10 * S, 11 * S]
    assert reads.is_kernel.tolist() == [True, False]
    assert reads.end.tolist() == [4, 10]


def test_each_read_uses_the_offset_of_its_time():
    offsets = ClockOffsets()
    offsets.add(1 * S, OFFSET)
    offsets.add(2 * S, OFFSET + 500)  # within a sample's error: the clock has not moved
    offsets.add(5 * S, OFFSET + 40_000)
    before, after = (OFFSET + 3 * S - 700, 3 * S, 1), (OFFSET + 40_000 + 6 * S - 700, 6 * S, 1)
    assert offsets.reads(exchange_of(before, after)).arrival_ns.tolist() == [3 * S - 700, 6 * S - 700]
    offsets.add(7 * S, OFFSET)
    again = (OFFSET + 8 * S - 900, 8 * S, 1)
    assert offsets.reads(exchange_of(again)).arrival_ns.tolist() == [8 * S - 900]


def test_a_kernel_stamp_after_ours_is_bounded_by_ours():
    offsets = ClockOffsets()
    offsets.add(0, OFFSET)
    assert offsets.reads(exchange_of((OFFSET + 2 * S + 5000, 2 * S, 1))).arrival_ns.tolist() == [2 * S]


def test_without_offsets_all_stamps_are_ours_and_without_reads_there_are_none():
    reads = ClockOffsets().reads(exchange_of((OFFSET + S, 2 * S, 1)))
    assert (reads.arrival_ns.tolist(), reads.is_kernel.tolist()) == ([2 * S], [False])
    assert ClockOffsets().reads(Exchange()).end.tolist() == []
