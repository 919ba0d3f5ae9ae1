"""Markdown that shows text as it is, by a real parser of Markdown."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token
from report_fixtures import HOSTILE, full_report, hostile_report

from reports.markdown import escape, to_markdown
from reports.text import clean

HARMLESS = {
    "heading_open", "heading_close", "paragraph_open", "paragraph_close", "bullet_list_open", "bullet_list_close",
    "list_item_open", "list_item_close", "blockquote_open", "blockquote_close", "table_open", "table_close",
    "thead_open", "thead_close", "tbody_open", "tbody_close", "tr_open", "tr_close", "th_open", "th_close",
    "td_open", "td_close", "fence", "inline", "text", "strong_open", "strong_close", "code_inline",
}  # fmt: skip


def parse(markdown: str) -> list[Token]:
    """All tokens, those inside of lines too."""
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    tokens = parser.parse(markdown)
    return [*tokens, *(child for token in tokens for child in token.children or ())]


def words_of(tokens: list[Token]) -> str:
    return "".join(token.content for token in tokens if token.type in ("text", "text_special", "code_inline"))


@given(st.text(st.sampled_from("a1 .|`*_[]()<>!#$~&\\-+=:/@\t\n\"'"), min_size=1, max_size=30))
def test_escaped_text_reads_as_it_was_in_a_line_and_in_a_table(raw: str) -> None:
    line = " ".join(clean(raw).split())
    if not line:
        return
    shown = parse(f"- x{escape(line)}x")
    assert words_of(shown) == f"x{line}x"
    table = parse(f"| a | b |\n| --- | --- |\n| x{escape(line)}x | y |")
    cells = [token.children or [] for token in table if token.type == "inline"]
    assert [words_of(cell) for cell in cells] == ["a", "b", f"x{line}x", "y"]


@pytest.mark.parametrize(
    "hostile", ["http://evil.example", "www.evil.example", "a@evil.example", "HTTPS://x.y"]
)
def test_addresses_are_not_left_for_a_renderer_to_link(hostile: str) -> None:
    assert hostile.lower() not in escape(hostile).lower()


def test_the_report_has_its_headings_and_whole_tables() -> None:
    markdown = to_markdown(full_report())
    assert [line for line in markdown.splitlines() if line.startswith(("# ", "## "))] == [
        "# Load report: kimi sweep",
        "## What was run",
        "## What cannot be trusted",
        "## Output tokens per second",
        "## Platform ratios",
        "## Grades",
        "## Servers",
        "## The client",
        "## What other tools would print",
        "## How to read this",
    ]
    assert "| 50000 | 44.0 | fail | 404 ! |" in markdown
    assert "[TRUNC] fib  4096 tokens  168 tok/s\n" in markdown
    assert "nan" not in markdown.lower().replace("nano", "")


def test_hostile_text_makes_nothing_but_text() -> None:
    markdown = to_markdown(hostile_report())
    assert not [character for character in markdown if character != "\n" and clean(character) != character]
    tokens = parse(markdown)
    assert {token.type for token in tokens} <= HARMLESS | {"text_special", "softbreak"}
    assert clean(HOSTILE) in words_of(tokens)
    assert "http://" not in "".join(line for line in markdown.split("```")[0])


def test_hostile_text_does_not_break_out_of_a_table_or_a_fence() -> None:
    tokens = parse(to_markdown(hostile_report()))
    (log,) = [
        token for token in tokens if token.type == "fence" and "pre&gt;" in token.content.replace(">", "&gt;")
    ]
    assert "```" in log.content.splitlines()
    headings = [token for token in tokens if token.type == "heading_open" and token.tag in ("h1", "h2")]
    assert len(headings) == 10
