"""Who sends what, when, and where to."""

from collections import Counter
from itertools import islice

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen.schedule import (
    Shard,
    arrival_seed,
    arrivals_ns,
    make_shards,
    open_shards,
    ramp_ns,
    target_of,
    to_real_ns,
)

SIZES = (st.integers(1, 500), st.integers(1, 64))
PROCESSES = st.sampled_from(["constant", "poisson", "gamma"])


@given(*SIZES)
def test_streams_are_split_whole_and_evenly(streams: int, workers: int) -> None:
    shares = [shard.streams for shard in make_shards(streams, workers)]
    assert sum(shares) == streams
    assert min(shares) >= 1
    assert max(shares) - min(shares) <= 1
    assert len(shares) == min(streams, workers)


@given(*SIZES)
def test_the_union_of_the_shards_is_the_whole_schedule(streams: int, workers: int) -> None:
    shards = make_shards(streams, workers)
    taken = [index for shard in shards for index in islice(shard.indexes(), 7)]
    assert sorted(taken) == list(range(7 * len(shards)))


def test_shards_know_their_place() -> None:
    assert [(shard.number, shard.of) for shard in make_shards(7, 3)] == [(0, 3), (1, 3), (2, 3)]
    assert [shard.streams for shard in make_shards(7, 3)] == [3, 2, 2]
    assert list(islice(make_shards(7, 3)[2].indexes(), 3)) == [2, 5, 8]


def test_a_bound_on_requests_in_flight_is_split_whole_and_never_lost() -> None:
    """A cap given to each worker as it stands would be another cap; one rounded down would limit silently."""
    assert [shard.max_in_flight for shard in open_shards(3, 8)] == [3, 3, 2]
    assert [shard.max_in_flight for shard in open_shards(4, 2)] == [1, 1]
    assert [(shard.max_in_flight, shard.streams) for shard in open_shards(2, None)] == [(None, 0), (None, 0)]


@settings(max_examples=50)
@given(PROCESSES, st.integers(0, 2**32), st.integers(0, 10_000), st.integers(1, 16))
def test_the_shards_arrivals_are_those_of_the_cell(process: str, seed: int, count: int, workers: int) -> None:
    whole = arrivals_ns(process, 100, seed, burstiness=0.5, count=count)
    assert len(whole) == count
    due = {
        index: at
        for shard in open_shards(workers, None)
        for index, at in zip(shard.indexes(), shard.part(whole).tolist(), strict=False)
    }
    assert [due[index] for index in range(count)] == whole.tolist()


@given(PROCESSES, st.integers(0, 99), st.integers(0, 6000), st.integers(0, 6000))
def test_a_longer_schedule_begins_with_the_shorter(process: str, seed: int, one: int, other: int) -> None:
    short, long = sorted((one, other))
    longer = arrivals_ns(process, 7.5, seed, count=long)
    assert arrivals_ns(process, 7.5, seed, count=short).tolist() == longer[:short].tolist()
    assert (np.diff(longer) >= 0).all()


def test_constant_arrivals_do_not_drift() -> None:
    offsets = arrivals_ns("constant", 3, 0, count=3_000_001)
    assert offsets[:4].tolist() == [0, 333_333_333, 666_666_667, 1_000_000_000]
    assert offsets[3_000_000] == 1_000_000 * 1_000_000_000


def test_a_duration_holds_all_arrivals_before_it_and_none_after() -> None:
    assert arrivals_ns("constant", 4, 0, duration_s=1).tolist() == [0, 250_000_000, 500_000_000, 750_000_000]
    whole = arrivals_ns("poisson", 50, 1, count=20_000)
    within = arrivals_ns("poisson", 50, 1, duration_s=100)
    assert within.tolist() == whole[whole < 100e9].tolist()
    assert arrivals_ns("poisson", 50, 1, count=3, duration_s=100).tolist() == whole[:3].tolist()
    assert len(arrivals_ns("gamma", 50, 1, burstiness=2, duration_s=0)) == 0


