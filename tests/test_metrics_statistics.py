"""One convention of quantiles."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.metrics.statistics import mean, quantiles, ratio, weighted_quantiles

WANTED = (0.0, 0.5, 0.9, 0.99, 1.0)


def test_of_three_values_each_quantile_is_one_of_them() -> None:
    # field bug 27: places ceil(q * 2) = 0, 1, 2, 2, 2
    assert quantiles(np.array([30.0, 10.0, 20.0]), WANTED) == [10, 20, 30, 30, 30]


def test_of_nothing_all_is_unknown() -> None:
    empty = np.array([], np.float64)
    assert mean(empty) is None
    assert quantiles(empty, (0.5, 0.9)) == [None, None]
    assert weighted_quantiles(empty, np.array([], np.int64), (0.5,)) == [None]
    assert ratio(1, 0) is None


@given(st.lists(st.floats(-1e12, 1e12), min_size=1, max_size=50))
def test_they_are_numpys_higher_ones(values: list[float]) -> None:
    expected = [float(np.quantile(values, q, method="higher")) for q in WANTED]
    assert quantiles(np.array(values), WANTED) == expected


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 5)), min_size=1, max_size=20))
def test_a_weight_is_a_value_repeated(pairs: list[tuple[int, int]]) -> None:
    values, weights = (np.array(column) for column in zip(*pairs, strict=True))
    spread = np.repeat(values.astype(np.float64), weights)
    assert weighted_quantiles(values.astype(np.float64), weights, WANTED) == quantiles(spread, WANTED)


def test_whole_numbers_are_not_rounded() -> None:
    assert quantiles(np.array([2**53 - 1, 1]), (1.0,)) == [pytest.approx(2**53 - 1, abs=0)]
