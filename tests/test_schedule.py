"""Who sends what."""

from itertools import islice

from hypothesis import given
from hypothesis import strategies as st

from loadgen.schedule import make_shards

SIZES = (st.integers(1, 500), st.integers(1, 64))


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
