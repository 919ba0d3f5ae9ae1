"""What the generated columns of `cells` mean, in words: for the tables' dictionary and for the report."""

# Name -> (meaning, what its n counts).
LATENCIES = {
    "ttft": (
        "Time to first token; from when it was due in open loop, from when it was sent in closed loop",
        "requests",
    ),
    "ttft_from_plan": (
        "Time to first token from when the request was due, so that what waited in the client counts",
        "requests",
    ),
    "ttft_from_sent": (
        "Time to first token from when the request was sent; what waited in the client is left out",
        "requests",
    ),
    "ttfa": ("Time to first answer token, from the same moment as ttft", "requests"),
    "tpot": (
        "Time per output token after the first chunk; a total without a running count is spread evenly over its chunks",
        "requests",
    ),
    "e2e": ("Time of the whole request, from the same moment as ttft", "requests"),
    "chunk_gap": ("Gap between chunks (a chunk may hold several tokens)", "gaps"),
    "token_gap": (
        "Gap before a chunk over its tokens, each token counted once; of requests with a running token count",
        "tokens",
    ),
}

STATISTICS = {
    "mean": "mean",
    "p50": "median",
    "p90": "90th percentile",
    "p99": "99th percentile",
    "max": "largest",
}

# Tool -> name of the figure (after `compat_`) -> the tool's rule.
COMPAT = {
    "sglang bench_serving": {
        "sglang_ttft_ms": "mean TTFT, to the first chunk with text",
        "sglang_tpot_ms": "mean TPOT, from the first text to the last event ([DONE] included) over output tokens - 1",
        "sglang_no_usage_tpot_ms": "mean TPOT without usage, which it does not ask for: over max_tokens - 1",
        "sglang_itl_ms": "mean ITL, the gap between chunks with text, however many tokens they hold",
    },
    "vllm bench serve": {
        "vllm_ttft_ms": "mean TTFT, to the first event with a choice, be it role-only",
        "vllm_tpot_ms": "mean TPOT, from the first to the last event with a choice over output tokens - 1",
        "vllm_itl_ms": "mean ITL, the gap between events with a choice, role-only and finish included",
    },
    "aiperf": {
        "aiperf_ttft_ms": "mean TTFT, to the first chunk with text",
        "aiperf_itl_ms": "mean ITL, from the first to the last chunk with text over output tokens - 1",
        "aiperf_per_chunk_itl_ms": "mean ITL with --per-chunk-usage, over output tokens less those of the first chunk",
    },
    "guidellm": {
        "guidellm_ttft_ms": "mean TTFT, to the first chunk with text",
        "guidellm_tpot_ms": "TPOT, from sending to the last chunk over all output tokens, so that TTFT is in it",
        "guidellm_itl_ms": "ITL, from the first to the last chunk over output tokens - 1, weighted by tokens",
        "guidellm_tokens_per_iteration": "tokens per iteration, output tokens over chunks with text",
    },
    "inference-perf": {
        "inference_perf_ttft_ms": "mean TTFT, to the first answer chunk (its versions that do not see reasoning)",
        "inference_perf_tpot_ms": "mean TPOT, from the first to the last answer chunk over answer tokens - 1",
        "inference_perf_itl_ms": "mean ITL, of answer tokens that all arrive with their chunk",
        "inference_perf_itl_median_ms": "median ITL of the same, 0 once most chunks hold more than two tokens",
    },
    "mlcommons/endpoints": {
        "mlcommons_ttft_ms": "mean TTFT, to the first chunk with text",
        "mlcommons_tpot_ms": "mean TPOT, from the first chunk to the end of the response over the tokens after that chunk",
    },
}
