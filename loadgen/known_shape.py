"""Chunks that differ from an earlier one of their stream in their text and their counts alone, read without parsing.

The chunks of a stream are alike to the byte but for one string and a few integers. An event that is such a copy of a
parsed one says the same with another text and another count; any other event is the parser's.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

from loadgen.received_json import MAX_COUNT, read_event
from loadgen.records import ChunkKind

_TEXT = re.compile(rb'"([^"\\\x00-\x1f]*(?:\\["\\/bfnrtu][^"\\\x00-\x1f]*)*)"')
_INTEGER = re.compile(rb"[0-9]+")
# As JSON writes them, and short enough for the parser's own limit on digits.
_ANY_INTEGER = rb"(?:0|[1-9][0-9]{0,17})"
_COUNT_KEY = re.compile(rb'("completion_tokens":(?:\\ )?)0')  # in an escaped pattern
_USAGE = b'"usage":'
# A stream whose chunks are not alike is not worth looking for likeness.
_MISSES_BEYOND_HITS = 16


Chunk = tuple[ChunkKind, str, int | None]  # kind, text, running count


@dataclass(frozen=True, slots=True)
class Shape:
    """The bytes of a chunk before its one text, those between it and the usage, and the usage with any integers."""

    before: bytes
    between: bytes
    usage: re.Pattern[bytes] | None
    kind: ChunkKind


class KnownShapes:
    """The latest shape of each kind of chunk in one stream."""

    def __init__(self) -> None:
        self._shapes: list[Shape] = []
        self._patience = _MISSES_BEYOND_HITS

    def read(self, data: bytes) -> Chunk | None:
        """Kind, text and running count of a chunk of a known shape; None for any other event."""
        for shape in self._shapes:
            if data.startswith(shape.before) and (found := _read_as(shape, data)):
                self._patience += 1
                return found
        return None

    def learn(self, data: bytes, key: str, chunk: Chunk, *, has_usage: bool) -> None:
        """Remembers the shape of an event that was parsed: nothing but this chunk, its text under `key`."""
        if self._patience <= 0:
            return
        self._patience -= 1
        shape = _shape_of(data, key.encode(), chunk[0], has_usage=has_usage)
        if shape is not None and _read_as(shape, data) == chunk:
            self._shapes = [shape, *(known for known in self._shapes if known.kind is not shape.kind)]


def _read_as(shape: Shape, data: bytes) -> Chunk | None:
    literal = _TEXT.match(data, len(shape.before))
    if literal is None or not data.startswith(shape.between, literal.end()):
        return None
    rest = literal.end() + len(shape.between)
    if shape.usage is None:
        tokens = None
        if rest != len(data):
            return None
    else:
        usage = shape.usage.fullmatch(data, rest)
        if usage is None or (tokens := int(usage[1])) > MAX_COUNT:
            return None
    text = _unescaped(literal)
    return (shape.kind, text, tokens) if text else None


def _unescaped(literal: re.Match[bytes]) -> str | None:
    if b"\\" in literal[1]:
        text = read_event(literal[0])
        return text if isinstance(text, str) else None
    try:
        return literal[1].decode()
    except UnicodeDecodeError:
        return None


def _shape_of(data: bytes, key: bytes, kind: ChunkKind, *, has_usage: bool) -> Shape | None:
    # Inside a JSON string the quotes would be escaped: what is found are keys.
    quoted = b'"%s":' % key
    if data.count(quoted) != 1:
        return None
    start = data.index(quoted) + len(quoted)
    start += data.startswith(b" ", start)
    literal = _TEXT.match(data, start)
    if literal is None:
        return None
    if not has_usage:
        return Shape(data[:start], data[literal.end() :], None, kind)
    end = data.find(_USAGE, literal.end())
    usage = _usage_pattern(_INTEGER.sub(b"0", data[end:])) if end >= 0 else None
    return Shape(data[:start], data[literal.end() : end], usage, kind) if usage else None


@lru_cache(maxsize=256)
def _usage_pattern(usage: bytes) -> re.Pattern[bytes] | None:
    """A pattern for a usage, whose integers are written as 0 here, with any integers; group 1 is the running count."""
    pattern, found = _COUNT_KEY.subn(rb"\1(\0)", re.escape(usage))
    pattern = pattern.replace(b"0", _ANY_INTEGER).replace(b"\0", _ANY_INTEGER)
    return re.compile(pattern) if found == 1 else None
