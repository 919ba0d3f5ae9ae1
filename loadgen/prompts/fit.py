"""Cuts text so that a whole prompt has exactly as many tokens as asked for, in few counts.

First the most words that fit, or nearly so, by steps along a straight line; then the few tokens that are missing are
made up by short words, or by single letters for a tokenizer that has no whole words.
"""

from collections.abc import Callable
from dataclasses import dataclass

from loadgen.errors import RunFailed
from loadgen.prompts.counting import CountTokens

_TRIES = 12
_TOKENS_PER_WORD = 1.4  # a first guess, for English and its punctuation
_NEAR_FRACTION = (
    1 / 256
)  # so near below the target, fillers do the rest: a hundredth of that is seen in no figure
_MOST_FILLERS = 8
_FILLERS = (" so", " it", "x", " x")
_FEWER_WORDS = 3


@dataclass(frozen=True, slots=True)
class Fit:
    """The first `words` words of a text and `filler` make a prompt of `tokens` tokens."""

    words: int
    filler: str
    tokens: int


async def fit_text(
    text: Callable[[int], str], target_tokens: int, count: CountTokens, allowed_tokens: int = 0
) -> Fit:
    """The fit of `text(words)` to `target_tokens`; off by as little as the tokenizer allows, which `tokens` tells.

    `count` says how long a text is with everything around it. So many tokens less as are allowed end the search: for
    counts that are dear. Raises RunFailed when even one word is too long.
    """
    fillers = min(_MOST_FILLERS, int(target_tokens * _NEAR_FRACTION))
    near = await fit_words(text, target_tokens, count, max(fillers, allowed_tokens))
    if target_tokens - near.tokens <= allowed_tokens:
        return near
    best = near
    for words in range(near.words, max(0, near.words - _FEWER_WORDS), -1):
        tokens = near.tokens if words == near.words else await count(text(words))
        found = await _fill(text(words), Fit(words, "", tokens), target_tokens, count)
        best = min(best, found, key=lambda fit: abs(fit.tokens - target_tokens))
        if best.tokens == target_tokens:
            break
    return best


async def fit_words(
    text: Callable[[int], str], target_tokens: int, count: CountTokens, near_tokens: int
) -> Fit:
    """Whole words alone: the most that fit, or as many as come within `near_tokens` below. Raises RunFailed likewise."""
    fewest = await count(text(1))
    if fewest > target_tokens:
        raise RunFailed(
            f"context_tokens {target_tokens} is too small: chat template, salt and one word take {fewest} tokens"
        )
    fits, too_long = Fit(1, "", fewest), None
    words = max(2, round((target_tokens - fewest) / _TOKENS_PER_WORD))
    for _ in range(_TRIES):
        if target_tokens - near_tokens <= fits.tokens or too_long == fits.words + 1:
            break
        tokens = await count(text(words))
        if tokens > target_tokens:
            too_long = words
        elif words > fits.words:
            fits = Fit(words, "", tokens)
        tokens_per_word = max(tokens - fewest, 1) / (words - 1)
        words += round((target_tokens - near_tokens / 2 - tokens) / tokens_per_word)
        words = max(words, fits.words + 1)
        words = words if too_long is None else min(words, too_long - 1)
    return fits


async def _fill(text: str, fit: Fit, target_tokens: int, count: CountTokens) -> Fit:
    missing = target_tokens - fit.tokens
    best = fit
    for unit in _FILLERS if missing > 0 else ():
        filler = unit * missing
        tokens = await count(text + filler)
        if abs(tokens - target_tokens) < abs(best.tokens - target_tokens):
            best = Fit(fit.words, filler, tokens)
        if tokens == target_tokens:
            break
    return best
