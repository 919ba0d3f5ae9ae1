"""The search for saturation: the steps measured so far in, the next concurrency or the verdict out. Pure.

Streams double until output tok/s gains less than the stated share; then the span between the last streams that still
left something to gain and the first that did not is halved, down to an eighth. Steps that are committed are facts, so
a resumed search goes on where it was.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from loadgen.spec import Saturate

_FINENESS = 8


class Limit(StrEnum):
    """What more streams ran into."""

    SERVER = "server"
    QUEUE = "queue"
    CLIENT = "client"
    MAX = "max"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Step:
    """One measured step; `output_tps` is None where it failed or its tokens are unknown. `slots`: how many requests
    the server runs at once, if it says so.
    """

    concurrency: int
    output_tps: float | None
    is_client_limited: bool = False
    slots: int | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The end of a search: the fewest streams from which more are of no use, what was the limit, and why."""

    concurrency: int
    limit: Limit
    detail: str


def next_step(steps: Sequence[Step], bounds: Saturate) -> int | Verdict:
    """The concurrency to measure next, or the verdict. Steps are in the order in which they were measured."""
    if not steps:
        return bounds.start
    if (last := steps[-1]).output_tps is None:
        detail = f"the step at {last.concurrency} streams has no figure, so the search ended there"
        return Verdict(last.concurrency, Limit.UNKNOWN, detail)
    rates = {step.concurrency: step.output_tps or 0.0 for step in steps}
    tried = sorted(rates)
    if not _is_enough(rates, tried[:-1], bounds.gain):
        return _higher(steps, tried[-1], bounds)
    enough = next(c for c in tried if _is_enough(rates, [c], bounds.gain))
    short = max((c for c in tried if c < enough), default=enough)
    if enough - short > max(1, enough // _FINENESS):
        return (short + enough) // 2
    return _verdict(steps, enough, rates, bounds)


def most_steps(bounds: Saturate) -> int:
    """No search takes more: the doublings, and the halvings of one doubling."""
    doublings, streams = 1, bounds.start
    while streams < bounds.max:
        doublings, streams = doublings + 1, streams * 2
    return doublings + _FINENESS.bit_length()


def _is_enough(rates: dict[int, float], candidates: Sequence[int], gain: float) -> bool:
    """Whether one of `candidates` gives all but the gain of the best there is."""
    return any(max(rates.values()) < rates[c] * (1 + gain) for c in candidates)


def _higher(steps: Sequence[Step], highest: int, bounds: Saturate) -> int | Verdict:
    if highest < bounds.max:
        return min(highest * 2, bounds.max)
    limited = next((step for step in steps if step.concurrency == highest and step.is_client_limited), None)
    if limited:
        return Verdict(highest, Limit.CLIENT, f"the client was the limit at {highest} streams already")
    detail = f"{highest} streams, the most that saturate.max allows, still gained {bounds.gain:.0%} or more"
    return Verdict(highest, Limit.MAX, detail)


def _verdict(steps: Sequence[Step], enough: int, rates: dict[int, float], bounds: Saturate) -> Verdict:
    """Names the limit by the steps beyond: a limited client explains anything, then a full server's queue."""
    beyond = [step for step in steps if step.concurrency >= enough]
    best = max(rates, key=lambda concurrency: rates[concurrency])
    seen = (
        f"from {enough} streams ({rates[enough]:.0f} tok/s) on, more gain less than {bounds.gain:.0%} "
        f"(the best: {rates[best]:.0f} tok/s at {best})"
    )
    if any(step.is_client_limited for step in beyond):
        return Verdict(enough, Limit.CLIENT, f"{seen}; the client itself was at its limit")
    slots = next((step.slots for step in beyond if step.slots is not None), None)
    if slots is not None and max(rates) > slots and enough * (1 + bounds.gain) >= slots:
        return Verdict(
            enough, Limit.QUEUE, f"{seen}; the server runs {slots} requests at once, the rest queue"
        )
    return Verdict(
        enough, Limit.SERVER, f"{seen}; the server had free slots, or does not say how many it has"
    )
