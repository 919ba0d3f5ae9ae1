"""Each doubt is raised just beyond its threshold, not before it, and never touches a number."""

import copy
from dataclasses import replace
from typing import Any

import pytest

from loadgen.checks import Evidence, find_doubts

CELL: dict[str, Any] = {
    "kind": "load",
    "concurrency": 8,
    "context_tokens": 1000,
    "max_tokens": 16,
    "sent": 24,
    "errors": 0,
    "n": 16,
    "e2e_p50_ms": 1000.0,
    "time_scale": 1.0,
    "arrivals": None,
    "rate": None,
    "chunk_gap_mean_ms": 50.0,
    "loop_lag_p99_ms": 1.0,
    "client_lag_p99_ms": 1.0,
    "send_lag_p99_ms": 0.1,
    "unstamped_read_share": 0.0,
    "worker_chunk_rate": 700.0,
    "client_load_share": None,
    "worker_cpu": 0.2,
    "in_flight_mean": 8.0,
    "prompt_tokens_mean": 1000.0,
    "prompt_length_source": "tokenizer",
}
ROW: dict[str, Any] = {
    "outcome": "ok",
    "phase": "measure",
    "prompt_tokens": 1000,
    "target_prompt_tokens": 1000,
    "cached_tokens": 3,
    "output_tokens": 16,
    "max_tokens": 16,
    "token_source": "continuous_usage",
    "finish_reason": "length",
    "shared_events": 1,
    "choice_events": 20,
}


def evidence(
    rows: list[dict[str, Any]] | None = None, cell: dict[str, Any] | None = None, **facts: Any
) -> Evidence:
    sound: dict[str, Any] = {
        "max_running_requests": 64,
        "proof": {"budget": "verified"},
        "is_window_complete": True,
        "server_lag_ms": None,
    }
    return Evidence({**CELL, **(cell or {})}, [ROW] * 16 if rows is None else rows, **{**sound, **facts})


def names(looked_at: Evidence) -> list[str]:
    return [doubt.check for doubt in find_doubts(looked_at)]


def row(**fields: Any) -> dict[str, Any]:
    return {**ROW, **fields}


def test_a_sound_cell_has_no_doubt() -> None:
    assert find_doubts(evidence()) == []


def test_nothing_known_is_no_doubt_but_missing_counts_are() -> None:
    unknown = row(prompt_tokens=None, cached_tokens=None, output_tokens=None, token_source=None)
    names_of = ("loop_lag", "client_lag", "send_lag")
    facts: dict[str, Any] = {f"{name}_p99_ms": None for name in names_of}
    facts |= dict.fromkeys(("worker_cpu", "in_flight_mean", "e2e_p50_ms", "unstamped_read_share"))
    assert names(evidence([unknown] * 16, facts, max_running_requests=None, proof={})) == ["tokens_unknown"]


RAISED = {
    "config_mismatch": (
        evidence(proof={"a": "verified", "b": "mismatch"}),
        evidence(proof={"b": "unverifiable"}),
    ),
    "queue_measured": (evidence(max_running_requests=7), evidence(max_running_requests=8)),
    "errors": (
        evidence([*[ROW] * 16, row(outcome="reset", phase="warmup")], {"errors": 1}),
        evidence([*[ROW] * 16, row(outcome="cut", phase="drain")]),
    ),
    "client_limited": (evidence(cell={"worker_cpu": 0.91}), evidence(cell={"worker_cpu": 0.9})),
    "shared_reads": (
        evidence([row(shared_events=3)] * 16, {"client_lag_p99_ms": 5.0}),
        evidence([row(shared_events=2)] * 16, {"client_lag_p99_ms": 5.0}),
    ),
    "stamps_user_space": (
        evidence(cell={"unstamped_read_share": 0.011}),
        evidence(cell={"unstamped_read_share": 0.010}),
    ),
    "simulated_server_late": (
        evidence(cell={"time_scale": 10.0}, server_lag_ms=10.1),
        evidence(cell={"time_scale": 10.0}, server_lag_ms=10.0),
    ),
    "cache_contaminated": (
        evidence([row(cached_tokens=133)] * 16),
        evidence([row(cached_tokens=132)] * 16),
    ),
    "prompt_length_off": (
        evidence([*[ROW] * 15, row(prompt_tokens=999)]),
        evidence([*[ROW] * 15, row(prompt_tokens=1000)]),
    ),
    "output_length_off": (
        evidence([*[ROW] * 15, row(output_tokens=3)]),
        evidence([*[ROW] * 15, row(output_tokens=3, phase="warmup")]),
    ),
    "tokens_spread": (evidence([*[ROW] * 15, row(token_source="usage")]), evidence()),
    "tokens_unknown": (
        evidence([*[ROW] * 15, row(token_source=None)]),
        evidence([*[ROW] * 15, row(token_source=None, outcome="cut")]),
    ),
    "below_target_concurrency": (
        evidence(cell={"in_flight_mean": 7.1}),
        evidence(cell={"in_flight_mean": 7.2}),
    ),
    "behind_schedule": (
        evidence(cell={"arrivals": "poisson", "send_lag_p99_ms": 10.1}, max_in_flight=8),
        evidence(cell={"arrivals": "poisson", "send_lag_p99_ms": 10.0}, max_in_flight=8),
    ),
    "not_stationary": (evidence(is_stationary=False), evidence(is_stationary=True)),
    "shared_cores": (evidence(shares_cores=True), evidence(shares_cores=False)),
    "window_short": (evidence(is_window_complete=False), evidence(is_window_complete=True)),
    "few_samples": (evidence(cell={"n": 7}), evidence(cell={"n": 8})),
    "restarted": (evidence(server_restarted=True), evidence(server_restarted=False)),
}


