"""What is measured, case by case: the works, and the figures with their goals. A case is a function of the stage."""

from collections.abc import Callable, Sequence

from bench.product import product, product_neighbour, product_overdriven
from bench.stage import OURS, C, Figure, Play, Result, Stage, median, median_ratio
from bench.work import Work

STREAMS = 1024
RATES = (20_000, 30_000, 50_000, 60_000, 70_000, 80_000, 90_000, 100_000, 110_000, 120_000)
_LAG_LIMIT_US = 1000.0
_OFFERED = 1.02  # a mean gap this much above the asked one: the sink itself did not keep up


def ladder(stage: Stage) -> list[Figure]:
    """Chunks/s on one core before the lag passes 1 ms at p99, 1,024 paced streams"""
    figures, held = [], {OURS: 0, C: 0}
    lag_path = {OURS: ("own_lag_us", "p99"), C: ("user_lag_us", "p99")}
    going = [OURS, C]
    for rate in RATES:
        plays = {client: Play(client, Work.at_rate(rate, STREAMS, stage.seconds)) for client in going}
        results = stage.interleaved(*plays.values())
        for client, play in plays.items():
            lag_us = median(results[play], *lag_path[client])
            whose = "own lag" if client == OURS else "C reader's lag"
            figures.append(Figure(f"{whose} p99 at {rate:,} chunks/s", lag_us, "us"))
            if lag_us is not None and lag_us < _LAG_LIMIT_US and _was_offered(results[play]):
                held[client] = rate
            else:
                going.remove(client)
    share = held[OURS] / held[C] if held[C] else None
    return [
        Figure("chunks/s held", held[OURS], "chunks/s", at_least=70_000),
        Figure("chunks/s held by the C reader", held[C], "chunks/s"),
        Figure("share of the C reader's", share, "", at_least=0.6),
        *figures,
    ]


def cpu(stage: Stage) -> list[Figure]:
    """CPU a chunk at 50,000 chunks/s, kernel stamps and framing on"""
    work = Work.at_rate(50_000, STREAMS, stage.seconds)
    ours, theirs = Play(OURS, work), Play(C, work)
    results = stage.interleaved(ours, theirs)
    return [
        Figure("CPU a chunk", median(results[ours], "cpu_us"), "us"),
        Figure("CPU a chunk of the C reader", median(results[theirs], "cpu_us"), "us"),
        Figure("ratio", median_ratio(results[ours], results[theirs], "cpu_us"), "x", at_most=1.35),
        Figure("deferred parsing a chunk", median(results[ours], "decode_us"), "us"),
        Figure("reads with a kernel stamp", median(results[ours], "kernel_share"), ""),
        Figure("own lag p99", median(results[ours], "own_lag_us", "p99"), "us"),
    ]


def lock_step(stage: Stage) -> list[Figure]:
    """All 1,024 streams send on one tick, as a batch decodes: how far the recorded arrival is from the send"""
    work = Work.at_rate(20_000, STREAMS, stage.seconds, lock_step=True)
    ours, theirs = Play(OURS, work), Play(C, work)
    results = stage.interleaved(ours, theirs)
    return [
        *_arrival_figures(results[ours]),
        Figure("C reader's lag p99", median(results[theirs], "user_lag_us", "p99"), "us"),
    ]


def neighbour(stage: Stage) -> list[Figure]:
    """A neighbour takes 5 of every 15 ms of the client's core, 20,000 chunks/s, paced"""
    play = Play(OURS, Work.at_rate(20_000, STREAMS, stage.seconds), has_neighbour=True)
    return _arrival_figures(stage.interleaved(play)[play])


def neighbour_lock_step(stage: Stage) -> list[Figure]:
    """The same neighbour, all streams on one tick"""
    work = Work.at_rate(20_000, STREAMS, stage.seconds, lock_step=True)
    play = Play(OURS, work, has_neighbour=True)
    return _arrival_figures(stage.interleaved(play)[play])


