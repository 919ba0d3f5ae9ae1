"""Which worker sends which request. Pure arithmetic; the union of all shards is the whole schedule."""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Shard:
    """Worker `number` of `of` workers, with its part of the cell's streams."""

    number: int
    of: int
    streams: int

    def indexes(self) -> Iterator[int]:
        """Request indexes that are this worker's, ascending, without end; no two shards share one."""
        index = self.number
        while True:
            yield index
            index += self.of


def make_shards(streams: int, workers: int) -> list[Shard]:
    """The streams of a cell split over at most `workers` workers, as evenly as whole streams allow."""
    used = min(streams, workers)
    base, more = divmod(streams, used)
    return [Shard(number, used, base + (number < more)) for number in range(used)]
