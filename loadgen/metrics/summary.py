"""The rows of `requests` of one execution -> the measured columns of its `cells` row."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from loadgen.metrics.columns import CHUNK_LISTS, chunks_of, floats, span_ns, where
from loadgen.metrics.compat import compat_figures
from loadgen.metrics.latencies import latencies
from loadgen.metrics.statistics import known, quantiles, ratio
from loadgen.metrics.throughput import (
    in_flight_mean,
    output_tps,
    peak_tps,
    request_rate,
    stream_tps,
    tokens_in_parts,
)
from loadgen.metrics.tokens import Sample, acceptance, lengths
from loadgen.metrics.window import Window
from loadgen.records import Outcome, Phase

_NS = 1_000_000_000

Row = dict[str, Any]


def summarize(
    requests: pa.Table, window: Window, *, is_open_loop: bool = False, samples: Sequence[Sample] = ()
) -> Row:
    """The measured columns of a `cells` row.

    `requests`: the rows of `requests` of one execution; `samples`: its rows of `server_samples`.
    """
    no_chunks = requests.drop_columns(CHUNK_LISTS)
    ok = where(no_chunks, outcome=(Outcome.OK,))
    counted = where(requests, phase=(Phase.MEASURE,), outcome=(Outcome.OK,))
    parts = tokens_in_parts(requests, window)
    return {
        "window_start_ns": window.start_ns,
        "window_end_ns": window.end_ns,
        "window_s": window.seconds,
        **_counts(no_chunks),
        "n": counted.num_rows,
        "output_tps": output_tps(parts, window),
        "peak_tps": peak_tps(parts, window),
        "request_rate": request_rate(ok, window),
        "compat_output_tps": _compat_output_tps(ok, no_chunks, window.time_scale),
        "stream_tps": stream_tps(counted, window.time_scale),
        **latencies(counted, chunks_of(counted), window.time_scale, is_open_loop=is_open_loop),
        **acceptance(counted, samples),
        **lengths(counted),
        "in_flight_mean": in_flight_mean(no_chunks, window),
        "send_lag_p99_ms": _send_lag_p99_ms(no_chunks),
        **compat_figures(counted, window.time_scale),
    }


def _counts(requests: pa.Table) -> Row:
    outcomes = Counter(requests["outcome"].to_pylist())
    ok, cut = outcomes[Outcome.OK], outcomes[Outcome.CUT]
    measured = Counter(where(requests, phase=(Phase.MEASURE,))["outcome"].to_pylist())
    ended = measured.total() - measured[Outcome.CUT]
    return {
        "sent": requests.num_rows,
        "ok": ok,
        "cut": cut,
        "errors": requests.num_rows - ok - cut,
        "outcomes": json.dumps(dict(sorted(outcomes.items()))),
        "error_rate": ratio(ended - measured[Outcome.OK], ended),
    }


def _compat_output_tps(ok: pa.Table, requests: pa.Table, time_scale: float) -> float | None:
    """All ok output tokens from the first send to the last end, where the other tools' clock stops (vllm, aiperf) or
    should stop: sglang bench_serving stops its own only after a last metadata call.
    """
    tokens = floats(ok, "output_tokens")
    begin, end = _extremes(requests)
    if not tokens.size or begin is None or end is None or end <= begin or tokens.size != known(tokens).size:
        return None
    return float(tokens.sum()) / (end - begin) * _NS / time_scale


def _extremes(requests: pa.Table) -> tuple[int | None, int | None]:
    sent, done = (requests[name].drop_null().to_numpy() for name in ("sent_ns", "done_ns"))
    return (int(sent.min()) if sent.size else None), (int(done.max()) if done.size else None)


def _send_lag_p99_ms(requests: pa.Table) -> float | None:
    (lag_ns,) = quantiles(known(span_ns(requests, "scheduled_ns", "sent_ns")), (0.99,))
    return None if lag_ns is None else lag_ns / 1e6
