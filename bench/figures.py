"""From what a transport left of a play to figures: whose lag, how far from the sink's own stamps, what it cost."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from loadgen.sink.truth import SentRequest
from loadgen.transport.exchange import ClockOffsets, Exchange, Integers

_STAMP = re.compile(rb'"sts":"(\d{20})"}\n\n')
_ID = re.compile(rb'"id":"([0-9a-f]{32})"')
US, MS = 1e3, 1e6


@dataclass(frozen=True, slots=True)
class Seen:
    """The stamped events of one stream (role, content, finish), in order; all columns are parallel, times in ns."""

    request: int
    sent_ns: int  # the client's own stamp of the request's start
    event_ns: Integers  # the sink's stamp before its send
    arrival_ns: Integers  # what the client records
    user_ns: Integers  # when the client had read it
    is_alone: Integers  # no other stamped event in that read
    kernel_ns: Integers  # the reads that have a kernel stamp: that stamp,
    own_lag_ns: Integers  # and how much later ours is
    reads: int


def seen(exchange: Exchange, offsets: ClockOffsets) -> Seen:
    """Raises ValueError on an exchange without the sink's stamps."""
    found = list(_STAMP.finditer(exchange.body))
    name = _ID.search(exchange.body)
    if not found or name is None or exchange.sent_ns is None:
        raise ValueError("not a stream of the sink")
    reads = offsets.reads(exchange)
    read = np.searchsorted(reads.end, [match.end() for match in found], side="left")
    _, place, count = np.unique(read, return_inverse=True, return_counts=True)
    return Seen(
        request=int(name[1], 16),
        sent_ns=exchange.sent_ns,
        event_ns=np.array([int(match[1]) for match in found], np.int64),
        arrival_ns=reads.arrival_ns[read],
        user_ns=reads.user_ns[read],
        is_alone=(count == 1)[place],
        kernel_ns=reads.arrival_ns[reads.is_kernel],
        own_lag_ns=(reads.user_ns - reads.arrival_ns)[reads.is_kernel],
        reads=len(reads.end),
    )


def lags(streams: Sequence[Seen]) -> dict[str, Any]:
    """Lags in the steady state (all streams run). `arrival_lag_us` counts events alone in their read."""
    from_ns = max(int(stream.event_ns[0]) for stream in streams)
    to_ns = min(int(stream.event_ns[-1]) for stream in streams)
    event_ns, arrival_ns, user_ns, alone, kernel_ns, own_ns = (
        np.concatenate([getattr(stream, name) for stream in streams])
        for name in ("event_ns", "arrival_ns", "user_ns", "is_alone", "kernel_ns", "own_lag_ns")
    )
    steady = (event_ns >= from_ns) & (event_ns < to_ns)
    alone &= steady
    return {
        "user_lag_us": quantiles((user_ns - event_ns)[steady], US),
        "user_lag_all_us": quantiles(user_ns - event_ns, US),
        "arrival_lag_us": quantiles((arrival_ns - event_ns)[alone], US),
        "own_lag_us": quantiles(own_ns[(kernel_ns >= from_ns) & (kernel_ns < to_ns)], US),
        "own_lag_all_us": quantiles(own_ns, US),
        "shared_share": 1 - float(alone.sum()) / max(1, int(steady.sum())),
        "kernel_share": len(own_ns) / sum(stream.reads for stream in streams),
    }


def against_truth(streams: Sequence[Seen], sent: Sequence[SentRequest]) -> dict[str, Any]:
    """TTFT (first content chunk from the request's start) and gaps as recorded, beside the sink's own."""
    truth = {row.request: row for row in sent}
    ours = np.array([stream.arrival_ns[1] - stream.sent_ns for stream in streams])
    true = np.array(
        [truth[stream.request].first_ns - truth[stream.request].read_ns for stream in streams], np.int64
    )
    gaps = np.concatenate([np.diff(stream.arrival_ns[1:-1]) for stream in streams])
    true_gaps = np.concatenate([np.diff(stream.event_ns[1:-1]) for stream in streams])
    return {
        "ttft_ms": quantiles(ours, MS),
        "true_ttft_ms": quantiles(true, MS),
        "ttft_error_ms": float((ours - true).mean()) / MS,
        "gap_ms": quantiles(gaps, MS),
        "true_gap_ms": quantiles(true_gaps, MS),
    }


def quantiles(values_ns: Integers, unit_ns: float) -> dict[str, float] | None:
    """p50, p99, max and mean, in units of `unit_ns`; None of nothing."""
    if not len(values_ns):
        return None
    p50, p99 = np.quantile(values_ns, [0.5, 0.99])
    found = {"p50": p50, "p99": p99, "max": values_ns.max(), "mean": values_ns.mean()}
    return {name: round(float(value) / unit_ns, 4) for name, value in found.items()}
