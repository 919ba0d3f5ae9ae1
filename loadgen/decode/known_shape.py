"""Chunks that differ from an earlier one of their stream in their text and their counts alone, read without parsing.

The chunks of a stream are alike to the byte but for one string and a few integers. An event that is such a copy of a
parsed one says the same with another text and another count; any other event is the parser's. Texts stay as they
stand in the JSON, and are unescaped together by `unescape`.
"""

import json
import re
from dataclasses import dataclass
from functools import lru_cache

from loadgen.records import ChunkKind

_TEXT = re.compile(rb'"((?!")[^"\\\x00-\x1f]*(?:\\["\\/bfnrtu][^"\\\x00-\x1f]*)*)"')
_INTEGER = re.compile(rb"[0-9]+")
# As JSON writes them, and short enough for the parser's limit on digits and for the tables' integers.
_ANY_INTEGER = rb"(?:0|[1-9][0-9]{0,17})"
_ANY_COUNT = rb"(0|[1-9][0-9]{0,8})"
_COUNT_KEY = re.compile(rb'("completion_tokens":(?:\\ )?)0')  # in an escaped pattern
_USAGE = b'"usage":'
# A stream whose chunks are not alike is not worth looking for likeness.
_MISSES_BEYOND_HITS = 16


@dataclass(frozen=True, slots=True)
class Shape:
    """The bytes of a chunk before its one text, and those behind it: `after`, or with a running usage `counted`,
    which matches the text as well.
    """

    kind: ChunkKind
    before: bytes
    after: bytes
    counted: re.Pattern[bytes] | None


@dataclass(frozen=True, slots=True)
class Run:
    """Chunks of one shape, one after the other; `counts` is empty where they carry no usage."""

    kind: ChunkKind
    texts: list[bytes]
    counts: list[int]


class KnownShapes:
    """The latest shape of each kind of chunk in one stream."""

    def __init__(self) -> None:
        self._shapes: list[Shape] = []
        self._patience = _MISSES_BEYOND_HITS

    def read(self, datas: list[bytes], start: int) -> Run | None:
        """The chunks of one known shape that begin at event `start`; None when that one is of no known shape."""
        for shape in self._shapes:
            run = (_plain_run if shape.counted is None else _counted_run)(shape, datas, start)
            if run.texts:
                self._patience += len(run.texts)
                return run
        return None

    def learn(self, data: bytes, key: str, kind: ChunkKind, text: str, *, has_usage: bool) -> None:
        """Remembers the shape of an event that was parsed: nothing but one chunk, with `text` under `key`."""
        if self._patience <= 0:
            return
        self._patience -= 1
        shape = _shape_of(data, key.encode(), kind, has_usage=has_usage)
        if shape is not None:
            run = (_plain_run if shape.counted is None else _counted_run)(shape, [data], 0)
            if unescape(run.texts) == [text]:
                self._shapes = [shape, *(known for known in self._shapes if known.kind is not kind)]


def unescape(texts: list[bytes]) -> list[str]:
    """The strings that these texts of runs stand for. Raises ValueError if one of them is none."""
    strings: list[str] = json.loads(b'["%s"]' % b'","'.join(texts)) if texts else []
    return strings


def _plain_run(shape: Shape, datas: list[bytes], start: int) -> Run:
    before, after = shape.before, shape.after
    size, rest = len(before), len(after)
    texts: list[bytes] = []
    for number in range(start, len(datas)):
        data = datas[number]
        if not (data.startswith(before) and data.endswith(after)):
            break
        text = _TEXT.fullmatch(data, size, len(data) - rest)
        if text is None:
            break
        texts.append(text[1])
    return Run(shape.kind, texts, [])


def _counted_run(shape: Shape, datas: list[bytes], start: int) -> Run:
    before, size, counted = shape.before, len(shape.before), shape.counted
    assert counted is not None
    texts: list[bytes] = []
    counts: list[int] = []
    for number in range(start, len(datas)):
        data = datas[number]
        if not data.startswith(before):
            break
        chunk = counted.fullmatch(data, size)
        if chunk is None:
            break
        texts.append(chunk[1])
        counts.append(int(chunk[2]))
    return Run(shape.kind, texts, counts)


def _shape_of(data: bytes, key: bytes, kind: ChunkKind, *, has_usage: bool) -> Shape | None:
    # Inside a JSON string the quotes would be escaped: what is found are keys.
    quoted = b'"%s":' % key
    if data.count(quoted) != 1:
        return None
    start = data.index(quoted) + len(quoted)
    start += data.startswith(b" ", start)
    text = _TEXT.match(data, start)
    if text is None:
        return None
    after = data[text.end() :]
    if not has_usage:
        return Shape(kind, data[:start], after, None)
    usage = after.find(_USAGE)
    counted = _counted(after[:usage], _INTEGER.sub(b"0", after[usage:])) if usage >= 0 else None
    return Shape(kind, data[:start], after, counted) if counted else None


@lru_cache(maxsize=256)
def _counted(between: bytes, usage: bytes) -> re.Pattern[bytes] | None:
    """A pattern of a text, these bytes, and a usage with any integers (they are 0 here); group 2 is the running count."""
    pattern, found = _COUNT_KEY.subn(rb"\1\0", re.escape(usage))
    pattern = pattern.replace(b"0", _ANY_INTEGER).replace(b"\0", _ANY_COUNT)
    return re.compile(_TEXT.pattern + re.escape(between) + pattern) if found == 1 else None
