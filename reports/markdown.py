"""A report as Markdown (GitHub's). Every character of the text that could mean something is escaped."""

import re
from collections.abc import Sequence
from itertools import chain

from reports.blocks import (
    Banner,
    Block,
    Bullets,
    Figures,
    Grid,
    Heading,
    Lines,
    Paragraph,
    Span,
    Words,
    plain_text,
)
from reports.document import document
from reports.model import Report

_SPECIAL = re.compile(r"[\\`*\[\]|~$#]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;", "@": "&#64;"}
_AT_THE_START = re.compile(r"^(?:[-+=]|\d(?=\d*[.)](?:\s|$)))")
# GitHub makes links of bare addresses; a link that a model wrote is not ours to offer.
_LINKS = re.compile(r":(?=//)|(?<=www)\.", re.IGNORECASE)


def to_markdown(report: Report) -> str:
    """The report as one Markdown text."""
    whole = document(report)
    parts = [f"# {escape(whole.title)}"]
    for section in whole.sections:
        parts.append(f"## {escape(section.title)}")
        parts += [text for block in section.blocks if (text := _block(block))]
    return "\n\n".join(parts) + "\n"


def escape(text: str) -> str:
    """A line of text that Markdown shows as it is, in a paragraph and in a table alike."""
    text = _SPECIAL.sub(r"\\\g<0>", text.strip())
    text = "".join(_ENTITIES.get(character, character) for character in text)
    return _LINKS.sub(_entity, text)


def _entity(match: re.Match[str]) -> str:
    return f"&#{ord(match.group())};"


def _block(block: Block) -> str:
    match block:
        case Banner(words=sentence):
            return f"> **{escape(plain_text(sentence))}**"
        case Heading(words=sentence):
            return f"### {_inline(sentence)}"
        case Paragraph(words=sentence):
            return _paragraph(sentence)
        case Bullets(items=items):
            return "\n".join(f"- {_paragraph(item)}" for item in items)
        case Grid():
            return _grid(block)
        case Lines(lines=lines):
            return _fenced([plain_text(line) for line in lines])
        case Figures():
            return ""


def _paragraph(sentence: Words) -> str:
    """What begins like a list or an underline is none."""
    return _AT_THE_START.sub(_entity, _inline(sentence))


def _inline(sentence: Words) -> str:
    """The spaces around styled spans are kept; styles other than strong and code are colours, lost here."""
    return "".join(map(_span, sentence)).strip()


def _span(span: Span) -> str:
    body = span.text.strip()
    if not body:
        return span.text
    before = span.text[: len(span.text) - len(span.text.lstrip())]
    after = span.text[len(span.text.rstrip()) :]
    escaped = escape(body)
    if span.style == "strong":
        escaped = f"**{escaped}**"
    if span.style == "code" and "`" not in body and "|" not in body:
        escaped = f"`{body}`"
    return f"{before}{escaped}{after}"


def _grid(grid: Grid) -> str:
    header = [escape(column.title) for column in grid.columns]
    ruler = ["---:" if column.numeric else "---" for column in grid.columns]
    rows = [[_inline(cell) for cell in row] for row in grid.rows]
    lines = [f"| {' | '.join(row)} |" for row in (header, ruler, *rows)]
    return "\n".join((escape(grid.caption), "", *lines))


def _fenced(lines: Sequence[str]) -> str:
    longest = max(
        (len(run) for run in chain.from_iterable(re.findall("`+", line) for line in lines)), default=0
    )
    fence = "`" * max(3, longest + 1)
    return "\n".join((f"{fence}text", *lines, fence))
