"""The simulator's tokenizer: exact round trip, stable ids, a plausible length."""

import importlib.resources

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.sim import tokenizer

any_text = st.text(st.characters(codec=None), max_size=300)


@given(any_text)
def test_round_trip(text: str) -> None:
    assert "".join(tokenizer.pieces(text)) == text
    ids = tokenizer.encode(text)
    assert ids == tokenizer.ids_of(tokenizer.pieces(text))
    assert tokenizer.decode(ids) == text
    assert all(0 < number < 2**53 for number in ids)


@given(st.lists(st.sampled_from([*tokenizer.SPECIAL_TOKENS, " <", "a", ">", "\n", "|im_end|>"])).map("".join))
def test_special_tokens_are_one_token_wherever_they_stand(text: str) -> None:
    pieces = tokenizer.pieces(text)
    assert "".join(pieces) == text
    for token in tokenizer.SPECIAL_TOKENS:
        assert pieces.count(token) == text.count(token)


def test_ids_do_not_depend_on_what_was_seen_before() -> None:
    assert tokenizer.encode("hello") == [int.from_bytes(b"hello") * 8 + 5]
    assert tokenizer.encode(tokenizer.END_OF_TURN) == [tokenizer.END_OF_TURN_ID]


def test_english_takes_about_four_characters_a_token() -> None:
    text = importlib.resources.files("loadgen").joinpath("data", "alice.txt").read_text(encoding="utf-8")
    assert 3.3 < len(text) / len(tokenizer.encode(text)) < 4.5


@pytest.mark.parametrize("number", [-1, 0, 7, 8 * 99, 2**60, (0xFF << 3) + 1])
def test_numbers_that_are_no_tokens(number: int) -> None:
    with pytest.raises(ValueError, match=r"no token id|decode"):
        tokenizer.decode([number])
