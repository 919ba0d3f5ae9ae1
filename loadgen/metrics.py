"""Tables -> the figures of a cell. Pure; any figure can be computed again from a finished run.

Conventions. Latencies are over the ok requests sent in the measurement window, from `sent` (closed loop).
Quantiles are values that happened (numpy's `higher`), and stand beside their n. Throughput counts the tokens whose
chunk arrived inside the window, whichever phase their request belongs to; the tokens of a failed request are of no
use to anybody and do not count, those of one that we cut do. All durations are in the server's time:
real time x time scale. What is unknown is None.
"""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from loadgen.records import Outcome, Phase

_NS = 1_000_000_000

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Window:
    """The counted span of a cell, in monotonic ns; `time_scale` turns its length into the server's time."""

    start_ns: int
    end_ns: int
    time_scale: float

    @property
    def seconds(self) -> float:
        """Its length in the server's time."""
        return (self.end_ns - self.start_ns) / _NS * self.time_scale

    def holds(self, at_ns: int | None) -> bool:
        return at_ns is not None and self.start_ns <= at_ns <= self.end_ns


def summarize(requests: pa.Table, window: Window) -> Row:
    """The measured columns of a `cells` row, from the `requests` rows of one execution."""
    rows = requests.to_pylist()
    ok = [row for row in rows if row["outcome"] == Outcome.OK]
    useful = [row for row in rows if row["outcome"] in (Outcome.OK, Outcome.CUT)]
    counted = [row for row in ok if row["phase"] == Phase.MEASURE]
    return {
        "window_start_ns": window.start_ns,
        "window_end_ns": window.end_ns,
        "window_s": window.seconds,
        **_counts(rows),
        "n": len(counted),
        "output_tps": _per_second(tokens_inside(useful, window), window),
        "request_rate": _per_second(sum(window.holds(row["done_ns"]) for row in ok), window),
        "compat_output_tps": _compat_output_tps(ok, rows, window.time_scale),
        "stream_tps": _mean(stream_tps(row) for row in counted),
        **latencies(counted, window.time_scale),
        "accept_length": accept_length(counted),
        "prompt_tokens_mean": _mean(row["prompt_tokens"] for row in counted),
        "cached_fraction": cached_fraction(counted),
        "in_flight_mean": in_flight_mean(rows, window),
        "send_lag_p99_ms": _quantile(
            [_ms(row["sent_ns"] - row["scheduled_ns"]) for row in rows if row["sent_ns"]], 0.99
        ),
    }


def _counts(rows: Sequence[Row]) -> Row:
    outcomes = Counter(row["outcome"] for row in rows)
    ok, cut = outcomes[Outcome.OK], outcomes[Outcome.CUT]
    ended = Counter(
        row["outcome"] for row in rows if row["phase"] == Phase.MEASURE and row["outcome"] != Outcome.CUT
    )
    in_window = sum(ended.values())
    return {
        "sent": len(rows),
        "ok": ok,
        "cut": cut,
        "errors": len(rows) - ok - cut,
        "outcomes": json.dumps(dict(sorted(outcomes.items()))),
        "error_rate": (in_window - ended[Outcome.OK]) / in_window if in_window else None,
    }


def ttft_ns(row: Row) -> int | None:
    """First chunk with text (reasoning counts, a role-only chunk does not) since sending; None without one."""
    return _since_sent(row, "first_token_ns")


def tpot_ns(row: Row) -> float | None:
    """(last token - first token) / (output tokens - tokens of the first chunk).

    None when nothing follows the first chunk, or when its token count is unknown.
    """
    counts = row["chunk_tokens"]
    if not counts or row["output_tokens"] is None:
        return None
    later = row["output_tokens"] - counts[0]
    return (row["last_token_ns"] - row["first_token_ns"]) / later if later > 0 else None


def stream_tps(row: Row) -> float | None:
    """Output tokens over the whole request's time, prefill included, in the server's time; None if unknown."""
    if (
        row["output_tokens"] is None
        or not row["sent_ns"]
        or not row["done_ns"]
        or row["done_ns"] <= row["sent_ns"]
    ):
        return None
    return float(row["output_tokens"] / (row["done_ns"] - row["sent_ns"]) * _NS / row["time_scale"])


