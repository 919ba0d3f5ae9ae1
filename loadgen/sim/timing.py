"""The time model: how long a prefill and a decode step take, and how many draft tokens a verify step accepts.

Pure arithmetic in simulated time; the scheduler asks, nothing here knows a clock. The constants make one stream
follow public single-stream figures for Kimi K2.6 with DFlash-style speculation (tree of 8 drafts, 4 candidates a
position, draft window 2048, 256 output tokens over the whole request's time, prefill included). They are not a
measurement of any machine:

    prompt tokens         60     1024    4096    8192
    pcie   (tok/s)      ~170     ~120     ~50     ~25     8x RTX PRO 6000, PCIe
    nvlink (tok/s)      ~380     ~320    ~190    ~120     8x B300, NVLink

One step costs: reading the weights, a latency that grows with the mean context, the draft, and for each sequence
a share that grows with the tokens verified for it. So a larger tree accepts more, with diminishing returns, and
costs more the larger the batch: its best size shrinks with concurrency, as on real hardware.
"""

import bisect
import functools
import itertools
import math
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Profile:
    """Constants of one platform. Times in ms, `..._us_per_token` in microseconds for each token of context."""

    name: str
    gpu: str
    weights_ms: float  # one forward pass of one token at no context
    context_us_per_token: float  # latency added to a step by the batch's mean context, at 8192 tokens
    sequence_ms: float  # for each sequence in the batch
    verify_ms: float  # for each token verified, of each sequence
    kv_us_per_token: float  # for each token of context of each sequence: reading its KV cache
    draft_ms: float  # one pass of the draft model
    draft_context_us_per_token: float
    prefill_tokens_per_s: float
    prefill_pass_ms: float  # fixed cost of a prefill pass
    kv_capacity_tokens: int  # default of --max-total-tokens
    weight_gb: float
    memory_gb: float


PCIE = Profile(
    name="pcie",
    gpu="RTX PRO 6000",
    weights_ms=14.6,
    context_us_per_token=13.5,
    sequence_ms=0.15,
    verify_ms=0.168,
    kv_us_per_token=0.038,
    draft_ms=5.2,
    draft_context_us_per_token=1.2,
    prefill_tokens_per_s=16_000.0,
    prefill_pass_ms=8.0,
    kv_capacity_tokens=1_000_000,
    weight_gb=69.3,
    memory_gb=95.0,
)
NVLINK = Profile(
    name="nvlink",
    gpu="B300",
    weights_ms=7.3,
    context_us_per_token=2.0,
    sequence_ms=0.07,
    verify_ms=0.061,
    kv_us_per_token=0.009,
    draft_ms=2.3,
    draft_context_us_per_token=0.30,
    prefill_tokens_per_s=80_000.0,
    prefill_pass_ms=4.0,
    kv_capacity_tokens=4_000_000,
    weight_gb=69.3,
    memory_gb=268.0,
)
PROFILES = {profile.name: profile for profile in (PCIE, NVLINK)}

_LONG_CONTEXT = 8192
_CONTEXT_GROWTH = 0.2  # the latency grows a little faster than the context
_EXTRA_TOKENS = 4.5  # drafts accepted in a step by an endless tree of all candidates, at no context
_TREE_SCALE = 6.0  # drafts after which about 63 % of that is reached
_CONTEXT_LOSS = 0.025  # of the accepted drafts, for each doubling of context over 1024 tokens
_WINDOW_LOSS = 0.015  # of the accepted drafts, for each halving of the draft's window below the context


@dataclass(frozen=True, slots=True)
class Speculation:
    """What the drafts look like. `quality` is 1 for a draft model of DFlash's kind.

    `drafts`: draft tokens verified in a step (the tree's budget, or a chain's length); `depth`: how many of them
    can be accepted at most; `topk`: candidates a position; `passes`: forward passes of the draft model.
    """

    drafts: int
    depth: int
    topk: int
    window_tokens: int | None
    quality: float = 1.0
    passes: float = 1.0


def prefill_s(profile: Profile, tokens: int) -> float:
    """One prefill pass over `tokens` prompt tokens that were not in the cache."""
    return profile.prefill_pass_ms / 1e3 + tokens / profile.prefill_tokens_per_s


def step_s(profile: Profile, speculation: Speculation | None, batch: int, mean_context: float) -> float:
    """One decode (verify) step of `batch` sequences with `mean_context` tokens of context each."""
    verified = 1 + (speculation.drafts if speculation else 0)
    each_ms = (
        profile.sequence_ms + profile.verify_ms * verified + profile.kv_us_per_token / 1e3 * mean_context
    )
    slow = math.pow(mean_context / _LONG_CONTEXT, _CONTEXT_GROWTH)
    shared_ms = profile.weights_ms + profile.context_us_per_token / 1e3 * mean_context * slow
    return (shared_ms + draft_ms(profile, speculation, mean_context) + batch * each_ms) / 1e3


def draft_ms(profile: Profile, speculation: Speculation | None, context: float) -> float:
    """The draft's share of a step. Its window keeps it flat over long contexts."""
    if speculation is None:
        return 0.0
    seen = context if speculation.window_tokens is None else min(context, speculation.window_tokens)
    return speculation.passes * (profile.draft_ms + profile.draft_context_us_per_token / 1e3 * seen)


def mean_accepted(speculation: Speculation, context: int) -> float:
    """Draft tokens accepted in a step, on average; the step's own token comes on top."""
    tree = 1.0 - math.exp(-speculation.drafts / _TREE_SCALE)
    candidates = 1.0 - 0.30 / speculation.topk
    kept = max(0.5, 1.0 - _CONTEXT_LOSS * math.log2(1.0 + context / 1024))
    if speculation.window_tokens is not None and context > speculation.window_tokens:
        kept *= max(0.5, 1.0 - _WINDOW_LOSS * math.log2(context / speculation.window_tokens))
    mean = _EXTRA_TOKENS * speculation.quality * tree * candidates * kept
    return min(mean, 0.95 * speculation.depth)


@functools.lru_cache(maxsize=4096)
def accept_table(speculation: Speculation, context_bucket: int) -> tuple[float, ...]:
    """Cumulative chances of accepting 0, 1, ... `depth` drafts, with `mean_accepted` as their mean.

    A truncated geometric distribution, the shape of stopping at the first wrong draft. `context_bucket` is the
    context in units of 256 tokens.
    """
    mean = mean_accepted(speculation, context_bucket * 256)
    low, high = 0.0, 64.0
    for _ in range(60):
        ratio = (low + high) / 2
        if _geometric_mean(ratio, speculation.depth) < mean:
            low = ratio
        else:
            high = ratio
    weights = [ratio**k for k in range(speculation.depth + 1)]
    total = sum(weights)
    return tuple(itertools.accumulate(weight / total for weight in weights))


def accepted(table: tuple[float, ...], uniform: float) -> int:
    """Draft tokens accepted for one draw from [0, 1)."""
    return min(bisect.bisect_right(table, uniform), len(table) - 1)


def _geometric_mean(ratio: float, depth: int) -> float:
    weights = [ratio**k for k in range(depth + 1)]
    return sum(k * weight for k, weight in enumerate(weights)) / sum(weights)
