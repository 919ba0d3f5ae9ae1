"""A cell's figures as a whole: the golden stream as bytes, whose requests count, and relations that always hold."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from metrics_fixtures import SENT, at, golden, made, summary, table, window
from scripted_server import DONE, delta, event, role, usage

from loadgen.decode.record import decode
from loadgen.metrics import Window, summarize
from loadgen.records import ChunkKind, Outcome, Phase, RequestRecord
from loadgen.tables import CELLS
from loadgen.transport.exchange import Exchange

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


def decoded(events: list[tuple[float, bytes]]) -> RequestRecord:
    record = RequestRecord(index=0, phase=Phase.MEASURE, scheduled_ns=at(-0.5), max_tokens=32)
    exchange = Exchange(sent_ns=at(0), status=200, done_ns=at(1.32))
    for seconds, data in events:
        exchange.add(at(seconds), data)
    decode(exchange, record)
    return record


def test_the_golden_stream_gives_the_true_figures() -> None:
    figures = summary([decoded(GOLDEN)], window(0, 2))
    true = {
        "ttft_mean_ms": 1000,  # 1.00 - 0
        "ttft_from_plan_mean_ms": 1500,  # 1.00 + 0.50
        "ttft_from_sent_mean_ms": 1000,
        "ttfa_mean_ms": 1200,
        "tpot_mean_ms": 25,  # (1.30 - 1.00) / (16 - 4)
        "token_gap_mean_ms": 25,  # three gaps of 100 ms for 12 tokens
        "chunk_gap_mean_ms": 100,
        "accept_length": 4,  # 16 tokens in 4 steps
        "e2e_mean_ms": 1320,
        "send_lag_p99_ms": 500,
        "output_tps": 16 / 2,
        "peak_tps": 16,  # all in the second second
        "compat_output_tps": 16 / 1.32,
        "stream_tps": 16 / 1.32,
    }
    assert {name: figures[name] for name in true} == pytest.approx(true, rel=1e-12)


def test_the_golden_stream_as_bytes_and_as_a_record_give_the_same_figures() -> None:
    # what holds for the tools' figures of the record (test_metrics_compat) holds for the stream
    assert summary([decoded(GOLDEN)], window(0, 2)) == summary([golden()], window(0, 2))


def test_every_figure_has_its_column() -> None:
    assert summary([golden()], window(0, 2)).keys() <= {column.name for column in CELLS.columns}


def test_the_golden_stream_without_running_usage_is_spread_and_assumes_no_length() -> None:
    bare = [
        (seconds, delta("x") if b'"usage"' in data and b"delta" in data else data) for seconds, data in GOLDEN
    ]
    figures = summary([decoded(bare)], window(0, 2))
    assert figures["tpot_mean_ms"] == pytest.approx(25)  # 16 tokens over 4 chunks: 4 each, 300 / 12
    assert figures["token_gap_n"] == 0
    assert figures["ttft_mean_ms"] == pytest.approx(1000)
    assert figures["output_tps"] == pytest.approx(8)
    no_usage = [(seconds, data) for seconds, data in bare if b"completion_tokens" not in data]
    unknown = summary([decoded(no_usage)], window(0, 2))
    assert unknown["tpot_mean_ms"] is None
    assert unknown["output_tps"] is None
    assert unknown["compat_output_tps"] is None
    assert unknown["stream_tps"] is None
    assert unknown["accept_length"] is None


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
    figures = summary([golden()], window(0, 2, time_scale=10))
    assert figures["window_s"] == pytest.approx(20)
    assert figures["ttft_mean_ms"] == pytest.approx(10_000)
    assert figures["tpot_mean_ms"] == pytest.approx(250)
    assert figures["output_tps"] == pytest.approx(16 / 20)
    assert figures["compat_output_tps"] == pytest.approx(16 / 13.2)
    assert figures["stream_tps"] == pytest.approx(16 / 13.2)
    assert figures["send_lag_p99_ms"] == pytest.approx(500)


def test_the_compatibility_figure_is_over_the_whole_of_the_cell() -> None:
    records = [
        made(-5, {-2: 10}, phase=Phase.WARMUP),
        made(0, {5: 30}),
        made(0, {}, outcome=Outcome.RESET, done_s=15),
    ]
    assert summary(records, window(0, 10))["compat_output_tps"] == pytest.approx(40 / 20)


def test_throughput_ends_with_the_last_response_whatever_the_client_does_after_it() -> None:
    # field bug 78: neither the window nor the other tools' figure knows how long a metadata call took afterwards
    record = made(0, {1: 10, 2: 20})
    assert summary([record], window(0, 2))["output_tps"] == pytest.approx(10)
    assert summary([record], window(0, 2))["compat_output_tps"] == pytest.approx(10)


chunk = st.tuples(st.integers(0, 500), st.integers(0, 9), st.sampled_from(list(ChunkKind)))
stream = st.fixed_dictionaries(
    {
        "sent_ms": st.integers(0, 3000),
        "lag_ms": st.integers(0, 900),
        "chunks": st.lists(chunk, max_size=8),
        "tail_ms": st.integers(0, 50),
        "is_counted": st.booleans(),
        "has_usage": st.booleans(),
        "outcome": st.sampled_from(Outcome),
        "phase": st.sampled_from(Phase),
        "spec_verify_steps": st.none() | st.integers(0, 20),
    }
)


def record_of(index: int, drawn: dict[str, Any]) -> RequestRecord:
    moment, total, counts, kinds, moments = drawn["sent_ms"], 0, [], [], []
    for gap_ms, tokens, kind in drawn["chunks"]:
        moment, total = moment + gap_ms, total + tokens
        moments.append(SENT + moment * 1_000_000)
        counts.append(total)
        kinds.append(kind)
    has_usage = drawn["has_usage"] or (drawn["is_counted"] and bool(counts))
    answers = [at_ns for at_ns, kind in zip(moments, kinds, strict=True) if kind is not ChunkKind.REASONING]
    return made(
        drawn["sent_ms"] / 1000,
        {},
        index=index,
        scheduled_ns=SENT + (drawn["sent_ms"] - drawn["lag_ms"]) * 1_000_000,
        first_token_ns=min(moments, default=None),
        first_answer_ns=min(answers, default=None),
        last_token_ns=max(moments, default=None),
        first_choice_ns=min(moments, default=None),
        last_choice_ns=max(moments, default=None),
        choice_events=len(moments),
        last_event_ns=max(moments, default=None),
        done_ns=SENT + (moment + drawn["tail_ms"]) * 1_000_000,
        chunk_ns=moments,
        chunk_tokens=counts if drawn["is_counted"] and counts else None,
        chunk_kind=kinds,
        output_tokens=total if has_usage else None,
        outcome=drawn["outcome"],
        phase=drawn["phase"],
        spec_verify_steps=drawn["spec_verify_steps"],
    )


@given(st.lists(stream, max_size=8), st.integers(0, 3000), st.integers(0, 5000), st.booleans())
def test_relations_that_hold_for_any_timelines(
    drawn: list[dict[str, Any]], start_ms: int, length_ms: int, is_open_loop: bool
) -> None:
    rows = table([record_of(index, one) for index, one in enumerate(drawn)])
    start_ns = SENT + start_ms * 1_000_000
    span = Window(start_ns, start_ns + length_ms * 1_000_000, 1.0)
    figures = summarize(rows, span, is_open_loop=is_open_loop)
    for name in ("ttft", "ttft_from_plan", "ttft_from_sent", "ttfa", "tpot", "e2e", "chunk_gap", "token_gap"):
        order = [figures[f"{name}_{label}_ms"] for label in ("p50", "p90", "p99", "max")]
        if figures[f"{name}_n"] == 0:
            assert order == [None] * 4
        else:
            assert order == sorted(order)
            assert 0 <= figures[f"{name}_mean_ms"] <= order[-1] * (1 + 1e-9)
    if figures["output_tps"] is not None:
        assert figures["peak_tps"] >= figures["output_tps"] * (1 - 1e-9)
        assert (
            figures["output_tps"]
            <= sum(r or 0 for r in rows["output_tokens"].to_pylist()) / span.seconds + 1e-9
        )
    assert figures["sent"] == figures["ok"] + figures["cut"] + figures["errors"] == len(drawn)
    assert sum(json.loads(figures["outcomes"]).values()) == len(drawn)
    if figures["ttft_n"]:
        assert figures["ttft_from_plan_mean_ms"] >= figures["ttft_from_sent_mean_ms"] - 1e-9
    scaled = summarize(rows, Window(span.start_ns, span.end_ns, 8.0), is_open_loop=is_open_loop)
    assert_scaled(figures, scaled, 8.0)


def assert_scaled(figures: dict[str, Any], scaled: dict[str, Any], by: float) -> None:
    """Times grow with the clock, rates shrink, counts stay. (The peak's parts are other seconds then.)"""
    for name, value in figures.items():
        if name in ("peak_tps", "send_lag_p99_ms") or not isinstance(value, float):
            continue
        if name.endswith(("_ms", "_s")):
            assert scaled[name] == pytest.approx(value * by)
        elif name.endswith(("_tps", "_rate")) and name != "error_rate":
            assert scaled[name] == pytest.approx(value / by)
        else:
            assert scaled[name] == pytest.approx(value)
