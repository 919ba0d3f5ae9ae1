"""Finds fenced blocks in Markdown as models write it. Pure, one pass over the lines; what a block holds is not judged here.

Kinder than CommonMark where models are careless: a closer may carry punctuation, a new tagged opener ends a block
that was never closed, a fence may follow prose or a list marker on its line or stand glued to the last line of code.
A fence inside a triple-quoted string of the block does not end it.
"""

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass

_OPENING = re.compile(r"[ \t]*(?:(?:[-*+]|\d{1,3}[.)])[ \t]+)?(`{3,}|~{3,})[ \t]*(.*)")
_STRING_MARKS = re.compile(r"\\.|\"\"\"|'''|[\"'#]")
_MARKDOWN = ("markdown", "md")
# A block extended past inner fences that then does not parse is read again from its first closer; this bounds the
# lines that can be read twice by such a text, so that the whole stays linear.
_MAX_FAILED_EXTENSIONS = 16


@dataclass(frozen=True, slots=True)
class Fence:
    """An opening line: the fence characters and the info string after them."""

    mark: str
    info: str

    @property
    def language(self) -> str:
        """First word of the info string, lower case."""
        return re.split(r"[\s{:,]", self.info, maxsplit=1)[0].lower()


@dataclass(frozen=True, slots=True)
class Block:
    language: str
    code: str
    closed: bool


@dataclass(frozen=True, slots=True)
class Scan:
    """`blocks` in order; `outside`: the text before, between and after them (one more piece than blocks)."""

    blocks: tuple[Block, ...]
    outside: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _End:
    """Where a block ends: its lines are [start, `line`) and `last`; scanning goes on at `resume`."""

    line: int
    resume: int
    closed: bool
    last: str | None = None


def opening(line: str) -> Fence | None:
    """The fence that this line opens, if any. A backtick in the info string makes it inline code instead."""
    match = _OPENING.match(line)
    if match is None:
        return _opening_after_prose(line)
    if match[1][0] == "`" and "`" in match[2]:
        return None
    return Fence(match[1], match[2].strip())


def closes(line: str, fence: Fence) -> bool:
    """Whether this line ends the block: at least as many marks, and no word after them."""
    stripped = line.strip()
    rest = stripped.lstrip(fence.mark[0])
    return len(stripped) - len(rest) >= len(fence.mark) and not any(c.isalnum() for c in rest)


def scan(text: str) -> Scan:
    """All fenced blocks of a text whose lines end in a bare newline, and what is outside them."""
    return _Scanner(text.split("\n")).run()


def inner_blocks(blocks: Iterable[Block]) -> list[Block]:
    """The blocks, with the blocks inside a Markdown block in place of it (one level)."""
    found: list[Block] = []
    for block in blocks:
        inner = scan(block.code).blocks if block.language in _MARKDOWN else ()
        found += inner or (block,)
    return found


def open_string(line: str, inside: str | None) -> str | None:
    """The triple quote still open after this line of Python, given the one open before it."""
    single: str | None = None
    for match in _STRING_MARKS.finditer(line):
        mark = match[0]
        if mark[0] == "\\":
            continue
        if inside is not None:
            inside = None if mark == inside else inside
        elif single is not None:
            single = None if mark[0] == single else single
        elif mark == "#":
            break
        elif len(mark) == 3:
            inside = mark
        else:
            single = mark
    return inside


class _Scanner:
    def __init__(self, lines: list[str]) -> None:
        self._lines = lines
        self._blocks: list[Block] = []
        self._outside: list[str] = []
        self._between: list[str] = []
        self._extensions_left = _MAX_FAILED_EXTENSIONS

    def run(self) -> Scan:
        at = 0
        while at < len(self._lines):
            at = self._step(at)
        self._outside.append("\n".join(self._between))
        return Scan(tuple(self._blocks), tuple(self._outside))

    def _step(self, at: int) -> int:
        line = self._lines[at]
        if (block := _one_line_block(line)) is not None:
            self._add(block)
            return at + 1
        fence = opening(line)
        if fence is None:
            self._between.append(line)
            return at + 1
        end = self._end(at + 1, fence)
        code = self._code(at + 1, end)
        self._add(Block(fence.language, _unindent(code, line), end.closed))
        return end.resume

    def _add(self, block: Block) -> None:
        self._blocks.append(block)
        self._outside.append("\n".join(self._between))
        self._between = []

    def _code(self, start: int, end: _End) -> str:
        return "\n".join(self._lines[start : end.line] + ([] if end.last is None else [end.last]))

    def _end(self, start: int, fence: Fence) -> _End:
        """The end of the block; past a closer only while a triple-quoted string is open, and if the whole then parses."""
        string: str | None = None
        first: _End | None = None
        for at in range(start, len(self._lines)):
            found = self._end_at(at, fence, in_string=string is not None)
            if found is not None and string is None:
                return found if first is None else self._checked(start, found, first)
            if found is not None and first is None:
                first = found
                if self._extensions_left == 0:
                    return first
            string = open_string(self._lines[at], string)
        unclosed = _End(len(self._lines), len(self._lines), closed=False)
        return unclosed if first is None else self._checked(start, unclosed, first)

    def _end_at(self, at: int, fence: Fence, *, in_string: bool) -> _End | None:
        line = self._lines[at]
        if closes(line, fence):
            return _End(at, at + 1, closed=True)
        if in_string:
            return None
        inner = opening(line)
        if (
            inner is not None
            and inner.language
            and inner.mark == fence.mark
            and line.lstrip().startswith(inner.mark)
        ):
            return _End(at, at, closed=True)
        if line.endswith(fence.mark) and open_string(line, None) is None and "#" not in line:
            return _End(at, at + 1, closed=True, last=line.rstrip(fence.mark[0]))
        return None

    def _checked(self, start: int, extended: _End, first: _End) -> _End:
        try:
            if extended.closed:
                ast.parse(_unindent(self._code(start, extended), self._lines[start - 1]))
                return extended
        except (SyntaxError, ValueError, MemoryError, RecursionError):
            pass  # it is no program as a whole: the first closer was meant
        self._extensions_left -= 1
        return first


def _opening_after_prose(line: str) -> Fence | None:
    """`Here it is: ```python`: only three backticks and one word at the end of the line."""
    _, marks, info = line.partition("```")
    word = info.strip()
    return Fence(marks, word) if word.isidentifier() else None


def _one_line_block(line: str) -> Block | None:
    stripped = line.strip()
    if len(stripped) < 7 or not (stripped.startswith("```") and stripped.endswith("```")):
        return None
    inner = stripped.strip("`")
    language, _, code = inner.partition(" ")
    if not code or "`" in inner:
        return None
    return Block(language.lower(), code.strip(), closed=True) if language.isalnum() else None


def _unindent(code: str, opening_line: str) -> str:
    """Code without the indentation that it shares with its fence (a list item) or among all its lines."""
    lines = code.split("\n")
    if not opening_line[:1].isspace() and not code[:1].isspace():
        return code
    indents = [len(line) - len(line.lstrip()) for line in lines if line.strip()]
    shared = min(indents, default=0)
    return "\n".join(line[shared:] if line.strip() else "" for line in lines)
