"""When a window opens: counts reached, and an output rate that has settled."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.load.windows import is_stationary, measure_requests, warmup_requests
from loadgen.schedule import Shard, make_shards, open_shards
from loadgen.spec import Load


def load(**keys: object) -> Load:
    return Load.model_validate({"concurrency": [8], **keys})


def test_a_workers_counts_are_those_of_its_streams() -> None:
    asked = load(warmup_requests_per_stream=2, measure_requests_per_stream=3, measure_min_requests=8)
    assert [warmup_requests(asked, shard) for shard in make_shards(7, 2)] == [8, 6]
    assert [measure_requests(asked, shard) for shard in make_shards(7, 2)] == [12, 9]
    assert measure_requests(asked, Shard(0, 1, 1)) == 8


def test_in_open_loop_a_worker_has_its_part_of_the_least_counts() -> None:
    asked = Load.model_validate({"rate": [3], "warmup_min_requests": 5, "measure_min_requests": 8})
    assert [warmup_requests(asked, shard) for shard in open_shards(2, None)] == [3, 3]
    assert [measure_requests(asked, shard) for shard in open_shards(3, None)] == [3, 3, 3]


def test_a_start_up_is_not_stationary_and_what_follows_is() -> None:
    """A slow first second must not stand in the window."""
    steady = [100] * 16
    assert not is_stationary([100] * 15)
    assert is_stationary(steady)
    assert not is_stationary([10] * 8 + [100] * 8)
    assert not is_stationary(list(range(16)))
    assert not is_stationary(list(range(16, 0, -1)))
    assert is_stationary([0, 0, 0, 0, 10, 50, *steady])


def test_nothing_is_not_stationary() -> None:
    assert not is_stationary([])
    assert not is_stationary([0] * 40)
    assert not is_stationary([0] * 15 + [5])


def test_a_rise_of_a_tenth_is_called_equal_and_more_is_not() -> None:
    assert is_stationary([100] * 8 + [110] * 8)
    assert not is_stationary([100] * 8 + [112] * 8)


def test_noise_is_not_taken_for_a_trend() -> None:
    draws = np.random.default_rng(3).poisson(5, (400, 32))
    assert np.mean([is_stationary(row.tolist()) for row in draws]) > 0.9


def test_requests_longer_than_the_least_span_are_seen_whole_in_time() -> None:
    """One stream: 30 ticks of prefill, 10 of decode. It settles, since the span grows with the warm-up."""
    counts = ([0] * 30 + [50] * 10) * 12
    assert not is_stationary(counts[:36])
    assert any(is_stationary(counts[:n]) for n in range(len(counts)))


@pytest.mark.parametrize("ticks", [16, 40, 100])
def test_a_steady_climb_is_never_stationary(ticks: int) -> None:
    assert not is_stationary([n * n for n in range(ticks)])


@given(st.lists(st.integers(0, 10**9), max_size=200))
def test_any_counts_have_an_answer(counts: list[int]) -> None:
    assert is_stationary(counts) in (True, False)
