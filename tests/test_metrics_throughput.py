"""Throughput, its peak, requests and requests in flight, against values worked by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from metrics_fixtures import MS, SENT, S, made, summary, table, window

from loadgen.metrics import Window
from loadgen.metrics.throughput import tokens_in_parts
from loadgen.records import Outcome, Phase, TokenSource


def test_throughput_counts_tokens_by_their_arrival_whatever_their_request() -> None:
    early = made(-5, {-1: 10, 1: 30}, phase=Phase.WARMUP)
    inside = made(1, {2: 5, 3: 10})
    late = made(3, {4: 8, 6: 100}, phase=Phase.DRAIN)
    assert summary([early, inside, late], window(0, 5))["output_tps"] == pytest.approx((20 + 10 + 8) / 5)


def test_chunks_on_the_edges_of_the_window_count() -> None:
    assert summary([made(0, {0: 1, 1: 3, 2: 7})], window(0, 1))["output_tps"] == pytest.approx(3)


def test_throughput_counts_tokens_not_chunks() -> None:
    records = [made(0, {0.1 * n: 4 * n for n in range(1, 11)}) for _ in range(8)]
    assert summary(records, window(0, 1))["output_tps"] == pytest.approx(8 * 40)


def test_a_total_without_running_count_is_spread_over_its_chunks() -> None:
    record = made(
        0, {1: 0, 2: 0, 3: 0, 9: 0}, chunk_tokens=None, output_tokens=40, token_source=TokenSource.USAGE
    )
    assert summary([record], window(0, 5))["output_tps"] == pytest.approx(30 / 5)


def test_tokens_of_failed_requests_do_not_count_and_those_of_cut_ones_do() -> None:
    good = made(0, {1: 5, 2: 10})
    broken = made(0, {1: 50, 2: 100}, outcome=Outcome.IN_STREAM_ERROR)
    cut = made(0, {1: 3, 2: 6}, outcome=Outcome.CUT)
    assert summary([good, broken, cut], window(0, 4))["output_tps"] == pytest.approx(16 / 4)


def test_a_failed_request_without_counts_does_not_take_the_throughput_away() -> None:
    stalled = made(0, {1: 0}, outcome=Outcome.IDLE_TIMEOUT, chunk_tokens=None, output_tokens=None)
    assert summary([made(0, {1: 5, 2: 10}), stalled], window(0, 2))["output_tps"] == pytest.approx(5)


def test_an_answer_without_counts_inside_the_window_makes_throughput_unknown() -> None:
    unknown = {"chunk_tokens": None, "output_tokens": None, "token_source": None}
    figures = summary([made(0, {1: 5, 2: 10}), made(0, {1: 0}, **unknown)], window(0, 2))
    assert figures["output_tps"] is None
    outside = summary([made(0, {1: 5, 2: 10}), made(-9, {-8: 0}, **unknown)], window(0, 2))
    assert outside["output_tps"] == pytest.approx(5)


def test_requests_in_flight_are_averaged_over_the_window() -> None:
    records = [made(-5, {}, done_s=2), made(1, {}, done_s=3), made(4, {}, done_s=99), made(20, {}, done_s=30)]
    assert summary(records, window(0, 10))["in_flight_mean"] == pytest.approx((2 + 2 + 6) / 10)


def test_a_request_that_never_ended_is_in_flight_to_the_end() -> None:
    lost = made(4, {}, outcome=Outcome.CLIENT_LOST)
    lost.done_ns = None
    assert summary([lost], window(0, 10))["in_flight_mean"] == pytest.approx(0.6)


def test_request_rate_counts_ok_requests_that_ended_in_the_window() -> None:
    records = [
        made(-5, {1: 1}, phase=Phase.WARMUP),
        made(0, {4: 1}),
        made(0, {4: 1}, outcome=Outcome.RESET),
        made(0, {6: 1}),
    ]
    assert summary(records, window(0, 5))["request_rate"] == pytest.approx(2 / 5)


def test_the_peak_is_the_busiest_part_of_the_window() -> None:
    # three seconds, three parts: 8 tokens at 0.5; 4 + 20 at 1.2 and 1.9; none after
    record = made(0, {0.5: 8, 1.2: 12, 1.9: 32})
    figures = summary([record], window(0, 3))
    assert figures["peak_tps"] == pytest.approx(24)
    assert figures["output_tps"] == pytest.approx(32 / 3)


def test_the_peak_counts_tokens_not_chunks() -> None:
    # field bug 31: 8 streams, a chunk of 4 tokens each 10 ms: 3200 tok/s in 800 chunks/s
    records = [made(0, {0.01 * n: 4 * n for n in range(1, 201)}) for _ in range(8)]
    figures = summary(records, window(0.005, 2.005))
    assert figures["output_tps"] == pytest.approx(3200)
    assert figures["peak_tps"] == pytest.approx(3200)


def test_a_window_of_no_whole_second_is_one_part() -> None:
    figures = summary([made(0, {0.1: 4, 0.4: 8})], window(0, 0.5))
    assert figures["peak_tps"] == figures["output_tps"] == pytest.approx(16)


def test_the_parts_are_seconds_of_the_servers_time() -> None:
    # one real second at clock x 4 is four of the server's: 10 tokens in the last quarter are 10 tok/s at the peak
    figures = summary([made(0, {0.9: 10})], window(0, 1, time_scale=4))
    assert figures["peak_tps"] == pytest.approx(10)
    assert figures["output_tps"] == pytest.approx(2.5)


def test_no_window_has_no_throughput() -> None:
    figures = summary([made(0, {0.5: 8})], window(2, 2))
    assert (figures["output_tps"], figures["peak_tps"], figures["in_flight_mean"]) == (None, None, None)


timelines = st.lists(
    st.tuples(
        st.integers(0, 50),
        st.lists(st.tuples(st.integers(1, 400), st.integers(0, 9)), min_size=1, max_size=6),
    ),
    max_size=6,
)


@given(timelines, st.integers(1, 899))
def test_two_windows_side_by_side_hold_all_tokens_between_them(
    requests: list[tuple[int, list[tuple[int, int]]]], edge_ms: int
) -> None:
    records = []
    for sent_ms, chunks in requests:
        moment, total, counts = sent_ms, 0, {}
        for gap_ms, tokens in chunks:
            moment, total = moment + gap_ms, total + tokens
            counts[moment / 1000] = total
        records.append(made(sent_ms / 1000, counts))
    rows = table(records)
    left = tokens_in_parts(rows, Window(SENT, SENT + edge_ms * MS, 1.0))
    right = tokens_in_parts(rows, Window(SENT + edge_ms * MS + 1, SENT + 10 * S, 1.0))
    assert left is not None
    assert right is not None
    assert left.sum() + right.sum() == sum(record.output_tokens for record in records)
    assert right.max() * right.size >= right.sum()