@pytest.mark.parametrize(
    ("process", "burstiness", "cv"), [("poisson", 1.0, 1.0), ("gamma", 0.25, 2.0), ("gamma", 4.0, 0.5)]
)
def test_random_gaps_have_the_mean_of_the_rate_and_their_spread(
    process: str, burstiness: float, cv: float
) -> None:
    gaps = np.diff(arrivals_ns(process, 200, 11, burstiness=burstiness, count=200_000))
    assert gaps.mean() == pytest.approx(1e9 / 200, rel=0.02)
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.02)


def test_poisson_gaps_are_exponential_and_independent() -> None:
    gaps = np.diff(arrivals_ns("poisson", 1000, 5, count=100_000))
    assert (gaps > 1e6).mean() == pytest.approx(np.exp(-1), abs=0.01)
    assert (gaps > 3e6).mean() == pytest.approx(np.exp(-3), abs=0.005)
    assert abs(np.corrcoef(gaps[1:], gaps[:-1])[0, 1]) < 0.02


def test_a_seed_fixes_a_schedule_and_another_one_changes_it() -> None:
    assert arrivals_ns("poisson", 9, 1, count=5).tolist() == arrivals_ns("poisson", 9, 1, count=5).tolist()
    assert arrivals_ns("poisson", 9, 1, count=5).tolist() != arrivals_ns("poisson", 9, 2, count=5).tolist()
    seeds = {
        arrival_seed(seed, process, rate, repeat)
        for seed in (1, 2) for process in ("poisson", "gamma2") for rate in (1.0, 2.0) for repeat in (0, 1)
    }  # fmt: skip
    assert len(seeds) == 16


def test_a_schedule_without_end_or_of_no_process_is_refused() -> None:
    with pytest.raises(ValueError, match="count or a duration"):
        arrivals_ns("poisson", 1, 1)
    with pytest.raises(ValueError, match="unknown arrival process uniform"):
        arrivals_ns("uniform", 1, 1, count=1)


@given(*SIZES)
def test_the_ramp_spreads_the_cells_streams_whatever_the_workers(streams: int, workers: int) -> None:
    starts = [ramp_ns(shard, streams, 2.0) for shard in make_shards(streams, workers)]
    assert [len(part) for part in starts] == [shard.streams for shard in make_shards(streams, workers)]
    together = sorted(np.concatenate(starts).tolist())
    assert together == ramp_ns(Shard(0, 1, streams), streams, 2.0).tolist()
    assert together[0] == 0
    assert together[-1] < 2_000_000_000


def test_a_ramp_is_no_burst() -> None:
    assert ramp_ns(Shard(0, 1, 4), 4, 1.0).tolist() == [0, 250_000_000, 500_000_000, 750_000_000]
    assert ramp_ns(Shard(0, 1, 3), 3, 0.0).tolist() == [0, 0, 0]


def test_a_fast_clock_brings_arrivals_closer() -> None:
    assert to_real_ns(arrivals_ns("constant", 2, 0, count=3), 8).tolist() == [0, 62_500_000, 125_000_000]


def test_requests_go_round_the_endpoints_smoothly() -> None:
    """The example of nginx's smooth weighted round robin: 5, 1, 1 is a a b a c a a."""
    assert [target_of(index, [5, 1, 1]) for index in range(7)] == [0, 0, 1, 0, 2, 0, 0]
    assert [target_of(index, [1, 1, 1]) for index in range(6)] == [0, 1, 2, 0, 1, 2]
    assert [target_of(index, [10, 10]) for index in range(4)] == [0, 1, 0, 1]
    assert target_of(10**12, [3]) == 0


@given(st.lists(st.integers(1, 20), min_size=1, max_size=6), st.integers(0, 10**9))
def test_each_endpoint_gets_exactly_its_weight(weights: list[int], first: int) -> None:
    got = Counter(target_of(first + step, weights) for step in range(sum(weights)))
    assert [got[place] for place in range(len(weights))] == weights
