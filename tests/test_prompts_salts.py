"""Salts: no two requests begin alike, and all are equally long to the tokenizer."""

import asyncio
from collections import Counter
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from loadgen.prompts.salts import _POOL, DEFAULT_ALPHABET, SALT_WORDS, Alphabet, SaltKey, find_alphabet

KEY = SaltKey("run", "cell", 0, 1)


def test_salts_differ_over_index_cell_repeat_run_and_seed() -> None:
    keys = [
        SaltKey(run, cell, repeat, seed)
        for run in ("r1", "r2") for cell in ("c1", "c2") for repeat in (0, 1) for seed in (1, 2)
    ]  # fmt: skip
    salts = {key.salt(index) for key in keys for index in range(2000)}
    assert len(salts) == 16 * 2000
    assert {len(salt.split()) for salt in salts} == {SALT_WORDS}


@given(
    st.text(), st.integers(0, 2**31), st.integers(0, 2**49), st.integers(0, 2**49), st.sampled_from([16, 32])
)
def test_two_indexes_of_a_cell_never_have_the_same_salt(
    cell: str, seed: int, one: int, other: int, words: int
) -> None:
    key, alphabet = SaltKey("run", cell, 0, seed), Alphabet(_POOL[:words], is_even=True)
    room = words**SALT_WORDS
    same = key.salt(one, alphabet) == key.salt(other, alphabet)
    assert same == (one % room == other % room)


def test_salts_part_at_their_first_words() -> None:
    salts = [KEY.salt(index).split() for index in range(10_000)]
    first = Counter(salt[0] for salt in salts)
    assert len(first) == 32
    assert max(first.values()) < 450  # 312 each if they were even
    assert max(Counter(tuple(salt[:3]) for salt in salts).values()) <= 6  # of 32,768 beginnings


def test_what_a_cell_shares_has_a_salt_that_no_request_has() -> None:
    shared = {SaltKey("run", f"c{n}", 0, 1).shared() for n in range(100)}
    assert len(shared) == 100
    assert not shared & {SaltKey("run", f"c{n}", 0, 1).salt(i) for n in range(100) for i in range(100)}


def test_a_salt_is_as_long_in_bytes_as_any_other() -> None:
    assert {len(KEY.salt(index)) for index in range(1000)} == {SALT_WORDS * 4 - 1}
    assert len(set(_POOL)) == len(_POOL)


def found(tokens_of: Callable[[str], int]) -> tuple[Alphabet, int]:
    calls = []

    async def count(salt: str) -> int:
        calls.append(salt)
        return 9 + tokens_of(salt)

    return asyncio.run(find_alphabet(count)), len(calls)


def test_a_tokenizer_of_words_or_of_bytes_takes_the_first_words() -> None:
    for tokens_of in (lambda salt: len(salt.split()), len):
        alphabet, calls = found(tokens_of)
        assert alphabet == Alphabet(DEFAULT_ALPHABET.words, is_even=True)
        assert calls == 32


def test_words_that_count_more_are_left_out() -> None:
    def tokens_of(salt: str) -> int:
        return sum(1 + (word[0] < "f") for word in salt.split())

    alphabet, _ = found(tokens_of)
    assert alphabet.is_even
    assert len(alphabet.words) == 32
    assert min(word[0] for word in alphabet.words) == "f"


def test_words_that_differ_only_at_the_very_start_are_not_mixed() -> None:
    alphabet, _ = found(lambda salt: SALT_WORDS + (salt[0] in "abcdefghijk"))
    assert alphabet.is_even
    assert len({word[0] in "abcdefghijk" for word in alphabet.words}) == 1


def test_a_tokenizer_that_counts_everything_differently_is_uneven() -> None:
    alphabet, calls = found(lambda salt: int.from_bytes(salt[:3].encode()))
    assert alphabet == DEFAULT_ALPHABET
    assert not alphabet.is_even
    assert calls == len(_POOL)
