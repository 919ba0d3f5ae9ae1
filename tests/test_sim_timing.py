"""The time model: the public figures it follows, and the directions in which its knobs pull."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.sim import timing
from loadgen.sim.timing import NVLINK, PCIE, Profile, Speculation

TREE = Speculation(drafts=8, depth=7, topk=4, window_tokens=2048)
OUTPUT_TOKENS = 256


def stream_tps(profile: Profile, speculation: Speculation | None, prompt: int, batch: int = 1) -> float:
    """Output tokens over the whole request's time, for `batch` requests that run together."""
    elapsed_s = timing.prefill_s(profile, prompt * batch)
    done = 1.0
    while done < OUTPUT_TOKENS:
        elapsed_s += timing.step_s(profile, speculation, batch, prompt + done)
        done += 1 + (timing.mean_accepted(speculation, prompt) if speculation else 0)
    return OUTPUT_TOKENS * batch / elapsed_s


@pytest.mark.parametrize(("prompt", "public"), [(60, 170), (1024, 120), (4096, 50), (8192, 25)])
def test_one_stream_on_pcie_follows_the_public_figures(prompt: int, public: float) -> None:
    assert stream_tps(PCIE, TREE, prompt) == pytest.approx(public, rel=0.1)


def test_nvlink_is_faster_and_more_so_at_long_context() -> None:
    ratios = {
        prompt: stream_tps(NVLINK, TREE, prompt) / stream_tps(PCIE, TREE, prompt) for prompt in (60, 8192)
    }
    assert 2.0 <= ratios[60] <= 2.5
    assert 4.0 <= ratios[8192] <= 6.0


def test_without_speculation_a_stream_is_two_and_a_half_to_three_times_slower() -> None:
    for profile in (PCIE, NVLINK):
        assert 2.5 <= stream_tps(profile, TREE, 60) / stream_tps(profile, None, 60) <= 3.1


def test_sixty_four_prompts_of_8192_tokens_prefill_in_about_33_s_on_pcie() -> None:
    assert timing.prefill_s(PCIE, 64 * 8192) == pytest.approx(33, rel=0.05)


@pytest.mark.parametrize(("profile", "low", "high"), [(PCIE, 1500, 2500), (NVLINK, 4000, 6000)])
def test_total_throughput_rises_with_concurrency_and_saturates(profile: Profile, low: int, high: int) -> None:
    totals = [stream_tps(profile, TREE, 60, batch) for batch in (1, 2, 4, 8, 16, 32, 64, 128)]
    assert all(a < b for a, b in itertools.pairwise(totals))
    assert low <= totals[6] <= high
    assert totals[7] / totals[6] < 1.2 < totals[1] / totals[0]


def test_a_long_context_slows_every_concurrency() -> None:
    for batch in (1, 8, 64):
        rates = [stream_tps(PCIE, TREE, prompt, batch) for prompt in (60, 512, 2048, 8192, 32768)]
        assert all(a > b for a, b in itertools.pairwise(rates))


def test_a_larger_tree_accepts_more_with_diminishing_returns() -> None:
    means = [timing.mean_accepted(Speculation(budget, 7, 4, 2048), 100) for budget in (2, 4, 8, 16)]
    assert all(a < b for a, b in itertools.pairwise(means))
    assert means[3] - means[2] < means[1] - means[0] + means[2] - means[1]
    topk = [timing.mean_accepted(Speculation(8, 7, k, 2048), 100) for k in (1, 2, 4, 8)]
    gains = [b - a for a, b in itertools.pairwise(topk)]
    assert gains[0] > gains[1] > gains[2] > 0


def test_the_best_tree_is_smaller_in_a_full_batch() -> None:
    def best(batch: int) -> int:
        budgets = (2, 4, 8, 16, 32, 64)
        return max(budgets, key=lambda b: stream_tps(PCIE, Speculation(b, 7, 4, 2048), 60, batch))

    assert best(64) < best(1) < 64


def test_a_draft_window_costs_acceptance_beyond_it_and_keeps_the_draft_flat() -> None:
    windowed, whole = TREE, Speculation(8, 7, 4, None)
    assert timing.mean_accepted(windowed, 2000) == timing.mean_accepted(whole, 2000)
    assert 0.9 < timing.mean_accepted(windowed, 8192) / timing.mean_accepted(whole, 8192) < 1.0
    assert timing.draft_ms(PCIE, windowed, 8192) == timing.draft_ms(PCIE, windowed, 4096)
    assert timing.draft_ms(PCIE, whole, 8192) > timing.draft_ms(PCIE, windowed, 8192)
    assert timing.draft_ms(PCIE, None, 8192) == 0


@given(
    drafts=st.integers(1, 64), depth=st.integers(1, 15), topk=st.integers(1, 16), context=st.integers(0, 200),
    quality=st.floats(0.1, 1.0),
)  # fmt: skip
def test_the_table_of_accepted_drafts_has_the_mean_it_should(
    drafts: int, depth: int, topk: int, context: int, quality: float
) -> None:
    speculation = Speculation(drafts, depth, topk, 2048, quality)
    table = timing.accept_table(speculation, context)
    chances = [table[0], *(b - a for a, b in itertools.pairwise(table))]
    assert table[-1] == pytest.approx(1)
    assert sum(k * chance for k, chance in enumerate(chances)) == pytest.approx(
        timing.mean_accepted(speculation, context * 256), abs=0.01
    )
    assert timing.accepted(table, 0.0) == 0
    assert timing.accepted(table, 0.999999999999) <= depth
