"""What the server counted, against values worked by hand."""

from typing import Any

import pytest
from metrics_fixtures import made, summary, window

from loadgen.metrics.tokens import accept_length_by_counters


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


def test_cached_fraction_is_over_all_prompt_tokens_that_are_known() -> None:
    records = [
        made(0, {1: 1}, prompt_tokens=100, cached_tokens=50),
        made(0, {1: 1}, prompt_tokens=300, cached_tokens=0),
        made(0, {1: 1}, prompt_tokens=900, cached_tokens=None),
    ]
    figures = summary(records, window(0, 5))
    assert figures["cached_fraction"] == pytest.approx(0.125)
    assert figures["prompt_tokens_mean"] == pytest.approx(1300 / 3)


def sample(
    server: str, moment: str, tokens: float | None, steps: float | None, **more: Any
) -> dict[str, Any]:
    counters = {"output_tokens_total": tokens, "spec_verify_steps_total": steps}
    return {"server_id": server, "moment": moment, "running_requests": 0, **counters, **more}


# a server that answered 900 tokens in 300 steps before this cell, and 400 in 50 within it
CELL = [sample("a", "before", 900.0, 300.0), sample("a", "after", 1300.0, 350.0)]


def test_without_details_acceptance_is_the_change_of_the_counters_over_the_cell() -> None:
    # field bug 36: since boot it would be 1300 / 350 = 3.7
    figures = summary([made(0, {1: 100})], window(0, 5), samples=CELL)
    assert figures["accept_length"] == pytest.approx(400 / 50)
    assert figures["accept_length_source"] == "counters"


def test_details_of_the_requests_come_before_counters() -> None:
    figures = summary([made(0, {1: 100}, spec_verify_steps=40)], window(0, 5), samples=CELL)
    assert figures["accept_length"] == pytest.approx(2.5)
    assert figures["accept_length_source"] == "requests"


def test_neither_details_nor_counters_is_unknown() -> None:
    figures = summary([made(0, {1: 100})], window(0, 5))
    assert (figures["accept_length"], figures["accept_length_source"]) == (None, None)


def test_counters_of_several_servers_are_summed() -> None:
    other = [sample("b", "before", 0.0, 0.0), sample("b", "after", 100.0, 200.0)]
    assert accept_length_by_counters(CELL + other) == pytest.approx(500 / 250)


@pytest.mark.parametrize(
    "other",
    [
        [sample("b", "before", 0.0, None), sample("b", "after", 100.0, 200.0)],
        [sample("b", "after", 100.0, 200.0)],
        [sample("b", "before", 500.0, 200.0), sample("b", "after", 100.0, 200.0)],
        [sample("b", "before", 0.0, 0.0), sample("b", "after", 100.0, 200.0, running_requests=3)],
    ],
    ids=["a null", "one reading", "restarted between", "not drained"],
)
def test_a_server_that_cannot_be_read_makes_the_sum_unknown(other: list[dict[str, Any]]) -> None:
    # field bug 35: one null of eight ranks must not leave the figure to the other seven
    assert accept_length_by_counters(CELL + other) is None


def test_no_speculation_is_unknown_and_not_a_division() -> None:
    assert (
        accept_length_by_counters([sample("a", "before", 1.0, 0.0), sample("a", "after", 9.0, 0.0)]) is None
    )


def test_lengths_are_the_servers_and_stand_beside_what_was_asked() -> None:
    # field bugs 39 and 40: 43 tokens despite ignore_eos, 5128 of 1000 sent
    records = [
        made(0, {1: 32}, prompt_tokens=1000, target_prompt_tokens=1000),
        made(0, {1: 43}, prompt_tokens=5128, target_prompt_tokens=1000),
        made(0, {1: 9}, prompt_tokens=999, target_prompt_tokens=1000),
    ]
    figures = summary(records, window(0, 5))
    assert figures["output_length_mismatches"] == 2
    assert figures["output_tokens_mean"] == pytest.approx(28)
    assert figures["prompt_length_error_max"] == 4128
    assert figures["prompt_tokens_mean"] == pytest.approx(7127 / 3)


def test_a_length_that_nobody_counted_is_no_match() -> None:
    # field bug 38: an early end without usage must not pass for the length asked for
    figures = summary([made(0, {1: 1}, chunk_tokens=None, output_tokens=None)], window(0, 5))
    assert (figures["output_length_mismatches"], figures["output_tokens_mean"]) == (None, None)
    assert figures["prompt_length_error_max"] is None
