"""The parts a report is made of, between the values and the renderers: so that all renderings say the same words.

What a block is made with is cleaned then; what stands in a block is one line without control characters.
"""

from dataclasses import dataclass
from typing import Literal

from reports.text import clean

Style = Literal["", "strong", "code", "doubt", "bad", "good", "faint"]


@dataclass(frozen=True, slots=True)
class Span:
    text: str
    style: Style = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", clean(self.text))


Words = tuple[Span, ...]


def words(*parts: str | Span) -> Words:
    """Plain strings and styled spans, in a row."""
    return tuple(Span(part) if isinstance(part, str) else part for part in parts)


def plain_text(sentence: Words) -> str:
    return "".join(span.text for span in sentence)


@dataclass(frozen=True, slots=True)
class Banner:
    """Words that nobody may overlook."""

    words: Words


@dataclass(frozen=True, slots=True)
class Heading:
    words: Words


@dataclass(frozen=True, slots=True)
class Paragraph:
    words: Words


@dataclass(frozen=True, slots=True)
class Bullets:
    items: tuple[Words, ...]


@dataclass(frozen=True, slots=True)
class Column:
    """`brief`: the terminal shows it too."""

    title: str
    numeric: bool = False
    brief: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", clean(self.title))


@dataclass(frozen=True, slots=True)
class Grid:
    """A table; the first column names the row. `terminal`: how much of it a terminal shows. `is_aside`: the page shows
    it closed, so that the deciding numbers stay near each other.
    """

    caption: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Words, ...], ...]
    terminal: Literal["whole", "shortened", "nothing"] = "shortened"
    is_aside: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "caption", clean(self.caption))


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines whose spacing matters."""

    lines: tuple[Words, ...]


@dataclass(frozen=True, slots=True)
class Figures:
    """Where a rendering that can draw puts its plots."""


Block = Banner | Heading | Paragraph | Bullets | Grid | Lines | Figures


@dataclass(frozen=True, slots=True)
class Section:
    key: str
    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True, slots=True)
class Document:
    title: str
    sections: tuple[Section, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "title", clean(self.title))
