"""The search for saturation, against servers of which the right answer is known."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.saturation import Limit, Step, Verdict, most_steps, next_step
from loadgen.spec import Saturate

BOUNDS = Saturate(start=1, max=1024, gain=0.05)


def search(
    rate: Callable[[int], float | None],
    bounds: Saturate = BOUNDS,
    slots: int | None = None,
    client_limit: int = 10**9,
) -> tuple[list[int], Verdict]:
    """The concurrencies tried, and the verdict. The client is limited from `client_limit` streams on."""
    steps: list[Step] = []
    while isinstance(chosen := next_step(steps, bounds), int):
        assert chosen not in [step.concurrency for step in steps]
        assert bounds.start <= chosen <= bounds.max
        steps.append(Step(chosen, rate(chosen), chosen >= client_limit, slots))
    return [step.concurrency for step in steps], chosen


def test_it_doubles_until_nothing_is_gained_and_then_halves_the_span() -> None:
    """Linear to 40 streams, flat from there: 64 is enough, 32 is not (40/32 = 1.25); then between them."""
    tried, verdict = search(lambda streams: 10.0 * min(streams, 40))
    assert tried == [1, 2, 4, 8, 16, 32, 64, 128, 48, 40, 36]
    assert (verdict.concurrency, verdict.limit) == (40, Limit.SERVER)
    assert "from 40 streams (400 tok/s) on, more gain less than 5%" in verdict.detail


def test_the_queue_is_named_where_the_server_runs_no_more_at_once() -> None:
    tried, verdict = search(lambda streams: 10.0 * min(streams, 48), slots=48)
    assert (verdict.concurrency, verdict.limit) == (48, Limit.QUEUE)
    assert "the server runs 48 requests at once" in verdict.detail
    assert max(tried) == 128


def test_a_server_that_is_full_before_its_slots_are_is_itself_the_limit() -> None:
    _, verdict = search(lambda streams: 10.0 * min(streams, 8), slots=48)
    assert (verdict.concurrency, verdict.limit) == (8, Limit.SERVER)
    _, verdict = search(lambda streams: 10.0 * min(streams, 8), slots=12)
    assert (verdict.concurrency, verdict.limit) == (8, Limit.SERVER)


def test_a_limited_client_explains_everything() -> None:
    _, verdict = search(lambda streams: 10.0 * min(streams, 48), slots=48, client_limit=64)
    assert verdict.limit == Limit.CLIENT
    _, verdict = search(lambda streams: 10.0 * streams, Saturate(max=64), client_limit=64)
    assert (verdict.concurrency, verdict.limit) == (64, Limit.CLIENT)


def test_a_limited_client_below_the_knee_changes_nothing() -> None:
    steps = [Step(1, 10.0, is_client_limited=True), Step(2, 20.0), Step(4, 20.0)]
    verdict = next_step(steps, BOUNDS)
    assert isinstance(verdict, Verdict)
    assert (verdict.concurrency, verdict.limit) == (2, Limit.SERVER)


def test_the_bound_of_the_config_is_no_saturation() -> None:
    tried, verdict = search(lambda streams: 10.0 * streams, Saturate(start=3, max=20))
    assert tried == [3, 6, 12, 20]
    assert (verdict.concurrency, verdict.limit) == (20, Limit.MAX)


def test_a_start_beyond_saturation_is_its_own_knee() -> None:
    tried, verdict = search(lambda _: 100.0, Saturate(start=16, max=64))
    assert tried == [16, 32]
    assert verdict.concurrency == 16
    assert search(lambda _: 5.0, Saturate(start=1, max=1))[1].limit == Limit.MAX


def test_a_failed_step_ends_the_search_with_no_knee_claimed() -> None:
    tried, verdict = search(lambda streams: 10.0 * streams if streams < 8 else None)
    assert tried == [1, 2, 4, 8]
    assert (verdict.concurrency, verdict.limit) == (8, Limit.UNKNOWN)


def test_a_rate_that_falls_beyond_the_knee_does_not_lead_further() -> None:
    tried, verdict = search(lambda streams: 10.0 * (streams if streams <= 16 else 320 / streams))
    assert max(tried) == 32
    assert verdict.concurrency in (15, 16)


CURVES = st.builds(
    lambda half, top: lambda streams: top * streams / (streams + half),
    st.floats(0.1, 5000),
    st.floats(1, 1e6),
)


@given(CURVES, st.integers(1, 100), st.integers(1, 5000), st.floats(0.01, 0.5))
def test_every_search_ends_and_finds_what_it_says(
    rate: Callable[[int], float], start: int, above: int, gain: float
) -> None:
    bounds = Saturate(start=start, max=start + above, gain=gain)
    tried, verdict = search(rate, bounds)
    assert len(tried) <= most_steps(bounds)
    best = max(map(rate, tried))
    if verdict.limit == Limit.MAX:
        assert verdict.concurrency == bounds.max == tried[-1]
    else:
        assert best < rate(verdict.concurrency) * (1 + gain)
        fewer = [streams for streams in tried if streams < verdict.concurrency]
        assert all(best >= rate(streams) * (1 + gain) for streams in fewer)
        assert not fewer or verdict.concurrency - max(fewer) <= max(1, verdict.concurrency // 8)


@given(st.lists(st.floats(0, 100), min_size=80, max_size=80), st.integers(1, 64))
def test_noise_never_makes_it_endless(noise: list[float], start: int) -> None:
    tried, _ = search(lambda streams: noise[streams % 80], Saturate(start=start, max=1024))
    assert len(tried) <= 80


@pytest.mark.parametrize("count", range(12))
def test_steps_that_are_facts_lead_to_where_the_search_was(count: int) -> None:
    def rate(streams: int) -> float:
        return 10.0 * min(streams, 40)

    tried, verdict = search(rate)
    chosen = next_step([Step(streams, rate(streams)) for streams in tried[:count]], BOUNDS)
    assert chosen == ([*tried, verdict][count])
