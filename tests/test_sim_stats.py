"""The server's own counters: when they move, and what a flush forgets."""

import pytest

from loadgen.sim.scheduler import Limits, Scheduler, Sequence
from loadgen.sim.stats import Stats
from loadgen.sim.timing import PCIE, Speculation

TREE = Speculation(8, 7, 4, 2048)


def run(stats: Stats, total: int, at_s: float = 0.0) -> tuple[Sequence, list[str], float]:
    """One request alone from beginning to end; its log lines, and when it ended."""
    batch = Scheduler(PCIE, TREE, Limits(4, 10**6))
    seq = Sequence("a", list(range(50)), [9] * total, total, at_s, seed=3)
    batch.submit(seq)
    lines = []
    while (due_s := batch.begin(at_s)) is not None:
        at_s = due_s
        line = stats.passed(batch.complete(), batch, at_s)
        lines += [line] if line else []
    stats.ended(seq, streaming=True)
    return seq, lines, at_s


def test_totals_move_when_a_request_ends() -> None:
    stats = Stats(interval=10, proposed=8)
    seq, _, end_s = run(stats, 100)
    total = stats.totals[True]
    assert (total.requests, total.prompt_tokens, total.output_tokens) == (1, 50, 100)
    assert total.e2e_s == pytest.approx(end_s)
    assert 0 < total.ttft_s < total.e2e_s
    assert stats.verify_calls == seq.verify_steps
    assert (stats.prefill_computed, stats.decoded) == (50, 99)
    assert stats.totals[False].requests == 0


def test_the_accept_length_counts_only_whole_windows_of_the_log() -> None:
    stats = Stats(interval=1000, proposed=8)
    run(stats, 100)
    assert stats.accept_length is None
    stats = Stats(interval=10, proposed=8)
    seq, lines, _ = run(stats, 200)
    windows = [line for line in lines if line.startswith("Decode batch")]
    assert lines[0].startswith("Prefill batch, #new-seq: 1, #new-token: 50, #cached-token: 0")
    assert len(windows) == seq.verify_steps // 10
    assert stats.accept_length == pytest.approx(199 / seq.verify_steps, rel=0.2)
    assert f"accept len: {stats.gauges.accept_length:.2f}" in windows[-1]
    assert 100 < stats.gauges.gen_throughput < 300


def test_a_flush_forgets_the_windows_but_no_gauge_and_no_total() -> None:
    stats = Stats(interval=10, proposed=8)
    run(stats, 200)
    before = stats.gauges.gen_throughput
    stats.flushed()
    assert stats.accept_length is None
    assert stats.gauges.gen_throughput == before > 0
    assert stats.totals[True].requests == 1


def test_a_request_that_never_ran_is_counted_as_aborted() -> None:
    stats = Stats(interval=10, proposed=0)
    seq = Sequence("a", [1], [], 5, 2.0, seed=0, end="abort", ended_s=3.0)
    stats.ended(seq, streaming=False)
    assert (stats.aborted, stats.totals[False].e2e_s, stats.totals[False].ttft_s) == (1, 1.0, 0.0)
