"""How much a cell got in its window: output tokens, their peak, requests, and requests in flight.

Throughput counts the tokens whose chunk arrived inside the window, whichever phase their request belongs to; the
tokens of a failed request are of no use to anybody and do not count, those of one that we cut do.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from loadgen.metrics.columns import chunks_of, floats, span_ns, sums_by, where
from loadgen.metrics.statistics import Floats, known, mean
from loadgen.metrics.window import Window
from loadgen.records import Outcome

_NS = 1_000_000_000
_ROWS_AT_ONCE = 4096  # bounds the memory that the chunks of a large cell take


def tokens_in_parts(requests: pa.Table, window: Window) -> Floats | None:
    """Output tokens that arrived in each of the window's equal parts, which are as many as its whole seconds.

    Where a server gives no running count, a request's total is spread evenly over its chunks (the row's
    `token_source` says so). None when a request that was answered inside the window has no count at all, or when
    there is no window.
    """
    if window.length_ns <= 0:
        return None
    columns = requests.select(["outcome", "sent_ns", "output_tokens", "chunk_ns", "chunk_tokens"])
    parts = np.zeros(max(1, int(window.seconds)))
    for start in range(0, requests.num_rows, _ROWS_AT_ONCE):
        useful = where(columns.slice(start, _ROWS_AT_ONCE), outcome=(Outcome.OK, Outcome.CUT))
        parts += _tokens_in_parts(useful.filter(useful["sent_ns"].is_valid()), window, parts.size)
    return None if np.isnan(parts).any() else parts


def _tokens_in_parts(useful: pa.Table, window: Window, parts: int) -> Floats:
    """NaN where tokens of unknown number arrived."""
    chunks = chunks_of(useful)
    total = np.where(chunks.is_counted, 0.0, floats(useful, "output_tokens"))
    tokens = chunks.tokens + np.repeat(total / np.maximum(chunks.lengths, 1), chunks.lengths)
    since_start = pc.subtract(useful["sent_ns"], window.start_ns).to_numpy()
    moments = np.repeat(since_start, chunks.lengths) + chunks.at_ns
    is_inside = (moments >= 0) & (moments <= window.length_ns)
    place = np.minimum(moments[is_inside] / (window.length_ns / parts), parts - 1).astype(np.int64)
    return sums_by(place, tokens[is_inside], parts)


def output_tps(parts: Floats | None, window: Window) -> float | None:
    """Tokens a second over the whole window."""
    return per_second(float(parts.sum()), window) if parts is not None else None


def peak_tps(parts: Floats | None, window: Window) -> float | None:
    """Tokens a second of the busiest part. The parts are equal, so this is never below the average."""
    return per_second(float(parts.max()) * parts.size, window) if parts is not None else None


def request_rate(ok: pa.Table, window: Window) -> float | None:
    """Ok requests that ended inside the window."""
    done = pc.subtract(ok["done_ns"].drop_null(), window.start_ns).to_numpy()
    return per_second(int(((done >= 0) & (done <= window.length_ns)).sum()), window)


def stream_tps(counted: pa.Table, time_scale: float) -> float | None:
    """Mean over requests of output tokens over the whole request's time, prefill included."""
    took_ns = span_ns(counted, "sent_ns", "done_ns")
    rates = floats(counted, "output_tokens") / np.where(took_ns > 0, took_ns, np.nan)
    average = mean(known(rates))
    return None if average is None else average * _NS / time_scale


def in_flight_mean(requests: pa.Table, window: Window) -> float | None:
    """Requests in flight, averaged over the window's time; one without an end is in flight to the window's."""
    if window.length_ns <= 0:
        return None
    sent = requests.filter(requests["sent_ns"].is_valid())
    begin = pc.subtract(sent["sent_ns"], window.start_ns).to_numpy()
    end = pc.subtract(pc.fill_null(sent["done_ns"], window.end_ns), window.start_ns).to_numpy()
    busy = np.minimum(end, window.length_ns) - np.maximum(begin, 0)
    return float(np.maximum(busy, 0).sum() / window.length_ns)


def per_second(count: float, window: Window) -> float | None:
    return count / window.seconds if window.seconds > 0 else None