def latencies(rows: Sequence[Row], time_scale: float) -> Row:
    """Mean and quantiles of each latency, in ms of the server's time."""
    gaps = [
        later - earlier
        for row in rows
        for earlier, later in zip(row["chunk_ns"], row["chunk_ns"][1:], strict=False)
    ]
    series: dict[str, list[float | None]] = {
        "ttft": [ttft_ns(row) for row in rows],
        "ttfa": [_since_sent(row, "first_answer_ns") for row in rows],
        "tpot": [tpot_ns(row) for row in rows],
        "e2e": [_since_sent(row, "done_ns") for row in rows],
        "chunk_gap": list(gaps),
    }
    figures: Row = {}
    for name, values_ns in series.items():
        values = [_ms(value) * time_scale for value in values_ns if value is not None]
        figures[f"{name}_mean_ms"] = _mean(values)
        for label, q in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
            figures[f"{name}_{label}_ms"] = _quantile(values, q)
    return figures


def tokens_inside(rows: Iterable[Row], window: Window) -> float | None:
    """Output tokens whose chunk arrived inside the window.

    Where a server gives no running count, a request's total is spread evenly over its chunks (the row's
    `token_source` says so). None when a request that was answered inside the window has no count at all.
    """
    total = 0.0
    for row in rows:
        inside = [window.holds(row["sent_ns"] + offset) for offset in row["chunk_ns"]]
        if not any(inside):
            continue
        if row["chunk_tokens"] is not None:
            counts = [0, *row["chunk_tokens"]]
            total += sum(counts[n + 1] - counts[n] for n, is_inside in enumerate(inside) if is_inside)
        elif row["output_tokens"] is not None:
            total += row["output_tokens"] * sum(inside) / len(inside)
        else:
            return None
    return total


def accept_length(rows: Sequence[Row]) -> float | None:
    """Output tokens over verify steps, as a ratio of sums; the bonus token of each step counts, as SGLang counts it."""
    known = [row for row in rows if row["spec_verify_steps"] and row["output_tokens"] is not None]
    steps = sum(row["spec_verify_steps"] for row in known)
    return sum(row["output_tokens"] for row in known) / steps if steps else None


def cached_fraction(rows: Sequence[Row]) -> float | None:
    """Cached over all prompt tokens, of the requests for which both are known."""
    known = [row for row in rows if row["cached_tokens"] is not None and row["prompt_tokens"]]
    prompt_tokens = sum(row["prompt_tokens"] for row in known)
    return sum(row["cached_tokens"] for row in known) / prompt_tokens if prompt_tokens else None


def in_flight_mean(rows: Iterable[Row], window: Window) -> float | None:
    """Requests in flight, averaged over the window's time."""
    length = window.end_ns - window.start_ns
    if length <= 0:
        return None
    busy = 0
    for row in rows:
        if row["sent_ns"]:
            end_ns = row["done_ns"] or window.end_ns
            busy += max(0, min(end_ns, window.end_ns) - max(row["sent_ns"], window.start_ns))
    return busy / length


def _compat_output_tps(ok: Sequence[Row], rows: Sequence[Row], time_scale: float) -> float | None:
    if not ok or any(row["output_tokens"] is None for row in ok):
        return None
    start_ns = min(row["sent_ns"] for row in rows if row["sent_ns"])
    end_ns = max(row["done_ns"] for row in rows if row["done_ns"])
    return float(sum(row["output_tokens"] for row in ok) / (end_ns - start_ns) * _NS / time_scale)


def _since_sent(row: Row, moment: str) -> int | None:
    at_ns, sent_ns = row[moment], row["sent_ns"]
    return None if at_ns is None or sent_ns is None else at_ns - sent_ns


def _per_second(count: float | None, window: Window) -> float | None:
    return count / window.seconds if count is not None and window.seconds > 0 else None


def _ms(value_ns: float) -> float:
    return value_ns / 1e6


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _quantile(values: Sequence[float], q: float) -> float | None:
    return float(np.quantile(values, q, method="higher")) if values else None
