"""Continuous batching: order, limits, chunked prefill, accounting."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.sim import timing
from loadgen.sim.scheduler import Limits, Result, Scheduler, Sequence
from loadgen.sim.timing import PCIE, Speculation

TREE = Speculation(8, 7, 4, 2048)


def sequence(
    name: str, prompt: int = 40, total: int = 20, arrival_s: float = 0.0, first: int = 0
) -> Sequence:
    ids = list(range(first, first + prompt))
    return Sequence(name, ids, [9] * total, total, arrival_s, seed=7)


def scheduler(speculation: Speculation | None = None, **limits: int) -> Scheduler:
    return Scheduler(PCIE, speculation, Limits(**{"max_running": 8, "kv_tokens": 10**6, **limits}))


def drain(batch: Scheduler, at_s: float = 0.0) -> tuple[float, list[Result]]:
    results = []
    while (due := batch.begin(at_s)) is not None:
        assert due > at_s
        at_s = due
        results.append(batch.complete())
        assert len(results) < 100_000
    return at_s, results


def test_one_request_takes_a_prefill_pass_and_then_a_step_for_each_token() -> None:
    batch, seq = scheduler(), sequence("a", prompt=100, total=4)
    assert batch.submit(seq)
    end_s, results = drain(batch)
    want_s = timing.prefill_s(PCIE, 100) + sum(timing.step_s(PCIE, None, 1, 100 + n) for n in (1, 2, 3))
    assert end_s == pytest.approx(want_s)
    assert [r.prefill_tokens for r in results] == [100, 0, 0, 0]
    assert (seq.generated, seq.end, seq.ended_s, seq.verify_steps) == (4, "done", end_s, 0)
    assert seq.first_token_s == pytest.approx(timing.prefill_s(PCIE, 100))
    assert (batch.live, batch.used_tokens) == (0, 0)


def test_speculation_brings_several_tokens_a_step_and_never_too_many() -> None:
    batch, seq = scheduler(TREE), sequence("a", total=500)
    batch.submit(seq)
    _, results = drain(batch)
    assert seq.generated == 500
    assert seq.verify_steps == len(results) - 1 == sum(seq.accepts)
    assert seq.correct_drafts + seq.verify_steps == 499  # the first token is the prefill's
    assert 3.0 < 499 / seq.verify_steps < 5.5
    again = sequence("b", total=500)
    batch.submit(again)
    drain(batch)
    assert again.accepts == seq.accepts  # drawn from the request's seed alone


def test_first_come_first_served_up_to_the_running_limit() -> None:
    batch = scheduler(max_running=2)
    seqs = [sequence(name, first=1000 * i) for i, name in enumerate("abcd")]
    for seq in seqs:
        batch.submit(seq)
    batch.begin(0.0)
    assert [seq.rid for seq in batch.waiting] == ["c", "d"]
    batch.complete()
    drain(batch, 1.0)
    ends = [seq.ended_s for seq in seqs]
    assert ends == sorted(ends)
    assert ends[1] < seqs[2].first_token_s


def test_a_full_queue_refuses() -> None:
    batch = scheduler(max_running=1, max_queued=1)
    assert batch.submit(sequence("a"))
    batch.begin(0.0)
    assert batch.submit(sequence("b"))
    assert not batch.submit(sequence("c"))


def test_kv_capacity_holds_requests_back_but_never_for_ever() -> None:
    batch = scheduler(kv_tokens=100)
    big, small = sequence("big", prompt=90, total=50), sequence("small", prompt=30, total=20, first=500)
    batch.submit(big)
    batch.submit(small)
    batch.begin(0.0)
    assert [seq.rid for seq in batch.waiting] == ["small"]
    batch.complete()
    drain(batch, 1.0)
    assert (big.end, small.end) == ("done", "done")


def test_nobody_is_admitted_before_it_has_arrived() -> None:
    batch = scheduler()
    first, later = sequence("a"), sequence("b", arrival_s=50.0, first=500)
    batch.submit(first)
    batch.submit(later)
    drain(batch)
    assert first.ended_s < 50.0 == later.admitted_s


def test_a_long_prompt_is_prefilled_in_chunks_and_stops_the_others_meanwhile() -> None:
    batch, short = scheduler(), sequence("short", total=50)
    batch.submit(short)
    due_s = batch.begin(0.0)
    batch.complete()
    long = sequence("long", prompt=20_000, total=2, arrival_s=due_s, first=10**6)
    batch.submit(long)
    chunks = []
    while long.first_token_s is None:
        due_s = batch.begin(due_s)
        chunks.append(batch.complete().prefill_tokens)
    assert chunks == [8192, 8192, 3616]
    assert short.generated == 1
    assert due_s > 20_000 / PCIE.prefill_tokens_per_s


def test_a_prompt_seen_before_is_taken_from_the_cache_until_a_flush() -> None:
    batch = scheduler()
    for name, cached in (("a", 0), ("b", 4096 - 16)):
        seq = sequence(name, prompt=4096)
        batch.submit(seq)
        assert not batch.flush()
        drain(batch)
        assert seq.cached_tokens == cached
    assert batch.flush()
    cold = sequence("c", prompt=4096)
    batch.submit(cold)
    drain(batch)
    assert cold.cached_tokens == 0
    off = Scheduler(PCIE, None, Limits(8, 10**6, radix_cache=False))
    for name in "de":
        seq = sequence(name, prompt=4096)
        off.submit(seq)
        drain(off)
        assert seq.cached_tokens == 0


def test_the_next_turn_finds_the_answer_in_the_cache() -> None:
    batch, seq = scheduler(), sequence("a", prompt=64, total=33)
    batch.submit(seq)
    drain(batch)
    turn = Sequence("b", [*seq.prompt_ids, *[9] * 33, 1, 2, 3], [9], 1, 0.0, 7)
    batch.submit(turn)
    drain(batch)
    assert turn.cached_tokens == 96


@pytest.mark.parametrize("passes", [0, 1, 3])
def test_abort_takes_a_request_out_from_wherever_it_is(passes: int) -> None:
    batch = scheduler(max_running=1)
    victim, other = sequence("victim", total=50), sequence("other", first=500)
    batch.submit(victim)
    batch.submit(other)
    due_s = 0.0
    for _ in range(passes):
        due_s = batch.begin(due_s)
        batch.complete()
    in_flight_s = batch.begin(due_s)
    batch.abort(victim, due_s)
    assert victim not in batch.complete().progressed
    assert (victim.end, victim.ended_s, victim.generated) == ("abort", due_s, passes)
    batch.abort(victim, 99.0)
    assert victim.ended_s == due_s
    waiting = sequence("waiting")
    batch.submit(waiting)
    batch.abort(waiting, 1.0)
    drain(batch, in_flight_s)
    assert (other.end, batch.live, batch.used_tokens) == ("done", 0, 0)


@given(
    st.lists(st.tuples(st.integers(1, 3000), st.integers(1, 60), st.floats(0, 2)), min_size=1, max_size=12),
    st.integers(1, 4),
    st.sampled_from([None, TREE]),
)
def test_every_request_gets_exactly_its_tokens(
    wishes: list[tuple[int, int, float]], max_running: int, speculation: Speculation | None
) -> None:
    batch = scheduler(speculation, max_running=max_running, kv_tokens=5000)
    seqs = [
        sequence(str(i), prompt, total, arrival_s)
        for i, (prompt, total, arrival_s) in enumerate(sorted(wishes, key=lambda wish: wish[2]))
    ]
    for seq in seqs:
        batch.submit(seq)
    _, results = drain(batch)
    assert [seq.generated for seq in seqs] == [seq.total_tokens for seq in seqs]
    assert sorted(seq.rid for r in results for seq in r.finished) == sorted(seq.rid for seq in seqs)
    assert sum(r.decode_tokens for r in results) == sum(seq.total_tokens - 1 for seq in seqs)
    assert all(a.admitted_s <= b.admitted_s for a, b in itertools.pairwise(seqs))
    assert (batch.live, batch.used_tokens, batch.context_tokens) == (0, 0, 0)
