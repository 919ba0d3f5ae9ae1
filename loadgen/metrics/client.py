"""What a cell's row says of the client: how late it read and sent, whose stamps it has, how busy it was.

Arithmetic on what the workers say of themselves (`workers`) and on the cell's rows of `requests`. See docs/client.md.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from loadgen.load.evidence import WorkerEvidence
from loadgen.metrics.columns import chunks_of, span_ns
from loadgen.metrics.statistics import Ints, known, quantiles, ratio
from loadgen.metrics.window import Window
from loadgen.records import StampSource

_MS = 1e6


def client_figures(
    requests: pa.Table, window: Window, workers: Sequence[WorkerEvidence]
) -> dict[str, float | str | None]:
    """The columns of `cells` that speak of the client. Real time, since it is the client's own; null: unknown."""
    reads, chunks = _sum(workers, "reads"), _sum(workers, "chunks")
    return {
        **_send_lags_ms(requests),
        "client_lag_p99_ms": _worst(workers, lambda one: one.read_lag_p99_ms),
        "loop_lag_p99_ms": _worst(workers, lambda one: one.loop_lag_p99_ms),
        "worker_cpu": _worst(workers, lambda one: one.cpu),
        "cpu_steal_share": _worst(workers, lambda one: one.cpu_steal_share),
        "stamp_source": stamp_source(reads, _sum(workers, "unstamped_reads")),
        "unstamped_read_share": ratio(_sum(workers, "unstamped_reads"), reads),
        "shared_chunk_share": ratio(_sum(workers, "shared_chunks"), chunks),
        "start_spread_ms": _start_spread_ms(workers),
        "worker_chunk_rate": max(chunk_rates(requests, window).values(), default=None),
    }


def stamp_source(reads: int, unstamped: int) -> StampSource | None:
    """Whose stamps the reads have; None of no reads."""
    if not reads:
        return None
    if not unstamped:
        return StampSource.KERNEL
    return StampSource.USER if unstamped == reads else StampSource.MIXED


def chunk_rates(requests: pa.Table, window: Window) -> dict[str, float]:
    """Chunks that came to each worker inside the window, a second of real time; empty without a window."""
    real_s = window.length_ns / 1e9
    if real_s <= 0:
        return {}
    chunks = chunks_of(requests)
    sent_ns: Ints = requests["sent_ns"].fill_null(0).to_numpy()
    at_ns = chunks.at_ns + np.repeat(sent_ns, chunks.lengths)
    is_inside = (at_ns >= window.start_ns) & (at_ns <= window.end_ns)
    per_request = np.bincount(chunks.request[is_inside], minlength=requests.num_rows)
    counts: Counter[str] = Counter()
    for worker, count in zip(requests["worker"].to_pylist(), per_request.tolist(), strict=True):
        counts[worker] += count
    return {worker: count / real_s for worker, count in counts.items()}


def _send_lags_ms(requests: pa.Table) -> dict[str, float | None]:
    lags_ns = known(span_ns(requests, "scheduled_ns", "sent_ns"))
    found = quantiles(lags_ns, (0.5, 1.0))
    names = ("send_lag_p50_ms", "send_lag_max_ms")
    return {name: None if lag is None else lag / _MS for name, lag in zip(names, found, strict=True)}


def _start_spread_ms(workers: Iterable[WorkerEvidence]) -> float | None:
    firsts = [one.first_sent_ns for one in workers if one.first_sent_ns is not None]
    return (max(firsts) - min(firsts)) / _MS if firsts else None


def _worst(
    workers: Iterable[WorkerEvidence], figure: Callable[[WorkerEvidence], float | None]
) -> float | None:
    return max((value for one in workers if (value := figure(one)) is not None), default=None)


def _sum(workers: Iterable[Any], name: str) -> int:
    return sum(getattr(one, name) for one in workers)
