"""How long the requests of a cell took: mean, quantiles, largest value and n of each latency, in ms of server's time."""

import numpy as np
import pyarrow as pa

from loadgen.metrics.columns import Chunks, floats, span_ns
from loadgen.metrics.meanings import STATISTICS
from loadgen.metrics.statistics import Floats, known, mean, quantiles, ratio, weighted_quantiles

Row = dict[str, float | int | None]
_WANTED = (0.5, 0.9, 0.99, 1.0)


def latencies(rows: pa.Table, chunks: Chunks, time_scale: float, *, is_open_loop: bool) -> Row:
    """The figures of `rows` (ok requests of the window) and their `chunks`.

    What a user waits for begins when the request was due in open loop, since nobody would have waited for the
    client (wrk2's argument against coordinated omission), and when it was sent in closed loop; TTFT stands from both.
    """
    begin = "scheduled_ns" if is_open_loop else "sent_ns"
    series = {
        "ttft": span_ns(rows, begin, "first_token_ns"),
        "ttft_from_plan": span_ns(rows, "scheduled_ns", "first_token_ns"),
        "ttft_from_sent": span_ns(rows, "sent_ns", "first_token_ns"),
        "ttfa": span_ns(rows, begin, "first_answer_ns"),
        "tpot": tpot_ns(rows, chunks),
        "e2e": span_ns(rows, begin, "done_ns"),
    }
    figures: Row = {}
    for name, values_ns in series.items():
        figures |= _stats(name, known(values_ns), time_scale)
    gaps = chunks.gaps()
    total_ns = float(gaps.sum())
    found = _named("chunk_gap", ratio(total_ns, gaps.size), quantiles(gaps, _WANTED), gaps.size, time_scale)
    return figures | found | _token_gaps(chunks, time_scale)


def tpot_ns(rows: pa.Table, chunks: Chunks) -> Floats:
    """(last token - first token) / (output tokens - tokens of the first chunk).

    NaN when nothing follows the first chunk, or when the total is unknown. Where only the total is known it is
    spread evenly over the chunks, as it is for throughput (`token_source` says so).
    """
    output_tokens = floats(rows, "output_tokens")
    spread = output_tokens / np.maximum(chunks.lengths, 1)
    later = output_tokens - np.where(chunks.is_counted, chunks.first_tokens(), spread)
    return span_ns(rows, "first_token_ns", "last_token_ns") / np.where(later > 0, later, np.nan)


def _token_gaps(chunks: Chunks, time_scale: float) -> Row:
    """A chunk's gap is shared by the tokens it brought; one that brought none adds its time to the next that did."""
    is_bearing = chunks.tokens > 0
    request = chunks.request[is_bearing]
    follows = request[1:] == request[:-1]
    del request
    gaps = np.diff(chunks.at_ns[is_bearing])[follows].astype(np.float64)
    tokens = chunks.tokens[is_bearing][1:][follows]
    n = int(tokens.sum())
    average = ratio(float(gaps.sum()), n)
    gaps /= tokens
    return _named("token_gap", average, weighted_quantiles(gaps, tokens, _WANTED), n, time_scale)


def _stats(name: str, values: Floats, time_scale: float) -> Row:
    average = mean(values)
    return _named(name, average, quantiles(values, _WANTED), values.size, time_scale)


def _named(name: str, average: float | None, found: list[float | None], n: int, time_scale: float) -> Row:
    figures = dict(zip(STATISTICS, (average, *found), strict=True))
    in_ms = {
        f"{name}_{label}_ms": None if value is None else value * time_scale / 1e6
        for label, value in figures.items()
    }
    return {**in_ms, f"{name}_n": n}
