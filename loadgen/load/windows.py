"""When a cell's measurement window opens and closes, as arithmetic; `streams` watches the clock and asks here.

Closed loop: counts are a worker's, from its streams. Open loop: there are no streams, and a worker has its part of
the least counts. The window opens when the count of ended requests is reached and the output rate is stationary, at
the latest after `warmup_max_s`.
"""

from collections.abc import Sequence

import numpy as np

from loadgen.schedule import Shard
from loadgen.spec import Load

TICK_S = 0.25  # of the server's time: one entry of `counts_per_tick`
_LEAST_TICKS = 16
_BLOCKS = 8
_TREND = 0.10  # halves that differ by less are called equal
_NOISE = 2.0  # standard errors of the difference: what chance alone does


def warmup_requests(load: Load, shard: Shard) -> int:
    """How many requests of this worker end before its window may open."""
    return max(load.warmup_requests_per_stream * shard.streams, _part(load.warmup_min_requests, shard))


def measure_requests(load: Load, shard: Shard) -> int:
    """How many requests of this worker end inside its window before it may close."""
    return max(load.measure_requests_per_stream * shard.streams, _part(load.measure_min_requests, shard))


def _part(whole: int, shard: Shard) -> int:
    return -(-whole // shard.of)


def is_stationary(counts_per_tick: Sequence[int]) -> bool:
    """Whether the output rate has settled, from what came in each tick (reads, bytes or tokens) since the first send.

    The rule: of the later half of all ticks (at least 16), cut into 8 blocks, the mean of the last four blocks
    differs from that of the four before by at most a tenth of their mean, or by at most two standard errors of that
    difference. The span grows with the warm-up, so that requests longer than 16 ticks come to be seen whole. A half
    without any output is not stationary.
    """
    ticks = max(_LEAST_TICKS, len(counts_per_tick) // 2) // _BLOCKS * _BLOCKS
    if len(counts_per_tick) < ticks:
        return False
    blocks = np.asarray(counts_per_tick[-ticks:], dtype=np.float64).reshape(_BLOCKS, -1).mean(axis=1)
    earlier, later = blocks[: _BLOCKS // 2], blocks[_BLOCKS // 2 :]
    error = np.sqrt((earlier.var(ddof=1) + later.var(ddof=1)) / (_BLOCKS // 2))
    allowed = max(_TREND * blocks.mean(), _NOISE * error)
    return bool(min(earlier.mean(), later.mean()) > 0 and abs(later.mean() - earlier.mean()) <= allowed)
