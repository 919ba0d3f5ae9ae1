"""Numbers in words, and hostile text made harmless."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reports import text


@given(st.text())
def test_a_clean_text_has_no_character_that_moves_a_cursor_or_turns_a_line(raw: str) -> None:
    shown = text.clean(raw)
    assert not {unicodedata.category(character) for character in shown} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert text.clean(shown) == shown


def test_clean_keeps_what_can_be_read() -> None:
    assert text.clean("a\x1b]8;;http://e\x07b\tc\nd\u202ee 日本 é") == "a]8;;http://eb c de 日本 é"


def test_clip_shows_that_it_cut() -> None:
    assert text.clip("abcdef", 6) == "abcdef"
    assert text.clip("abcdefg", 6) == "abcde…"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "?"),
        (float("nan"), "?"),
        (float("inf"), "?"),
        (0.0, "0.0"),
        (0.01234, "0.0123"),
        (44.04, "44.0"),
        (99.94, "99.9"),
        (99.96, "100"),
        (1234.4, "1234"),
    ],
)
def test_figure(value: float | None, shown: str) -> None:
    assert text.figure(value) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "?"),
        (0.0, "0%"),
        (0.0001, "<0.1%"),
        (0.001, "0.1%"),
        (0.25, "25%"),
        (0.125, "12.5%"),
        (1.0, "100%"),
    ],
)
def test_percent_never_shows_something_as_nothing(value: float | None, shown: str) -> None:
    assert text.percent(value) == shown


def test_pairs_reads_objects_and_their_json_and_shows_the_rest_as_it_is() -> None:
    assert text.pairs({"a": 1, "b": None, "c": 0.5}) == "a=1, b=?, c=0.5"
    assert text.pairs('{"a": true}') == "a=True"
    assert text.pairs("{broken") == "{broken"
    assert text.pairs("[1]") == "[1]"


def test_moment_is_in_utc() -> None:
    assert text.moment(1_760_000_000_000_000_000) == "2025-10-09 08:53 UTC"
    assert text.moment(None) == "?"
