"""What other tools would print for the golden stream, each worked by hand.

The stream: sent 0; role-only event 0.10; reasoning at 1.00 and 1.10, answer at 1.20 and 1.30, of 4 tokens each (N = 16);
finish in its own event at 1.30; usage and [DONE] at 1.32; max_tokens 32.
"""

from pathlib import Path
from typing import Any

import pytest
from metrics_fixtures import at, golden, made, summary, window

from loadgen.metrics.meanings import COMPAT
from loadgen.records import ChunkKind, RequestRecord

GOLDEN = {
    # to the first text; (1.32 - 1.00) / (16 - 1); without usage (1.32 - 1.00) / (32 - 1); 3 gaps of 100 ms
    "sglang_ttft_ms": 1000,
    "sglang_tpot_ms": 320 / 15,  # 21.3
    "sglang_no_usage_tpot_ms": 320 / 31,  # 10.3
    "sglang_itl_ms": 100,
    # to the role-only event; (1.30 - 0.10) / 15; gaps 900, 100, 100, 100 and 0 to the finish: 1200 / 5
    "vllm_ttft_ms": 100,
    "vllm_tpot_ms": 80,
    "vllm_itl_ms": 240,
    # (1.30 - 1.00) / 15; with the first chunk's 4 tokens (1.30 - 1.00) / 12
    "aiperf_ttft_ms": 1000,
    "aiperf_itl_ms": 20,
    "aiperf_per_chunk_itl_ms": 25,
    # 1.30 / 16; (1.30 - 1.00) / 15; 16 tokens in 4 chunks
    "guidellm_ttft_ms": 1000,
    "guidellm_tpot_ms": 81.25,
    "guidellm_itl_ms": 20,
    "guidellm_tokens_per_iteration": 4,
    # visible: 8 tokens at 1.20 (4) and 1.30 (4): (1.30 - 1.20) / 7; of 7 gaps six are 0 and one is 100 ms
    "inference_perf_ttft_ms": 1200,
    "inference_perf_tpot_ms": 100 / 7,  # 14.3
    "inference_perf_itl_ms": 100 / 7,
    "inference_perf_itl_median_ms": 0,
    # (1.32 - 1.00) / (16 - 4)
    "mlcommons_ttft_ms": 1000,
    "mlcommons_tpot_ms": 320 / 12,  # 26.7
}


def figures_of(*records: RequestRecord, **more: Any) -> dict[str, float | None]:
    figures = summary(records, window(0, 9, **more))
    return {
        name.removeprefix("compat_"): value for name, value in figures.items() if name.startswith("compat_")
    }


def test_the_golden_stream_gives_each_tools_figures_to_the_digit() -> None:
    figures = figures_of(golden())
    assert figures == pytest.approx({**GOLDEN, "output_tps": 16 / 1.32}, rel=1e-12)
    named = {name for rules in COMPAT.values() for name in rules}
    assert figures.keys() == named | {"output_tps"}


def test_open_loop_changes_none_of_them() -> None:
    figures = summary([golden()], window(0, 9), is_open_loop=True)
    assert figures["compat_sglang_ttft_ms"] == pytest.approx(1000)


def test_time_scale_changes_times_and_no_counts() -> None:
    figures = figures_of(golden(), time_scale=10)
    assert figures["vllm_tpot_ms"] == pytest.approx(800)
    assert figures["guidellm_tokens_per_iteration"] == 4


def test_without_any_count_only_what_needs_none_is_left() -> None:
    # guidellm takes each of the 4 chunks for a token: 1300 / 4 and 300 / 3
    figures = figures_of(golden(chunk_tokens=None, output_tokens=None, token_source=None))
    known = {name: value for name, value in figures.items() if value is not None}
    assert known == pytest.approx(
        {
            "sglang_ttft_ms": 1000,
            "sglang_no_usage_tpot_ms": 320 / 31,
            "sglang_itl_ms": 100,
            "vllm_ttft_ms": 100,
            "vllm_itl_ms": 240,
            "aiperf_ttft_ms": 1000,
            "guidellm_ttft_ms": 1000,
            "guidellm_tpot_ms": 325,
            "guidellm_itl_ms": 100,
            "guidellm_tokens_per_iteration": 1,
            "mlcommons_ttft_ms": 1000,
        }
    )


def test_with_a_total_alone_what_needs_tokens_per_chunk_is_unknown() -> None:
    figures = figures_of(golden(chunk_tokens=None))
    assert figures["sglang_tpot_ms"] == pytest.approx(320 / 15)
    assert figures["aiperf_per_chunk_itl_ms"] == pytest.approx(20)  # it falls back to N - 1
    for name in ("inference_perf_ttft_ms", "inference_perf_itl_median_ms", "mlcommons_tpot_ms"):
        assert figures[name] is None