OPEN = {"concurrency": None, "rate": 2.0, "arrivals": "poisson", "send_lag_p99_ms": None}


def test_an_open_loop_has_no_target_of_streams_but_may_queue() -> None:
    assert names(evidence(cell={**OPEN, "in_flight_mean": 2.0})) == []
    assert names(evidence(cell={**OPEN, "in_flight_mean": 7.5}, max_running_requests=7)) == ["queue_measured"]
    assert names(evidence(cell={**OPEN, "in_flight_mean": None})) == []


def test_workers_that_measured_together_for_less_than_was_asked_have_a_short_window() -> None:
    assert names(evidence(cell={"window_s": 8.9}, least_window_s=10.0)) == ["window_short"]
    assert names(evidence(cell={"window_s": 9.0}, least_window_s=10.0)) == []
    assert names(evidence(cell={"window_s": None}, least_window_s=10.0)) == []


def test_a_closed_loop_sends_when_it_can_and_is_never_behind() -> None:
    assert names(evidence(cell={"arrivals": None, "send_lag_p99_ms": 500.0})) == []


@pytest.mark.parametrize("name", RAISED)
def test_each_doubt_has_its_threshold(name: str) -> None:
    beyond, before = RAISED[name]
    assert names(beyond) == [name]
    assert names(before) == []
    (doubt,) = find_doubts(beyond)
    assert doubt.detail
    assert len(doubt.detail.splitlines()) == 1


def test_prompts_off_in_both_directions_are_seen_though_their_mean_is_right() -> None:
    halves = [row(prompt_tokens=500), row(prompt_tokens=1500)] * 8
    (doubt,) = find_doubts(evidence(halves))
    assert doubt.check == "prompt_length_off"
    assert doubt.detail.startswith("16 of 16 prompts were not 1000 tokens long")
    assert doubt.detail.endswith("the worst by 500")


def test_prompts_calibrated_on_usage_may_be_off_by_one_per_cent() -> None:
    by_usage = {"prompt_length_source": "usage"}
    assert names(evidence([row(prompt_tokens=990), row(prompt_tokens=1010)] * 8, by_usage)) == []
    assert names(evidence([row(prompt_tokens=989)] * 16, by_usage)) == ["prompt_length_off"]


def test_a_request_without_a_target_has_no_wrong_length() -> None:
    later_turn = row(prompt_tokens=1234, target_prompt_tokens=None)
    assert names(evidence([ROW, later_turn] * 8, {"prompt_length_source": "tokenizer"})) == []


def test_what_a_workload_shares_may_come_from_the_cache() -> None:
    half = [row(cached_tokens=532)] * 16
    assert names(evidence(half)) == ["cache_contaminated"]
    assert names(evidence(half, shared_prompt=0.5)) == []
    assert names(evidence([row(cached_tokens=933)] * 16, shared_prompt=0.5)) == ["cache_contaminated"]
    assert names(evidence([row(cached_tokens=933)] * 16, shared_prompt=None)) == []


def test_over_tls_there_are_no_kernel_stamps_and_that_is_no_doubt() -> None:
    assert names(evidence(cell={"unstamped_read_share": 1.0}, is_tls=True)) == []


def test_failures_are_named_by_their_outcomes() -> None:
    rows = [ROW, row(outcome="idle_timeout"), row(outcome="reset"), row(outcome="reset"), row(outcome="cut")]
    (doubt,) = find_doubts(evidence(rows, {"errors": 3, "sent": 5}))
    assert doubt.detail == "3 of 5 requests failed (idle_timeout, reset)"


def test_an_evaluation_is_asked_other_questions() -> None:
    exam = {"kind": "eval", "context_tokens": None, "n": 1, "in_flight_mean": 0.5}
    stopped = row(finish_reason="stop", output_tokens=900)
    assert names(evidence([stopped] * 5, exam)) == []
    cut = evidence([stopped, row(finish_reason="length")], exam, proof={"a": "mismatch"})
    assert names(cut) == ["config_mismatch", "answers_truncated"]
    assert find_doubts(cut)[1].detail == "1 of 2 answers hit max_tokens (16): raise grading.max_tokens"


def test_doubts_come_in_a_fixed_order_and_change_nothing() -> None:
    looked_at = evidence(
        [row(outcome="reset")], {"errors": 1, "n": 0, "in_flight_mean": 1.0}, is_window_complete=False
    )
    before = copy.deepcopy(looked_at.cell)
    assert names(looked_at) == ["errors", "below_target_concurrency", "window_short", "few_samples"]
    assert names(replace(looked_at, server_restarted=True))[-1] == "restarted"
    assert looked_at.cell == before


def test_where_answers_may_end_by_themselves_their_length_is_no_doubt():
    short = [{**ROW, "output_tokens": 7}] * 16
    assert names(evidence(short)) == ["output_length_off"]
    assert names(evidence(short, is_output_length_fixed=False)) == []


def test_what_does_not_add_up_comes_first_of_all() -> None:
    assert names(evidence(accounting=["2 requests sent, 1 rows"], proof={"budget": "mismatch"}))[:2] == [
        "accounting",
        "config_mismatch",
    ]
    assert find_doubts(evidence(accounting=["a", "b"], cell={"kind": "eval"}))[0].detail == "a; b"
