"""Times of requests, gaps of chunks and of tokens, against values worked by hand."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from metrics_fixtures import at, golden, made, summary, window

from loadgen.records import ChunkKind


def test_tpot_needs_tokens_after_the_first_chunk() -> None:
    whole_in_one = made(0, {1: 16})
    assert summary([whole_in_one], window(0, 5))["tpot_mean_ms"] is None
    merged = made(0, {1: 4, 1.3: 16})
    assert summary([merged], window(0, 5))["tpot_mean_ms"] == pytest.approx(25)


def test_a_chunk_of_no_token_divides_by_nothing() -> None:
    figures = summary([made(0, {1: 0, 1.1: 4, 1.2: 4})], window(0, 5))
    assert figures["tpot_mean_ms"] == pytest.approx(50)
    assert figures["chunk_gap_mean_ms"] == pytest.approx(100)


def test_quantiles_of_three_values_are_values_that_happened() -> None:
    figures = summary([made(0, {seconds: 1}) for seconds in (1, 2, 3)], window(0, 5))
    assert figures["ttft_p50_ms"] == pytest.approx(2000)
    assert figures["ttft_p90_ms"] == pytest.approx(3000)
    assert figures["ttft_p99_ms"] == pytest.approx(3000)


def test_token_gaps_share_a_chunks_gap_among_its_tokens() -> None:
    # gaps 0.1 s for 1 token, 0.4 s for 8 tokens of 50 ms: (0.1 + 0.4) / 9 = 55.6 ms; eight of the nine are 50 ms
    figures = summary([made(0, {1.0: 4, 1.1: 5, 1.5: 13})], window(0, 5))
    assert figures["token_gap_mean_ms"] == pytest.approx(500 / 9)
    assert figures["token_gap_p50_ms"] == pytest.approx(50)
    assert figures["token_gap_p90_ms"] == pytest.approx(100)  # place ceil(0.9 * 8) = 8, the last of nine
    assert figures["token_gap_n"] == 9
    assert figures["chunk_gap_mean_ms"] == pytest.approx(250)
    assert figures["chunk_gap_n"] == 2


def test_the_time_of_a_chunk_without_tokens_goes_to_the_next_that_has_some() -> None:
    # field bug 79: 0.1 s and 0.3 s until two tokens came: 200 ms each
    figures = summary([made(0, {1.0: 4, 1.1: 4, 1.4: 6})], window(0, 5))
    assert figures["token_gap_mean_ms"] == figures["token_gap_max_ms"] == pytest.approx(200)


def test_gaps_do_not_cross_from_one_request_to_the_next() -> None:
    figures = summary([made(0, {1: 1, 1.1: 2}), made(0, {3: 1}), made(0, {4: 1, 4.3: 2})], window(0, 5))
    assert figures["chunk_gap_n"] == 2
    assert figures["chunk_gap_max_ms"] == pytest.approx(300)
    assert figures["token_gap_max_ms"] == pytest.approx(300)


def test_gaps_of_tokens_need_a_running_count_and_those_of_chunks_do_not() -> None:
    counted, uncounted = made(0, {1: 1, 1.1: 2}), made(0, {1: 0, 1.9: 0}, chunk_tokens=None, output_tokens=40)
    figures = summary([counted, uncounted], window(0, 5))
    assert (figures["chunk_gap_n"], figures["token_gap_n"]) == (2, 1)
    assert figures["token_gap_max_ms"] == pytest.approx(100)
    alone = summary([uncounted], window(0, 5))
    assert (alone["token_gap_mean_ms"], alone["token_gap_n"]) == (None, 0)
    assert alone["tpot_mean_ms"] == pytest.approx(900 / 20)  # the total is spread: 20 tokens in each chunk


def test_a_role_only_chunk_does_not_start_ttft() -> None:
    # field bug 25: the role two seconds before the first token
    record = made(0, {2.5: 1}, first_chunk_ns=at(0.5), first_choice_ns=at(0.5), choice_events=2)
    assert summary([record], window(0, 5))["ttft_mean_ms"] == pytest.approx(2500)


def test_reasoning_starts_ttft_and_the_answer_ttfa() -> None:
    # field bugs 45 and 47
    kinds = [ChunkKind.REASONING, ChunkKind.ANSWER]
    thinking = made(0, {1: 8, 3: 16}, chunk_kind=kinds, first_answer_ns=at(3))
    only_thought = made(0, {2: 8}, chunk_kind=kinds[:1], first_answer_ns=None)
    figures = summary([thinking, only_thought], window(0, 5))
    assert (figures["ttft_max_ms"], figures["ttft_n"]) == (pytest.approx(2000), 2)
    assert (figures["ttfa_max_ms"], figures["ttfa_n"]) == (pytest.approx(3000), 1)


def test_open_loop_counts_from_the_plan_and_both_stand_beside_each_other() -> None:
    figures = summary([golden()], window(0, 2), is_open_loop=True)
    assert figures["ttft_mean_ms"] == figures["ttft_from_plan_mean_ms"] == pytest.approx(1500)
    assert figures["ttft_from_sent_mean_ms"] == pytest.approx(1000)
    assert figures["ttfa_mean_ms"] == pytest.approx(1700)
    assert figures["e2e_mean_ms"] == pytest.approx(1820)


def test_a_server_that_freezes_under_a_constant_rate_shows_from_the_plan() -> None:
    """10 requests a second for 10 s; from 4 s to 6 s the server takes none, and a client of one connection can send
    nothing either: 20 requests wait, the first for 2 s. Served in 10 ms each once it is back.

    From the plan, request i of the freeze, due at 4 + i/10, has its token at 6 + (i + 1)/100: 2.01 - 0.09 i seconds;
    they take the 20 largest places of 100, and 2 more still queue behind them. From sending, all take 10 ms, but for
    the one that the freeze caught under way.
    """
    records, free = [], 0.0
    for i in range(100):
        due = i / 10
        sent = max(due, free)
        done = (6.0 if 4 <= sent < 6 else sent) + 0.01
        free = done
        records.append(made(sent, {done: 1}, scheduled_ns=at(due)))
    figures = summary(records, window(0, 10), is_open_loop=True)
    assert figures["ttft_from_plan_max_ms"] == pytest.approx(2010)
    assert (
        figures["ttft_p99_ms"] == figures["ttft_from_plan_p99_ms"] == pytest.approx(2010)
    )  # place 99 of 100
    assert figures["ttft_p90_ms"] == pytest.approx(2010 - 90 * 9)  # place 90 of 0..99: the tenth largest
    assert figures["ttft_from_sent_p90_ms"] == pytest.approx(10)
    assert figures["ttft_from_sent_max_ms"] == pytest.approx(2010)


@given(st.lists(st.integers(1, 10**9), min_size=1, max_size=40))
def test_no_quantile_is_above_the_maximum_or_out_of_order(delays_us: list[int]) -> None:
    figures = summary([made(0, {us / 1e6: 1}) for us in delays_us], window(0, 5))
    p50, p90, p99, largest = (figures[f"ttft_{name}_ms"] for name in ("p50", "p90", "p99", "max"))
    assert p50 <= p90 <= p99 <= largest == max(delays_us) / 1000
    assert p99 in [us / 1000 for us in delays_us]
    assert p50 == sorted(delays_us)[-(-(len(delays_us) - 1) // 2)] / 1000
