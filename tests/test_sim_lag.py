"""The account of the simulator's own lateness."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.sim.lag import Lag


def test_empty_and_reset() -> None:
    lag = Lag()
    assert (lag.p99_ms, lag.max_ms) == (0.0, 0.0)
    lag.record(5.0, 3)
    lag.reset()
    assert (lag.p99_ms, lag.max_ms) == (0.0, 0.0)


def test_one_late_chunk_in_a_hundred_is_not_the_99th_percentile_but_two_are() -> None:
    lag = Lag()
    lag.record(1.0, 99)
    lag.record(500.0, 1)
    lag.record(7.0, 0)
    assert lag.max_ms == 500.0
    assert lag.p99_ms == pytest.approx(1.0, rel=0.06)
    lag.record(500.0, 1)
    assert lag.p99_ms == 500.0


@given(st.lists(st.floats(-1, 10_000), min_size=1, max_size=300))
def test_the_percentile_is_right_within_its_class(values: list[float]) -> None:
    lag = Lag()
    for value in values:
        lag.record(value, 1)
    ordered = sorted(max(0.0, value) for value in values)
    true = ordered[-1 - int(len(values) * 0.01)]
    assert true <= lag.p99_ms + 1e-9
    assert lag.p99_ms <= true * 1.06 + 0.001