def bursts(stage: Stage) -> list[Figure]:
    """All requests at once: TTFT as recorded, less the sink's own"""
    small = Play(OURS, Work(1024, 100, 20_000, ttft_us=200_000))
    large = Play(OURS, Work(4096, 40, 80_000, ttft_us=200_000))
    results = stage.interleaved(small, large)
    return [
        figure
        for play, goal_ms in ((small, 2.0), (large, 5.0))
        for figure in (
            Figure(
                f"mean TTFT error of {play.work.streams:,}",
                median(results[play], "ttft_error_ms"),
                "ms",
                at_most=goal_ms,
            ),
            Figure(
                f"mean TTFT of {play.work.streams:,} as the sink made it",
                median(results[play], "true_ttft_ms", "mean"),
                "ms",
            ),
        )
    ]


def memory(stage: Stage) -> list[Figure]:
    """Memory a stream: growth from before its connection is opened to shortly before the first chunk, 4,096 streams"""
    play = Play(OURS, Work(4096, 5, 100_000, ttft_us=1_000_000))
    results = stage.interleaved(play)[play]
    return [Figure("memory a stream", median(results, "memory_kb_per_stream"), "KB", at_most=20.0)]


def many(stage: Stage) -> list[Figure]:
    """10,000 streams at 2 chunks/s each"""
    play = Play(OURS, Work(10_000, max(3, round(2 * stage.seconds)), 500_000, ttft_us=2_000_000))
    results = stage.interleaved(play)[play]
    return [
        Figure("streams open at once", median(results, "sink", "max_streams"), "", at_least=10_000),
        Figure("requests that failed", median(results, "failed"), "", at_most=0),
        Figure("own lag p99", median(results, "own_lag_us", "p99"), "us"),
    ]


def starts(stage: Stage) -> list[Figure]:
    """Open loop, Poisson 300/s: sent - planned, with 20,000 chunks/s behind it"""
    stay = Work(0, 67, 50_000)  # 300/s x 67 chunks = 20,100 chunks/s, from 3.9 s after the first on
    count = round(300 * (4 + 2 * stage.seconds))
    play = Play(OURS, Work(count, stay.chunks, stay.interval_us, arrivals_per_s=300.0))
    results = stage.interleaved(play)[play]
    return [
        Figure("start lateness p99", median(results, "send_late_ms", "p99"), "ms", at_most=0.7),
        Figure("start lateness p50", median(results, "send_late_ms", "p50"), "ms"),
    ]


def long_prompts(stage: Stage) -> list[Figure]:
    """Prompts of 100k tokens (400 KB) beside such of 60, open loop with 64 streams in flight"""
    chunks = max(2, round(stage.seconds * 50))
    rate = 64 / (0.5 + chunks * 0.02)  # so that 64 are in flight
    short, long = (
        Play(OURS, Work(3 * 64, chunks, 20_000, prompt_bytes=size, arrivals_per_s=rate))
        for size in (240, 400_000)
    )
    results = stage.interleaved(short, long)
    longer = median_ratio(results[long], results[short], "events_per_s")
    late = [median(results[play], "send_late_ms", "p99") for play in (short, long)]
    return [
        Figure("events/s with 100k tokens over such with 60", longer, "x", at_least=0.95),
        Figure(
            "send lag p50 with 100k tokens over such with 60",
            median_ratio(results[long], results[short], "send_late_ms", "p50"),
            "x",
            at_most=1.05,
        ),
        Figure("send lag p99, 60 tokens", late[0], "ms"),
        Figure("send lag p99, 100k tokens", late[1], "ms"),
        Figure("bytes into the kernel p99, 100k tokens", median(results[long], "write_ms", "p99"), "ms"),
    ]


def _arrival_figures(results: Sequence[Result]) -> list[Figure]:
    return [
        Figure("recorded arrival p99", median(results, "arrival_lag_us", "p99"), "us", at_most=50.0),
        Figure("share of events that shared a read", median(results, "shared_share"), ""),
        Figure("user-space stamp p99", median(results, "user_lag_us", "p99"), "us"),
        Figure("own lag p99", median(results, "own_lag_us", "p99"), "us"),
    ]


def _was_offered(results: Sequence[Result]) -> bool:
    gap_us = median(results, "sink", "gap_us", "mean")
    return gap_us is not None and gap_us <= _OFFERED * results[0]["interval_us"]


CASES: dict[str, Callable[[Stage], list[Figure]]] = {
    case.__name__: case
    for case in (
        ladder,
        cpu,
        lock_step,
        neighbour,
        neighbour_lock_step,
        bursts,
        memory,
        many,
        starts,
        long_prompts,
        product,
        product_neighbour,
        product_overdriven,
    )
}
