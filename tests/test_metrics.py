"""The arithmetic, against values worked by hand."""

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_server import DONE, delta, event, role, usage

from loadgen import metrics
from loadgen.metrics import Window, summarize
from loadgen.records import ChunkKind, Outcome, Phase, RequestRecord, TokenSource
from loadgen.tables import RequestContext, requests_table
from loadgen.transport.exchange import Exchange
from loadgen.wire import decode

S = 1_000_000_000
MS = 1_000_000
SENT = 100 * S  # moments of the tests are seconds after this


def at(seconds: float) -> int:
    return SENT + round(seconds * S)


def window(start_s: float, end_s: float, time_scale: float = 1.0) -> Window:
    return Window(at(start_s), at(end_s), time_scale)


def summary(records: Iterable[RequestRecord], span: Window) -> dict[str, Any]:
    return summarize(requests_table(records, RequestContext("c", 0, "p", "s", "w", span.time_scale)), span)


def golden(events: list[tuple[float, bytes]]) -> RequestRecord:
    record = RequestRecord(index=0, phase=Phase.MEASURE, scheduled_ns=at(-0.5), max_tokens=32)
    exchange = Exchange(sent_ns=at(0), status=200, done_ns=at(1.32))
    for seconds, data in events:
        exchange.add(at(seconds), data)
    decode(exchange, record)
    return record


STEPS = event(
    {"choices": [], "sglext": {"spec_tokens_details": {"spec_verify_ct": 4, "spec_accept_length": 4.0}}}
)
GOLDEN = [
    (0.10, role()),
    (1.00, delta(reasoning="aa", tokens=4)),
    (1.10, delta(reasoning="bb", tokens=8)),
    (1.20, delta("cc", tokens=12)),
    (1.30, delta("dd", tokens=16)),
    (1.30, delta("", finish="stop")),
    (1.32, STEPS),
    (1.32, usage(16)),
    (1.32, DONE),
]


def test_the_golden_stream() -> None:
    figures = summary([golden(GOLDEN)], window(0, 2))
    assert figures["ttft_mean_ms"] == pytest.approx(1000)
    assert figures["ttfa_mean_ms"] == pytest.approx(1200)
    assert figures["tpot_mean_ms"] == pytest.approx(25.0)
    assert figures["chunk_gap_mean_ms"] == pytest.approx(100)
    assert figures["accept_length"] == pytest.approx(4.0)
    assert figures["e2e_mean_ms"] == pytest.approx(1320)
    assert figures["send_lag_p99_ms"] == pytest.approx(500)
    assert figures["output_tps"] == pytest.approx(16 / 2)
    assert figures["compat_output_tps"] == pytest.approx(16 / 1.32)
    assert figures["stream_tps"] == pytest.approx(16 / 1.32)


def test_the_golden_stream_without_running_usage_has_no_tpot_and_assumes_no_length() -> None:
    bare = [
        (seconds, delta("x") if b'"usage"' in data and b"delta" in data else data) for seconds, data in GOLDEN
    ]
    figures = summary([golden(bare)], window(0, 2))
    assert figures["tpot_mean_ms"] is None
    assert figures["ttft_mean_ms"] == pytest.approx(1000)
    assert figures["output_tps"] == pytest.approx(8)
    no_usage = [(seconds, data) for seconds, data in bare if b"completion_tokens" not in data]
    unknown = summary([golden(no_usage)], window(0, 2))
    assert unknown["output_tps"] is None
    assert unknown["compat_output_tps"] is None
    assert unknown["stream_tps"] is None
    assert unknown["accept_length"] is None


def made(
    sent_s: float,
    chunks: dict[float, int],
    *,
    done_s: float | None = None,
    outcome: Outcome = Outcome.OK,
    phase: Phase = Phase.MEASURE,
    **fields: Any,
) -> RequestRecord:
    """A record with chunks at given seconds, each with the running token count after it."""
    moments = [at(seconds) for seconds in chunks]
    values: dict[str, Any] = {
        "scheduled_ns": at(sent_s),
        "sent_ns": at(sent_s),
        "first_token_ns": moments[0] if moments else None,
        "first_answer_ns": moments[0] if moments else None,
        "last_token_ns": moments[-1] if moments else None,
        "done_ns": at(done_s if done_s is not None else max(chunks, default=sent_s)),
        "output_tokens": max(chunks.values(), default=None),
        "chunk_ns": moments,
        "chunk_tokens": list(chunks.values()) or None,
        "chunk_kind": [ChunkKind.ANSWER] * len(chunks),
        "token_source": TokenSource.CONTINUOUS_USAGE if chunks else None,
        **fields,
    }
    return RequestRecord(index=0, phase=phase, max_tokens=32, outcome=outcome, **values)


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


