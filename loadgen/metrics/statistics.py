"""Means and quantiles, with one convention: a quantile is a value that happened.

The q-quantile of n sorted values is the one at place ceil(q * (n - 1)), counted from 0 (numpy's `higher`); so no
quantile lies above the largest value, and an order of quantiles is an order of values. Of nothing, both are None.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.signedinteger[Any]]


def known(values: Floats) -> Floats:
    """Without the unknown (NaN) ones."""
    return values[~np.isnan(values)]


def mean(values: Floats) -> float | None:
    return float(values.mean()) if values.size else None


def ratio(over: float, under: float) -> float | None:
    """None where there is nothing to divide by."""
    return float(over / under) if under else None


def quantiles(values: Floats | Ints, wanted: tuple[float, ...]) -> list[float | None]:
    """Reorders `values` in place: a copy of ten million gaps is what a cell's memory cannot spare."""
    if not values.size:
        return [None] * len(wanted)
    places = [math.ceil(q * (values.size - 1)) for q in wanted]
    values.partition(places)
    return [float(values[place]) for place in places]


def weighted_quantiles(values: Floats, weights: Ints, wanted: tuple[float, ...]) -> list[float | None]:
    """The quantiles of each value repeated as often as its weight (a count above 0) says."""
    if not values.size:
        return [None] * len(wanted)
    order = np.argsort(values)
    reach = np.cumsum(weights[order], dtype=np.int64)
    places = [math.ceil(q * (int(reach[-1]) - 1)) for q in wanted]
    return [float(values[order[np.searchsorted(reach, place, side="right")]]) for place in places]
