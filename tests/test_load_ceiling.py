"""The ladder of rates as arithmetic, and one real step of it: the worker's own code against the sink."""

import os

from hypothesis import given
from hypothesis import strategies as st

from loadgen.calibration import Shape
from loadgen.load.ceiling import Step, _broken, _ceiling, _play, next_rate
from loadgen.sink import running_sink

SHAPE = Shape(8, 480, 4000)


def step(rate: float, broke: str | None = None) -> Step:
    return Step(rate, rate, 0.2, 0.5, 490, broke)


def climb(ceiling: float, first: float) -> list[float]:
    steps: list[Step] = []
    while (rate := next_rate(steps, first)) is not None:
        steps.append(step(rate, None if rate <= ceiling else "cpu"))
    return [one.rate for one in steps]


def test_a_ladder_doubles_and_then_closes_in() -> None:
    assert [round(rate) for rate in climb(60_000, 10_000)] == [10_000, 20_000, 40_000, 80_000, 56_569, 67_272]
    assert [round(rate) for rate in climb(700, 2000)] == [2000, 1000, 500, 707, 595]


@given(st.floats(500, 399_000), st.floats(1, 1e6))
def test_a_ladder_ends_near_the_ceiling_in_few_steps(ceiling: float, first: float) -> None:
    rates = climb(ceiling, first)
    best = max((rate for rate in rates if rate <= ceiling), default=0)
    assert len(rates) <= 16
    assert best * 2 > min(ceiling, 400_000 / 2)
    assert (
        best == 0
        or min((rate for rate in rates if rate > ceiling), default=best) / best <= 1.3
        or best > 200_000
    )


def test_what_breaks_a_rate() -> None:
    assert _broken(1000, 1000, 0.3, 0.5) is None
    assert _broken(1000, 1000, 0.3, 0.91) == "cpu"
    assert _broken(1000, 1000, 5.1, 0.51) == "lag"
    assert _broken(1000, 1000, 5.1, 0.5) == "others"
    assert _broken(1000, 940, 0.3, 0.5) == "sink"
    assert _broken(1000, 1000, None, 0.5) is None


def test_a_ceiling_is_the_best_that_was_held_and_says_what_broke_next() -> None:
    found = _ceiling(SHAPE, [step(10), step(40, "lag"), step(20), step(80, "cpu")], is_apart=True)
    assert (found.chunks_per_s, found.limit, found.is_lower_bound) == (20, "lag", False)
    assert found.shape == Shape(8, 490, 4000), "the event's real size"
    assert _ceiling(SHAPE, [step(10), step(20, "sink")], is_apart=True).is_lower_bound
    assert _ceiling(SHAPE, [step(10), step(20, "others")], is_apart=True).is_lower_bound
    assert _ceiling(SHAPE, [step(10), step(20, "cpu")], is_apart=False).is_lower_bound
    assert _ceiling(SHAPE, [step(10)], is_apart=True).is_lower_bound, "nothing broke"
    assert _ceiling(SHAPE, [step(10, "cpu")], is_apart=True).chunks_per_s == 0


def test_a_step_is_played_by_the_sink_to_the_workers_own_code() -> None:
    with running_sink("-w", "40", "-n", "256") as sink:
        os.sched_setaffinity(sink.pid, {min(os.sched_getaffinity(0))})
        played = _play(sink, SHAPE, 800.0)
    assert 0.5 * 800 < played.came <= 1.1 * 800
    assert 400 < played.event_bytes < 600
    assert 0 < played.cpu < 1
    assert played.lag_p99_ms is not None
