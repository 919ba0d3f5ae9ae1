"""What other tools would have printed for the same timelines, so that a reader can match a figure with one of theirs.

Each figure is worked out by that tool's own rule, read in its source (December 2026), from the moments we stored, over
the ok requests sent in the window, from `sent_ns`: no tool's own lag is in it. Where a tool counts tokens with a
tokenizer of its own, the server's count stands in. All are means, as the tool forms them, in ms of server's time.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from loadgen.metrics.columns import Bools, Chunks, chunks_of, floats, is_answer, span_ns, sums_by
from loadgen.metrics.statistics import Floats, Ints, known, mean, ratio

Figures = dict[str, float | None]


@dataclass(frozen=True, slots=True)
class _Requests:
    """The columns that the tools' rules share: ns, NaN where unknown."""

    table: pa.Table
    chunks: Chunks
    is_answer: Bools
    output_tokens: Floats
    first_token: Floats
    last_token: Floats
    last_event: Floats

    def since_sent(self, moment: str) -> Floats:
        return span_ns(self.table, "sent_ns", moment)


def compat_figures(counted: pa.Table, time_scale: float) -> Figures:
    """The `compat_*` columns of a `cells` row but `compat_output_tps`; None where no request gives the figure."""
    found: Figures = {}
    requests = _requests(counted)
    for tool in _TOOLS:
        found |= tool(requests)
    return {
        f"compat_{name}": value * time_scale / 1e6 if name.endswith("_ms") and value is not None else value
        for name, value in found.items()
    }


def _requests(table: pa.Table) -> _Requests:
    first_token, last_token, last_event = (
        span_ns(table, "sent_ns", name) for name in ("first_token_ns", "last_token_ns", "last_event_ns")
    )
    output_tokens = floats(table, "output_tokens")
    return _Requests(
        table, chunks_of(table), is_answer(table), output_tokens, first_token, last_token, last_event
    )


def sglang(requests: _Requests) -> Figures:
    """SGLang's bench_serving 0.5.23 (`benchmark/serving.py`, chat): TPOT runs to the last event, [DONE] included, over
    N - 1; it does not ask for usage, and without it takes the N that was asked for. ITL is per chunk (where the server
    reports speculation it divides each by its re-tokenised text).
    """
    tail = requests.last_event - requests.first_token
    return {
        "sglang_ttft_ms": mean(known(requests.first_token)),
        "sglang_tpot_ms": _mean_over(tail, requests.output_tokens - 1),
        "sglang_no_usage_tpot_ms": _mean_over(tail, floats(requests.table, "max_tokens") - 1),
        "sglang_itl_ms": _pooled_gap(requests.chunks),
    }


def vllm(requests: _Requests) -> Figures:
    """The rule of `vllm bench serve` (`benchmarks/lib/endpoint_request_func.py`, chat): every event with a choice is a token, the
    role-only first and the finish event too; TPOT runs from the first of them to the last over N - 1.
    """
    first, last = requests.since_sent("first_choice_ns"), requests.since_sent("last_choice_ns")
    gaps = floats(requests.table, "choice_events") - 1
    return {
        "vllm_ttft_ms": mean(known(first)),
        "vllm_tpot_ms": _mean_over(last - first, requests.output_tokens - 1),
        "vllm_itl_ms": _sums_over(last - first, gaps),
    }


def aiperf(requests: _Requests) -> Figures:
    """The rule of aiperf (`metrics/types/inter_token_latency_metric.py`): last content minus first over N - 1; with
    --per-chunk-usage over N less the first chunk's tokens, where that count is usable.
    """
    decode = requests.last_token - requests.first_token
    all_but_one = requests.output_tokens - 1
    first = requests.chunks.first_tokens()
    rest = requests.output_tokens - first
    return {
        "aiperf_ttft_ms": mean(known(requests.first_token)),
        "aiperf_itl_ms": _mean_over(decode, all_but_one),
        "aiperf_per_chunk_itl_ms": _mean_over(decode, np.where((first > 0) & (rest >= 1), rest, all_but_one)),
    }


