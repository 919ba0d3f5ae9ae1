"""Stages of a worker's part of a cell, asked with made-up times."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from loadgen.load.phases import Phases, Stage
from loadgen.schedule import Shard
from loadgen.spec import Load

S = 1_000_000_000


def phases(streams: int = 2, settled_s: float = 0, time_scale: float = 1.0, **values: Any) -> Phases:
    usual = {
        "warmup_until_stationary": False,
        "warmup_max_s": 100,
        "measure_min_s": 10,
        "measure_max_s": 50,
        "drain_max_s": 7,
        "measure_min_requests": 0,
    }
    load = Load(**{"concurrency": [streams], **usual, **values})
    return Phases(load, Shard(0, 1, streams), time_scale, 1000 * S, round(settled_s * S))


def step(of: Phases, at_s: float, *, is_exhausted: bool = False) -> Stage:
    """Passes the next stage at `at_s` after the start, if it is time to."""
    now_ns = of.start_ns + round(at_s * S)
    if of.is_over(now_ns, is_exhausted=is_exhausted):
        (of.open_window if of.stage is Stage.WARMUP else of.close_window)(now_ns)
    return of.stage


def test_the_window_opens_when_the_load_has_begun_and_as_many_have_ended() -> None:
    of = phases(settled_s=5, warmup_requests_per_stream=2)
    of.ended = 3
    assert step(of, 6) is Stage.WARMUP
    of.ended = 4
    assert step(of, 4.9) is Stage.WARMUP
    assert step(of, 5) is Stage.MEASURE
    assert of.window_start_ns == of.start_ns + 5 * S
    assert of.is_stationary


def test_the_window_closes_when_the_least_time_is_over_and_as_many_have_ended() -> None:
    of = phases(warmup_requests_per_stream=0, measure_requests_per_stream=3)
    step(of, 0)
    of.ended += 6
    assert step(of, 9.9) is Stage.MEASURE
    assert step(of, 10) is Stage.DRAIN
    assert of.is_complete
    assert of.window_end_ns - of.window_start_ns == 10 * S
    assert of.drain_deadline_ns == of.window_end_ns + 7 * S


def test_what_ended_in_the_warm_up_does_not_count() -> None:
    of = phases(warmup_requests_per_stream=1, measure_requests_per_stream=3)
    of.ended = 6
    step(of, 1)
    of.ended = 11
    assert step(of, 30) is Stage.MEASURE
    of.ended = 12
    assert step(of, 30) is Stage.DRAIN


def test_a_warm_up_that_takes_too_long_ends_and_makes_the_cell_incomplete() -> None:
    of = phases(warmup_requests_per_stream=1)
    of.ended = 1
    assert step(of, 99.9) is Stage.WARMUP
    assert step(of, 100) is Stage.MEASURE
    of.ended = 100
    assert step(of, 110) is Stage.DRAIN
    assert not of.is_complete


def test_a_window_that_takes_too_long_ends_and_makes_the_cell_incomplete() -> None:
    of = phases(warmup_requests_per_stream=0, measure_requests_per_stream=3)
    step(of, 0)
    of.ended = 5
    assert step(of, 49.9) is Stage.MEASURE
    assert step(of, 50) is Stage.DRAIN
    assert not of.is_complete


def test_the_window_waits_for_a_rate_that_has_settled_and_says_when_it_did_not() -> None:
    rising = phases(warmup_until_stationary=True, warmup_requests_per_stream=0)
    for number in range(1, 40):
        rising.tick(number * number * 1000)
        assert step(rising, number * 0.25) is Stage.WARMUP
    assert step(rising, 100) is Stage.MEASURE
    assert not rising.is_stationary
    even = phases(warmup_until_stationary=True, warmup_requests_per_stream=0)
    for number in range(1, 17):
        assert step(even, number * 0.25) is Stage.WARMUP
        even.tick(number * 1000)
    assert step(even, 4.25) is Stage.MEASURE
    assert even.is_stationary


def test_when_there_is_nothing_more_to_send_nobody_waits() -> None:
    of = phases(warmup_requests_per_stream=5)
    assert step(of, 1) is Stage.WARMUP
    assert step(of, 1, is_exhausted=True) is Stage.MEASURE
    assert step(of, 1, is_exhausted=True) is Stage.DRAIN
    assert not of.is_complete


def test_a_simulated_clock_shortens_every_time() -> None:
    of = phases(time_scale=10)
    assert of.warmup_deadline_ns == of.start_ns + 10 * S
    of.open_window(2000 * S)
    assert (of.least_end_ns, of.deadline_ns) == (2001 * S, 2005 * S)
    of.close_window(2003 * S)
    assert of.drain_deadline_ns == 2003 * S + 7 * S // 10
    assert of.tick_ns == S // 40


STEPS = st.lists(st.tuples(st.floats(0, 20), st.integers(0, 5)), max_size=40)


@given(STEPS, st.integers(0, 3), st.integers(0, 3), st.floats(0, 20), st.booleans())
def test_the_stages_come_in_order_and_complete_means_counted(
    steps: list[tuple[float, int]], warm: int, asked: int, least_s: float, is_exhausted: bool
) -> None:
    of = phases(
        warmup_requests_per_stream=warm,
        measure_requests_per_stream=asked,
        measure_min_s=least_s,
        measure_min_requests=1,
    )
    order, at_s, before = [of.stage], 0.0, 0
    for gap_s, more in steps:
        at_s += gap_s
        of.ended += more
        was = of.stage
        if step(of, at_s, is_exhausted=is_exhausted) is not was:
            order.append(of.stage)
            if of.stage is Stage.MEASURE:
                before = of.ended
            else:
                counted = of.ended - before
    assert order == [Stage.WARMUP, Stage.MEASURE, Stage.DRAIN][: len(order)]
    if of.stage is Stage.DRAIN:
        assert of.start_ns <= of.window_start_ns <= of.window_end_ns
        assert not of.is_complete or counted >= max(asked * 2, 1)
