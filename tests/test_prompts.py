"""Prompts: real text, exact lengths, no shared prefixes."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.errors import BadInput, RunFailed
from loadgen.prompts import (
    LoadPrompts,
    SaltKey,
    TextSource,
    fit_words,
    read_corpus,
    user_message,
)
from loadgen.wire import ChatOptions

KEY = SaltKey("run", "cell", 0, 1)
OPTIONS = ChatOptions("kimi", 32, 0)


def test_the_builtin_text_is_a_novel() -> None:
    paragraphs = read_corpus("builtin")
    assert sum(len(paragraph.split()) for paragraph in paragraphs) > 20_000
    assert all(paragraph == paragraph.strip() != "" for paragraph in paragraphs)


def test_a_text_file_is_a_corpus(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_text("one two\n\n  café  \r\n")
    assert read_corpus(str(path)) == ("one two", "café")


def test_a_corpus_that_cannot_be_read_is_bad_input(tmp_path: Path) -> None:
    def message(path: Path) -> str:
        with pytest.raises(BadInput) as caught:
            read_corpus(str(path))
        return str(caught.value)

    (tmp_path / "binary").write_bytes(b"\xff\x00\xfe")
    (tmp_path / "blank").write_text(" \n\n")
    assert "No such file" in message(tmp_path / "none")
    assert "Is a directory" in message(tmp_path)
    assert "it is not UTF-8 text" in message(tmp_path / "binary")
    assert "the file has no words" in message(tmp_path / "blank")


@given(st.lists(st.integers(1, 60), max_size=5), st.integers(1, 60), st.integers(0, 3))
def test_a_text_does_not_depend_on_what_was_asked_for_before(
    before: list[int], words: int, variant: int
) -> None:
    paragraphs = ("a b c", "d e", "f", "g h i j")
    fresh = TextSource(paragraphs, seed=7).text(variant, words)
    used = TextSource(paragraphs, seed=7)
    for earlier in before:
        used.text(variant, earlier)
    assert used.text(variant, words) == fresh
    assert used.text(variant, words + 9).startswith(fresh)


def test_a_text_is_longer_than_its_corpus_when_it_must_be() -> None:
    source = TextSource(("a b c", "d e"), seed=1)
    words = source.text(0, 5000).split(" ")
    assert len(words) == 5000
    assert {word.strip() for word in words} == set("abcde")


def test_variants_and_seeds_differ() -> None:
    texts = {
        TextSource(read_corpus("builtin"), seed).text(variant, 30) for seed in (1, 2) for variant in range(4)
    }
    assert len(texts) == 8


def test_salts_differ_over_index_cell_repeat_run_and_seed() -> None:
    keys = [
        SaltKey(run, cell, repeat, seed)
        for run in ("r1", "r2") for cell in ("c1", "c2") for repeat in (0, 1) for seed in (1, 2)
    ]  # fmt: skip
    salts = {key.salt(index) for key in keys for index in range(2000)}
    assert len(salts) == 16 * 2000
    assert {len(salt) for salt in salts} == {12}


def test_salts_are_spread_over_their_first_characters() -> None:
    starts = [KEY.salt(index)[:2] for index in range(10_000)]
    assert max(starts.count(start) for start in set(starts)) < 100  # 256 starts, 39 each


def test_a_request_is_the_same_wherever_it_is_made_and_begins_with_its_salt() -> None:
    prompts = [LoadPrompts.make(["text A", "text B"], OPTIONS, KEY) for _ in range(2)]
    for index in range(6):
        assert prompts[0].body(index) == prompts[1].body(index)
        content = json.loads(prompts[0].body(index))["messages"][0]["content"]
        assert content == prompts[0].message(index)
        assert content == user_message(KEY.salt(index), f"text {'AB'[index % 2]}")
        assert content.startswith(KEY.salt(index))


def test_text_with_quotes_newlines_and_the_mark_itself_survives() -> None:
    text = 'say "hi"\n\\ @SALT@ ☕'
    prompts = LoadPrompts.make([text], OPTIONS, KEY)
    content = json.loads(prompts.body(3))["messages"][0]["content"]
    assert content == prompts.message(3) == user_message(KEY.salt(3), text)


def counter(tokens_of: Callable[[int], int]) -> tuple[Callable[[str], Awaitable[int]], list[int]]:
    """A tokenizer that only looks at the number of words, and the calls that were made of it."""
    calls: list[int] = []

    async def count(text: str) -> int:
        calls.append(len(text.split()))
        return tokens_of(len(text.split()))

    return count, calls


def fitted(target: int, tokens_of: Callable[[int], int]) -> tuple[int, int]:
    count, calls = counter(tokens_of)
    words = asyncio.run(fit_words(lambda n: " ".join(["w"] * n), target, count))
    return words, len(calls)


def test_a_length_that_can_be_met_is_met() -> None:
    assert fitted(1000, lambda words: 21 + words)[0] == 979
    assert fitted(60, lambda words: 50 + words)[0] == 10
    assert fitted(51, lambda words: 50 + words)[0] == 1


def test_a_length_that_cannot_be_met_is_come_near_from_below() -> None:
    assert fitted(101, lambda words: 10 + 3 * words)[0] == 30


def test_a_long_template_does_not_keep_the_fit_from_its_length() -> None:
    words, _ = fitted(60, lambda words: 50 + round(1.3 * words))
    assert 50 + round(1.3 * words) == 60


def test_a_length_below_template_and_one_word_is_refused() -> None:
    with pytest.raises(RunFailed, match=r"context_tokens 20 is too small: .* take 31 tokens"):
        fitted(20, lambda words: 30 + words)


@given(
    st.integers(40, 100_000),
    st.integers(0, 39),
    st.lists(st.integers(1, 4), min_size=5, max_size=40),
)
def test_any_steady_text_is_fitted_from_below_in_few_calls(
    target: int, template: int, pattern: list[int]
) -> None:
    def tokens_of(words: int) -> int:
        whole, rest = divmod(words, len(pattern))
        return template + whole * sum(pattern) + sum(pattern[:rest])

    if tokens_of(1) > target:
        return
    words, calls = fitted(target, tokens_of)
    assert target - 8 <= tokens_of(words) <= target
    assert calls <= 9