def guidellm(requests: _Requests) -> Figures:
    """The rule of guidellm (`schemas/base/request_stats.py`): its time per output token is the whole time to the last token over
    N, first token included; its ITL is over N - 1; both means are weighted by tokens. Without usage a chunk is a token.
    """
    chunks = requests.chunks.lengths.astype(np.float64)
    tokens = np.where(np.isnan(requests.output_tokens), chunks, requests.output_tokens)
    return {
        "guidellm_ttft_ms": mean(known(requests.first_token)),
        "guidellm_tpot_ms": _sums_over(requests.last_token, tokens),
        "guidellm_itl_ms": _sums_over(requests.last_token - requests.first_token, tokens - 1),
        "guidellm_tokens_per_iteration": _sums_over(tokens, chunks),
    }


def inference_perf(requests: _Requests) -> Figures:
    """The rule of inference-perf (`reportgen/base.py`), which sees only the answer: all tokens of a chunk arrive with it, so most
    gaps are 0; TPOT is last minus first over visible N - 1. (Newer versions begin TTFT at the first reasoning.) Null
    without running counts, since the visible tokens are then unknown.
    """
    chunks = requests.chunks
    is_visible = requests.is_answer & (chunks.tokens > 0)
    request = chunks.request[is_visible]
    lengths = np.bincount(request, minlength=chunks.lengths.size)
    moments, tokens = chunks.at_ns[is_visible], chunks.tokens[is_visible]
    visible = sums_by(request, tokens, chunks.lengths.size)
    first, last = _ends(moments, lengths)
    first[visible < 2] = np.nan
    gaps = np.diff(moments)[request[1:] == request[:-1]]
    zeros = int((np.maximum(visible - 1, 0)).sum()) - gaps.size
    return {
        "inference_perf_ttft_ms": mean(known(first)),
        "inference_perf_tpot_ms": _mean_over(last - first, visible - 1),
        "inference_perf_itl_ms": _sums_over(last - first, visible - 1),
        "inference_perf_itl_median_ms": _median_with_zeros(gaps, zeros),
    }


def mlcommons(requests: _Requests) -> Figures:
    """The rule of mlcommons/endpoints (`metrics_aggregator/metrics_table.py`): TPOT is the end of the response minus the first chunk
    over the tokens after that chunk, so the time of the usage event counts as decoding. Null without running counts.
    """
    tail = requests.last_event - requests.first_token
    return {
        "mlcommons_ttft_ms": mean(known(requests.first_token)),
        "mlcommons_tpot_ms": _mean_over(tail, requests.output_tokens - requests.chunks.first_tokens()),
    }


_TOOLS: tuple[Callable[[_Requests], Figures], ...] = (
    sglang,
    vllm,
    aiperf,
    guidellm,
    inference_perf,
    mlcommons,
)


def _mean_over(times: Floats, counts: Floats) -> float | None:
    """Mean over requests of time per count, of those with any count."""
    return mean(known(times / np.where(counts > 0, counts, np.nan)))


def _sums_over(times: Floats, counts: Floats) -> float | None:
    """Sum of times over sum of counts, of the requests that know both."""
    usable = ~np.isnan(times) & (counts > 0)
    return ratio(float(times[usable].sum()), float(counts[usable].sum()))


def _pooled_gap(chunks: Chunks) -> float | None:
    gaps = chunks.gaps()
    return ratio(float(gaps.sum()), gaps.size)


def _ends(moments: Ints, lengths: Ints) -> tuple[Floats, Floats]:
    """First and last moment of each request; NaN for one without any."""
    first, last = np.full(lengths.size, np.nan), np.full(lengths.size, np.nan)
    ends = np.cumsum(lengths)
    some = lengths > 0
    first[some] = moments[(ends - lengths)[some]]
    last[some] = moments[ends[some] - 1]
    return first, last


def _median_with_zeros(gaps: Ints, zeros: int) -> float | None:
    """The median of `gaps` and as many zeros more: the mean of the middle two, as numpy's percentile gives it."""
    n = gaps.size + zeros
    if n == 0:
        return None
    places = [(n - 1) // 2 - zeros, n // 2 - zeros]
    found = sorted(gaps) if places[1] >= 0 else []
    return float(sum(found[place] if place >= 0 else 0 for place in places) / 2)
