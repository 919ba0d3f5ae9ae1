"""Text that prompts are cut from."""

from hypothesis import given
from hypothesis import strategies as st

from loadgen.prompts.corpus import TextSource, builtin_paragraphs, paragraphs_of


def test_the_builtin_text_is_four_novels_without_marks_of_their_editors() -> None:
    paragraphs = builtin_paragraphs()
    words = sum(len(paragraph.split()) for paragraph in paragraphs)
    assert 400_000 < words < 450_000  # one 128k prompt takes about 100,000: no paragraph twice
    assert all(paragraph == " ".join(paragraph.split()) != "" for paragraph in paragraphs)
    text = " ".join(paragraphs)
    assert "utenberg" not in text
    for hero in ("White Rabbit", "Miss Woodhouse", "Mr. Darcy", "Willoughby"):
        assert hero in text


def test_paragraphs_are_lines_with_words() -> None:
    assert paragraphs_of("one two\n\n  café  \r\n") == ("one two", "café")


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
    words = TextSource(("a b c", "d e"), seed=1).text(0, 5000).split(" ")
    assert len(words) == 5000
    assert {word.strip() for word in words} == set("abcde")


def test_a_long_prompt_repeats_no_paragraph() -> None:
    lines = TextSource(builtin_paragraphs(), seed=1).text(0, 110_000).split("\n")
    long = [line for line in lines if len(line) > 200]
    assert len(long) > 500
    assert len(set(long)) == len(long)


def test_variants_and_seeds_differ() -> None:
    texts = {
        TextSource(builtin_paragraphs(), seed).text(variant, 30) for seed in (1, 2) for variant in range(4)
    }
    assert len(texts) == 8