def test_latencies_are_over_ok_requests_of_the_window_and_failures_stand_beside_them() -> None:
    records = [
        made(0, {1: 1, 2: 2}),
        made(0, {3: 1, 4: 2}),
        made(0, {90: 1}, outcome=Outcome.TOTAL_TIMEOUT),
        made(0, {}, outcome=Outcome.REJECTED),
        made(0, {80: 1}, outcome=Outcome.CUT),
        made(-9, {70: 1}, phase=Phase.WARMUP),
        made(-9, {}, outcome=Outcome.RESET, phase=Phase.WARMUP),
        made(9, {60: 1}, phase=Phase.DRAIN),
    ]
    figures = summary(records, window(0, 5))
    assert figures["n"] == 2
    assert figures["ttft_mean_ms"] == pytest.approx(2000)
    assert figures["ttft_p99_ms"] == pytest.approx(3000)
    assert figures["e2e_mean_ms"] == pytest.approx(3000)
    assert (figures["sent"], figures["ok"], figures["cut"], figures["errors"]) == (8, 4, 1, 3)
    assert figures["error_rate"] == pytest.approx(2 / 4)
    assert json.loads(figures["outcomes"]) == {
        "cut": 1,
        "ok": 4,
        "rejected": 1,
        "reset": 1,
        "total_timeout": 1,
    }


def test_a_failed_request_has_no_latency_rather_than_zero() -> None:
    figures = summary([made(0, {}, outcome=Outcome.EMPTY_STREAM)], window(0, 5))
    assert figures["n"] == 0
    for name in (
        "ttft_mean_ms",
        "ttfa_p50_ms",
        "tpot_p99_ms",
        "chunk_gap_p99_ms",
        "stream_tps",
        "accept_length",
    ):
        assert figures[name] is None
    assert figures["error_rate"] == 1
    assert figures["output_tps"] == 0


def test_a_cell_without_any_request() -> None:
    figures = summary([], window(0, 5))
    assert (figures["sent"], figures["n"], figures["error_rate"], figures["compat_output_tps"]) == (
        0,
        0,
        None,
        None,
    )


def test_time_scale_turns_real_time_into_the_servers() -> None:
    figures = summary([golden(GOLDEN)], window(0, 2, time_scale=10))
    assert figures["window_s"] == pytest.approx(20)
    assert figures["ttft_mean_ms"] == pytest.approx(10_000)
    assert figures["tpot_mean_ms"] == pytest.approx(250)
    assert figures["output_tps"] == pytest.approx(16 / 20)
    assert figures["compat_output_tps"] == pytest.approx(16 / 13.2)
    assert figures["stream_tps"] == pytest.approx(16 / 13.2)
    assert figures["send_lag_p99_ms"] == pytest.approx(500)


def test_requests_in_flight_are_averaged_over_the_window() -> None:
    records = [made(-5, {}, done_s=2), made(1, {}, done_s=3), made(4, {}, done_s=99), made(20, {}, done_s=30)]
    assert summary(records, window(0, 10))["in_flight_mean"] == pytest.approx((2 + 2 + 6) / 10)


def test_a_request_that_never_ended_is_in_flight_to_the_end() -> None:
    lost = made(4, {}, outcome=Outcome.CLIENT_LOST)
    lost.done_ns = None
    assert summary([lost], window(0, 10))["in_flight_mean"] == pytest.approx(0.6)


def test_the_compatibility_figure_is_over_the_whole_of_the_cell() -> None:
    records = [
        made(-5, {-2: 10}, phase=Phase.WARMUP),
        made(0, {5: 30}),
        made(0, {}, outcome=Outcome.RESET, done_s=15),
    ]
    assert summary(records, window(0, 10))["compat_output_tps"] == pytest.approx(40 / 20)


def test_request_rate_counts_ok_requests_that_ended_in_the_window() -> None:
    records = [
        made(-5, {1: 1}, phase=Phase.WARMUP),
        made(0, {4: 1}),
        made(0, {4: 1}, outcome=Outcome.RESET),
        made(0, {6: 1}),
    ]
    assert summary(records, window(0, 5))["request_rate"] == pytest.approx(2 / 5)


