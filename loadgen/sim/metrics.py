"""/metrics: the counters and gauges of SGLang that a client reads, in Prometheus's text format (version 0.0.4)."""

from collections.abc import Iterator

from loadgen.sim.engine import Engine
from loadgen.sim.settings import Settings
from loadgen.sim.stats import Totals

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def render(settings: Settings, engine: Engine) -> str:
    """The whole page."""
    model = settings.model.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    engine_label = f'engine_type="unified",model_name="{model}"'
    rank_label = f'{engine_label},moe_ep_rank="0",pp_rank="0",tp_rank="0"'
    lines = [*_gauges(settings, engine, rank_label), *_counters(engine, engine_label, rank_label)]
    return "\n".join(lines) + "\n"


def _gauges(settings: Settings, engine: Engine, label: str) -> Iterator[str]:
    gauges = engine.stats.gauges
    for name, value in (
        ("max_total_num_tokens", settings.kv_tokens),
        ("num_running_reqs", gauges.running),
        ("num_queue_reqs", gauges.queued),
        ("num_used_tokens", gauges.used_tokens),
        ("token_usage", gauges.token_usage),
        ("gen_throughput", gauges.gen_throughput),
        ("cache_hit_rate", gauges.cache_hit_rate),
        ("spec_accept_length", gauges.accept_length),
        ("spec_accept_rate", gauges.accept_rate),
        ("spec_num_steps", settings.args["speculative_num_steps"] or 0),
        ("spec_num_draft_tokens", settings.args["speculative_num_draft_tokens"] or 0),
        ("utilization", gauges.running / settings.args["max_running_requests"]),
        ("num_retracted_reqs", 0),
        ("num_paused_reqs", 0),
        ("is_cuda_graph", 1),
    ):
        yield f"# TYPE sglang:{name} gauge"
        yield f"sglang:{name}{{{label}}} {float(value)}"


def _counters(engine: Engine, label: str, rank_label: str) -> Iterator[str]:
    stats = engine.stats
    seen = [(streaming, total) for streaming, total in stats.totals.items() if total.requests]
    for name, field in (
        ("prompt_tokens_total", "prompt_tokens"),
        ("generation_tokens_total", "output_tokens"),
        ("num_requests_total", "requests"),
    ):
        yield f"# TYPE sglang:{name} counter"
        yield from (
            f"sglang:{name}{{{_streaming(label, streaming)}}} {float(getattr(total, field))}"
            for streaming, total in seen
        )
    yield "# TYPE sglang:num_aborted_requests_total counter"
    yield f"sglang:num_aborted_requests_total{{{label}}} {float(stats.aborted)}"
    yield "# TYPE sglang:cached_tokens_total counter"
    yield f'sglang:cached_tokens_total{{cache_source="device",{label}}} {float(stats.cached_tokens)}'
    if engine.proposed:
        yield "# TYPE sglang:spec_verify_calls_total counter"
        yield f"sglang:spec_verify_calls_total{{{label}}} {float(stats.verify_calls)}"
    yield "# TYPE sglang:realtime_tokens_total counter"
    for mode, tokens in (
        ("prefill_compute", stats.prefill_computed),
        ("prefill_cache", stats.prefill_cached),
        ("decode", stats.decoded),
    ):
        yield f'sglang:realtime_tokens_total{{mode="{mode}",{rank_label}}} {float(tokens)}'
    yield from _histograms(label, seen)


def _histograms(label: str, seen: list[tuple[bool, Totals]]) -> Iterator[str]:
    for name, field in (("time_to_first_token_seconds", "ttft_s"), ("e2e_request_latency_seconds", "e2e_s")):
        yield f"# TYPE sglang:{name} histogram"
        for streaming, total in seen:
            labels = _streaming(label, streaming)
            yield f'sglang:{name}_bucket{{{labels},le="+Inf"}} {float(total.requests)}'
            yield f"sglang:{name}_sum{{{labels}}} {getattr(total, field)}"
            yield f"sglang:{name}_count{{{labels}}} {float(total.requests)}"


def _streaming(label: str, streaming: bool) -> str:
    return f'{label},is_streaming="{str(streaming).lower()}"'