def test_a_whole_answer_in_one_chunk() -> None:
    # N - 1 = 15 over no time at all; aiperf has no token left after the first chunk and falls back to N - 1
    figures = figures_of(made(0, {1: 16}, last_event_ns=at(1.15)))
    assert figures["sglang_tpot_ms"] == pytest.approx(10)
    assert figures["aiperf_per_chunk_itl_ms"] == 0
    assert figures["mlcommons_tpot_ms"] is None
    assert figures["sglang_itl_ms"] is None
    assert figures["inference_perf_itl_median_ms"] == 0


def test_a_single_token_has_no_time_per_token() -> None:
    figures = figures_of(made(0, {1: 1}))
    for name in ("sglang_tpot_ms", "vllm_tpot_ms", "vllm_itl_ms", "aiperf_itl_ms", "guidellm_itl_ms"):
        assert figures[name] is None
    assert figures["guidellm_tpot_ms"] == pytest.approx(1000)


def test_means_over_requests_are_weighted_as_each_tool_weighs_them() -> None:
    # 2 tokens 100 ms apart, and 11 tokens 10 ms apart
    short = made(0, {1.0: 1, 1.1: 2})
    long = made(0, {1 + 0.01 * n: n + 1 for n in range(11)})
    figures = figures_of(short, long)
    assert figures["aiperf_itl_ms"] == pytest.approx((100 + 10) / 2)
    assert figures["guidellm_itl_ms"] == pytest.approx((100 + 100) / (1 + 10))
    assert figures["sglang_itl_ms"] == pytest.approx((100 + 100) / (1 + 10))
    assert figures["inference_perf_itl_median_ms"] == pytest.approx(10)


def test_the_median_of_visible_tokens_is_between_the_middle_two() -> None:
    # tokens at 0, 0, 40 ms: gaps 0 and 40 ms
    figures = figures_of(made(0, {1.0: 2, 1.04: 3}))
    assert figures["inference_perf_itl_median_ms"] == pytest.approx(20)


def test_reasoning_alone_is_nothing_to_a_tool_that_does_not_see_it() -> None:
    hidden = made(0, {1: 4, 1.1: 8}, chunk_kind=[ChunkKind.REASONING] * 2, first_answer_ns=None)
    figures = figures_of(hidden)
    assert figures["inference_perf_ttft_ms"] is None
    assert figures["inference_perf_itl_ms"] is None


def test_no_request_gives_none_of_them() -> None:
    assert set(figures_of().values()) == {None}


def test_the_documentation_shows_the_same_figures() -> None:
    text = (Path(__file__).parent.parent / "docs" / "metrics.md").read_text(encoding="utf-8")
    figures = summary([golden()], window(0, 9))
    ours = {name: f"{value:.1f}" for name, value in figures.items() if isinstance(value, float)}
    theirs = {name: ours[f"compat_{name}"] for name in GOLDEN}
    expected = (
        ("here", f"{ours['ttft_mean_ms']} ({ours['ttft_from_plan_mean_ms']} from the plan), TTFA {ours['ttfa_mean_ms']}",
         ours["tpot_mean_ms"], f"token {ours['token_gap_mean_ms']}, chunk {ours['chunk_gap_mean_ms']}",
         ours["accept_length"]),
        ("sglang bench_serving, usage present", theirs["sglang_ttft_ms"], theirs["sglang_tpot_ms"],
         theirs["sglang_itl_ms"], "-"),
        ("sglang bench_serving, usage absent", theirs["sglang_ttft_ms"], theirs["sglang_no_usage_tpot_ms"],
         theirs["sglang_itl_ms"], "-"),
        ("vllm bench serve", theirs["vllm_ttft_ms"], theirs["vllm_tpot_ms"], theirs["vllm_itl_ms"], "-"),
        ("aiperf", theirs["aiperf_ttft_ms"], theirs["aiperf_itl_ms"], theirs["aiperf_itl_ms"], "-"),
        ("aiperf --per-chunk-usage", theirs["aiperf_ttft_ms"], theirs["aiperf_per_chunk_itl_ms"],
         theirs["aiperf_per_chunk_itl_ms"], "-"),
        ("guidellm", theirs["guidellm_ttft_ms"], theirs["guidellm_tpot_ms"], theirs["guidellm_itl_ms"],
         theirs["guidellm_tokens_per_iteration"]),
        ("inference-perf (visible text only)", theirs["inference_perf_ttft_ms"], theirs["inference_perf_tpot_ms"],
         f"{theirs['inference_perf_itl_ms']}, median {theirs['inference_perf_itl_median_ms']}", "-"),
        ("mlcommons/endpoints", theirs["mlcommons_ttft_ms"], theirs["mlcommons_tpot_ms"], "-", "-"),
    )  # fmt: skip
    for row in expected:
        assert f"| {' | '.join(row)} |" in text
