import json
import math
from collections import Counter, OrderedDict
from enum import IntEnum
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.grading.wire import TooLargeError, decode, dumps, encode, same


def through(value):
    """As it arrives on the other side."""
    return json.loads(dumps(encode(value)))


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.complex_numbers(allow_nan=False)
)
HASHABLE = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=5)
VALUES = st.recursive(
    HASHABLE,
    lambda inner: st.lists(inner) | st.dictionaries(HASHABLE, inner) | st.tuples(inner, inner) | st.sets(HASHABLE),
    max_leaves=20,
)  # fmt: skip


@given(VALUES)
def test_a_value_survives_the_way_there_and_back(value):
    back = decode(through(value))
    assert back == value
    assert type(back) is type(value)
    assert same(encode(value), through(value))


@given(
    VALUES,
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda i: st.lists(i) | st.dictionaries(st.text(), i),
    ),
)
def test_comparing_with_any_tree_never_raises(value, hostile):
    assert same(encode(value), hostile) in (True, False)


class Pair(NamedTuple):
    a: int
    b: int


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        ([1, [2]], (1, (2,))),
        (0.3, 0.1 + 0.2),
        (1.0, 1),
        (1, 1.0),
        (1e9, 1e9 + 1),
        (float("nan"), float("nan")),
        ({1, 2}, frozenset([2, 1])),
        ({"a": 1, "b": (1,)}, OrderedDict(b=[1], a=1)),
        ({"x": 2}, Counter("xx")),
        ({1: 2}, {1.0: 2}),
        (2**100, 2**100),
        ((1, 2), Pair(1, 2)),
        (2, IntEnum("Size", ["S", "M"]).M),
    ],
)  # fmt: skip
def test_equal(expected, got):
    assert same(encode(expected), through(got))


class AlwaysEqual(int):
    def __eq__(self, other):
        return True

    __hash__ = int.__hash__


@pytest.mark.parametrize(
    ("expected", "got"),
    [
        (1, True),
        (True, 1),
        ([True], [1]),
        (0, False),
        ({True: 1}, {1: 1}),
        (1, "1"),
        (1, 2),
        (3, AlwaysEqual(4)),
        (1, 1.0000001),
        (0.5, 0.50001),
        (1.0, 10**400),
        ([1, 2], [1]),
        ([1], [1, 1]),
        ({"a": 1}, {"a": 1, "b": 1}),
        ({"a": 1}, {"a": 2}),
        ({1, 2}, {1, 3}),
        ([], None),
        ([], {}),
        (None, 0),
        ([0, 1], range(2)),
        (float("inf"), -math.inf),
        ("a", b"a"),
    ],
)
def test_not_equal(expected, got):
    assert not same(encode(expected), through(got))


@pytest.mark.parametrize(
    "hostile", [{"int": "zz"}, {"int": 3}, {"dict": 3}, {"dict": [[1]]}, {"set": None}, {}, {"a": 1, "b": 2}]
)
def test_a_malformed_tree_equals_nothing(hostile):
    assert not any(same(encode(value), hostile) for value in (1, 1.5, {1: 2}, {1}, [1], "a", None, {}))


def test_repeated_pairs_do_not_stand_for_missing_ones():
    assert not same(encode({"a": 1, "b": 1}), {"dict": [["a", 1], ["a", 1]]})


def test_values_without_end_are_cut():
    ring = []
    ring.append(ring)
    assert "other" in json.dumps(encode(ring))
    shared = [0]
    for _ in range(30):
        shared = [shared, shared]
    with pytest.raises(TooLargeError):
        encode(shared)
