"""Exact lengths in few counts, whatever the tokenizer."""

import asyncio
import re
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.errors import RunFailed
from loadgen.prompts.corpus import TextSource, builtin_paragraphs
from loadgen.prompts.fit import Fit, fit_text, fit_words
from loadgen.sim import tokenizer

TEXT = TextSource(builtin_paragraphs(), seed=1)


def counter(tokens_of: Callable[[str], int]) -> tuple[Callable[[str], Awaitable[int]], list[str]]:
    calls: list[str] = []

    async def count(text: str) -> int:
        calls.append(text)
        return tokens_of(text)

    return count, calls


def fitted(target: int, tokens_of: Callable[[str], int], allowed: int = 0) -> tuple[Fit, int]:
    count, calls = counter(tokens_of)
    fit = asyncio.run(fit_text(lambda words: TEXT.text(0, words), target, count, allowed))
    assert fit.tokens == tokens_of(TEXT.text(0, fit.words) + fit.filler)
    return fit, len(calls)


TOKENIZERS: dict[str, Callable[[str], int]] = {
    "words": lambda text: 21 + len(text.split()),
    "bytes": lambda text: 21 + len(text.encode()),
    "simulator": lambda text: 21 + len(tokenizer.encode(text)),
    "syllables": lambda text: 21 + len(re.findall(r" ?[^aeiou\s]*[aeiou]+|\S", text)),
}


@pytest.mark.parametrize("name", TOKENIZERS)
@pytest.mark.parametrize("target", [60, 61, 64, 1024, 8192])
def test_any_tokenizer_of_real_text_is_met_exactly(name: str, target: int) -> None:
    fit, calls = fitted(target, TOKENIZERS[name])
    assert fit.tokens == target
    assert calls <= 20
    assert len(fit.filler) <= 8 * 3


def test_a_hundred_thousand_tokens_take_a_dozen_counts() -> None:
    fit, calls = fitted(100_000, TOKENIZERS["simulator"])
    assert fit.tokens == 100_000
    assert calls <= 12


def test_a_length_that_cannot_be_met_is_come_near() -> None:
    fit, _ = fitted(101, lambda text: 10 + 3 * len(text.split()))
    assert fit.tokens == 100


def test_where_counts_are_dear_a_fit_may_be_off() -> None:
    exact, many = fitted(100_000, TOKENIZERS["simulator"])
    near, few = fitted(100_000, TOKENIZERS["simulator"], allowed=500)
    assert 99_500 <= near.tokens <= 100_000
    assert few < many
    assert exact.tokens == 100_000


def test_a_length_below_template_and_one_word_is_refused() -> None:
    with pytest.raises(RunFailed, match=r"context_tokens 20 is too small: .* take 31 tokens"):
        fitted(20, lambda text: 30 + len(text.split()))


def test_a_length_of_template_and_one_word_is_met() -> None:
    assert fitted(51, lambda text: 50 + len(text.split()))[0] == Fit(1, "", 51)


@given(st.integers(40, 100_000), st.integers(0, 39), st.lists(st.integers(1, 4), min_size=5, max_size=40))
def test_whole_words_of_any_steady_text_fit_from_below_in_few_calls(
    target: int, template: int, pattern: list[int]
) -> None:
    def tokens_of(words: int) -> int:
        whole, rest = divmod(words, len(pattern))
        return template + whole * sum(pattern) + sum(pattern[:rest])

    if tokens_of(1) > target:
        return
    count, calls = counter(lambda text: tokens_of(text.count("w")))
    fit = asyncio.run(fit_words(lambda words: "w" * words, target, count, 0))
    assert target - 8 <= fit.tokens == tokens_of(fit.words) <= target
    assert len(calls) <= 13
