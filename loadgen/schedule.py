"""Which worker sends which request, when it is due, and which endpoint gets it. Pure arithmetic from a seed.

The union of all shards is the whole schedule, whatever the number of workers. Offsets are absolute, so that a late
start never delays the ones after it.
"""

import hashlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Offsets = NDArray[np.int64]

_NS = 1_000_000_000
_BLOCK = 4096  # gaps drawn at a time; a generator's draws do not depend on how they are grouped


@dataclass(frozen=True, slots=True)
class Shard:
    """Worker `number` of `of` workers, with its part of the cell's streams (closed loop; 0 in open loop) and of the
    bound on requests in flight (open loop; None: no bound).
    """

    number: int
    of: int
    streams: int
    max_in_flight: int | None = None

    def indexes(self) -> Iterator[int]:
        """Request indexes that are this worker's, ascending, without end; no two shards share one."""
        index = self.number
        while True:
            yield index
            index += self.of

    def part(self, whole: Offsets) -> Offsets:
        """This worker's part of a schedule: its i-th entry belongs to the i-th of `indexes()`."""
        return whole[self.number :: self.of]


def make_shards(streams: int, workers: int) -> list[Shard]:
    """The streams of a closed loop split over at most `workers` workers, as evenly as whole streams allow."""
    return [Shard(number, of, share) for number, of, share in _split(streams, workers)]


def open_shards(workers: int, max_in_flight: int | None) -> list[Shard]:
    """An open loop split over `workers` workers; each has its part of the bound on requests in flight."""
    if max_in_flight is None:
        return [Shard(number, workers, 0) for number in range(workers)]
    return [Shard(number, of, 0, share) for number, of, share in _split(max_in_flight, workers)]


def _split(whole: int, workers: int) -> Iterator[tuple[int, int, int]]:
    used = min(whole, workers)
    base, more = divmod(whole, used)
    for number in range(used):
        yield number, used, base + (number < more)


def arrival_seed(seed: int, process: str, rate: float | None, repeat: int) -> int:
    """The seed of one schedule: the same for every platform, config and workload, so that they meet equal load."""
    text = f"arrivals|{seed}|{process}|{rate}|{repeat}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")


def arrivals_ns(
    process: str,
    rate: float,
    seed: int,
    *,
    burstiness: float = 1.0,
    count: int | None = None,
    duration_s: float | None = None,
) -> Offsets:
    """Offsets of the arrivals in ns, ascending: the first `count`, or all before `duration_s`, or the fewer of both.

    `constant`: the i-th at i / rate. `poisson`: exponential gaps. `gamma`: gaps of shape `burstiness` and mean
    1 / rate, whose coefficient of variation is 1 / sqrt(burstiness); 1 is poisson, less comes in bursts. A longer
    schedule of the same seed begins with the shorter one. Raises ValueError for another process or no end.
    """
    if count is None and duration_s is None:
        raise ValueError("a schedule needs a count or a duration")
    most = math.inf if count is None else count
    end_ns = math.inf if duration_s is None else duration_s * _NS
    if process == "constant":
        within = math.inf if duration_s is None else math.ceil(duration_s * rate)
        offsets = np.arange(int(min(most, within))) * (_NS / rate)
    else:
        offsets = _random_offsets(process, rate, seed, burstiness, most, end_ns)
    return _whole_ns(offsets[offsets < end_ns])


def _random_offsets(
    process: str, rate: float, seed: int, burstiness: float, most: float, end_ns: float
) -> NDArray[np.float64]:
    generator = np.random.default_rng(seed)
    shape = {"poisson": 1.0, "gamma": burstiness}.get(process)
    if shape is None:
        raise ValueError(f"unknown arrival process {process}; use constant, poisson or gamma")
    blocks: list[NDArray[np.float64]] = []
    drawn, reached_ns = 0, 0.0
    while drawn < most and reached_ns < end_ns:
        gaps = generator.gamma(shape, _NS / rate / shape, _BLOCK)
        blocks.append(reached_ns + np.cumsum(gaps))
        drawn, reached_ns = drawn + _BLOCK, float(blocks[-1][-1])
    offsets = np.concatenate(blocks) if blocks else np.empty(0)
    return offsets if most == math.inf else offsets[: int(most)]


def _whole_ns(offsets: NDArray[np.floating[Any]]) -> Offsets:
    whole: Offsets = np.rint(offsets).astype(np.int64)
    return whole


def to_real_ns(offsets: Offsets, time_scale: float) -> Offsets:
    """Offsets of the server's time as offsets of this host's clock."""
    return _whole_ns(offsets / time_scale)


def ramp_ns(shard: Shard, streams: int, ramp_s: float) -> Offsets:
    """When each of a shard's streams starts: the cell's `streams` spread evenly over `ramp_s`, the first at once."""
    of_cell = np.arange(shard.number, streams, shard.of)
    return _whole_ns(of_cell * (ramp_s * _NS / streams))


def target_of(index: int, weights: Sequence[int]) -> int:
    """Which endpoint a request goes to: smooth weighted round robin as nginx does it, a function of the index alone.

    Over any `sum(weights)` consecutive indexes (less their common divisor) each endpoint gets exactly its weight.
    """
    cycle = target_cycle(tuple(weights))
    return cycle[index % len(cycle)]


@lru_cache(maxsize=64)
def target_cycle(weights: tuple[int, ...]) -> tuple[int, ...]:
    """One turn of the round robin, after which it repeats. Weights are whole numbers from 1."""
    divisor = math.gcd(*weights)
    shares = [weight // divisor for weight in weights]
    total, due, cycle = sum(shares), [0] * len(shares), []
    for _ in range(total):
        due = [owed + share for owed, share in zip(due, shares, strict=True)]
        chosen = due.index(max(due))
        due[chosen] -= total
        cycle.append(chosen)
    return tuple(cycle)