def test_accept_length_is_a_ratio_of_sums_of_what_is_known() -> None:
    records = [
        made(0, {1: 100}, spec_verify_steps=50, spec_accept_length=2.0),
        made(0, {1: 10}, spec_verify_steps=1, spec_accept_length=10.0),
        made(0, {1: 999}, spec_verify_steps=None),
        made(0, {1: 7}, spec_verify_steps=0),
    ]
    assert summary(records, window(0, 5))["accept_length"] == pytest.approx(110 / 51)


def test_two_cells_of_one_server_have_their_own_accept_length() -> None:
    first = summary([made(0, {1: 20}, spec_verify_steps=10)], window(0, 5))
    second = summary([made(6, {7: 80}, spec_verify_steps=10)], window(5, 9))
    assert (first["accept_length"], second["accept_length"]) == (2.0, 8.0)


def test_tpot_needs_tokens_after_the_first_chunk() -> None:
    whole_in_one = made(0, {1: 16})
    assert summary([whole_in_one], window(0, 5))["tpot_mean_ms"] is None
    merged = made(0, {1: 4, 1.3: 16})
    assert summary([merged], window(0, 5))["tpot_mean_ms"] == pytest.approx(25)


def test_a_chunk_of_no_token_divides_by_nothing() -> None:
    figures = summary([made(0, {1: 0, 1.1: 4, 1.2: 4})], window(0, 5))
    assert figures["tpot_mean_ms"] == pytest.approx(50)
    assert figures["chunk_gap_mean_ms"] == pytest.approx(100)


def test_cached_fraction_is_over_all_prompt_tokens_that_are_known() -> None:
    records = [
        made(0, {1: 1}, prompt_tokens=100, cached_tokens=50),
        made(0, {1: 1}, prompt_tokens=300, cached_tokens=0),
        made(0, {1: 1}, prompt_tokens=900, cached_tokens=None),
    ]
    figures = summary(records, window(0, 5))
    assert figures["cached_fraction"] == pytest.approx(0.125)
    assert figures["prompt_tokens_mean"] == pytest.approx(1300 / 3)


def test_quantiles_of_three_values_are_values_that_happened() -> None:
    figures = summary([made(0, {seconds: 1}) for seconds in (1, 2, 3)], window(0, 5))
    assert figures["ttft_p50_ms"] == pytest.approx(2000)
    assert figures["ttft_p90_ms"] == pytest.approx(3000)
    assert figures["ttft_p99_ms"] == pytest.approx(3000)


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=40))
def test_no_quantile_is_above_the_maximum_or_out_of_order(delays_us: list[int]) -> None:
    rows = [{"first_token_ns": SENT + us * 1000, "sent_ns": SENT, "chunk_ns": []} for us in delays_us]
    blank = {"first_answer_ns": None, "done_ns": None, "chunk_tokens": None, "output_tokens": None}
    figures = metrics.latencies([{**row, **blank} for row in rows], 1.0)
    p50, p90, p99 = (figures[f"ttft_{name}_ms"] for name in ("p50", "p90", "p99"))
    assert p50 <= p90 <= p99 <= max(delays_us) / 1000
    assert p99 in [us / 1000 for us in delays_us]


@given(
    st.lists(
        st.tuples(
            st.integers(0, 50),
            st.lists(st.tuples(st.integers(1, 400), st.integers(0, 9)), min_size=1, max_size=6),
        ),
        max_size=6,
    ),
    st.integers(1, 899),
)
def test_two_windows_side_by_side_hold_all_tokens_between_them(
    requests: list[tuple[int, list[tuple[int, int]]]], edge_ms: int
) -> None:
    rows = []
    for sent_ms, chunks in requests:
        counts, total, moment = [], 0, 0
        moments = []
        for gap_ms, tokens in chunks:
            moment, total = moment + gap_ms, total + tokens
            moments.append(moment * MS)
            counts.append(total)
        rows.append(
            {"sent_ns": sent_ms * MS, "chunk_ns": moments, "chunk_tokens": counts, "output_tokens": total}
        )
    left = metrics.tokens_inside(rows, Window(0, edge_ms * MS, 1.0))
    right = metrics.tokens_inside(rows, Window(edge_ms * MS + 1, 10_000 * MS, 1.0))
    assert left + right == sum(row["output_tokens"] for row in rows)
