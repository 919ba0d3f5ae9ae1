"""Server-sent events from bytes. No sockets and no JSON: `transport` reads, `record` understands.

After the WHATWG rules for event streams: events end at a blank line, `data:` lines of one event are joined by a
newline, lines that begin with a colon are comments. There is no limit on the length of a line or an event, and the
work is linear in the bytes fed, however they are cut.
"""

import re
from itertools import accumulate

_FIELD = b"data: "
_END = b"\n\n"
_LINE_END = re.compile(rb"\r\n|\r|\n")


class EventParser:
    """Feeds on blocks of bytes as the network cut them; yields the data of each event that a block completes."""

    def __init__(self) -> None:
        self._partial: list[bytes] = []  # pieces of the unfinished last line
        self._data: list[bytes] = []  # data lines of the unfinished event
        self._skip_newline = False  # the last block ended in a CR; an LF may follow

    def feed(self, block: bytes) -> list[bytes]:
        """The data of the events that end in this block, in order."""
        if self._skip_newline and block:
            block = block.removeprefix(b"\n")
            self._skip_newline = False
        if block.endswith(b"\r"):
            self._skip_newline = True
        events: list[bytes] = []
        *lines, rest = _split_lines(block)
        for line in lines:
            self._take_line(b"".join((*self._partial, line)), events)
            self._partial.clear()
        if rest:
            self._partial.append(rest)
        return events

    def _take_line(self, line: bytes, events: list[bytes]) -> None:
        if not line:
            if self._data:
                events.append(b"\n".join(self._data))
                self._data.clear()
        elif (value := _data_value(line)) is not None:
            self._data.append(value)


def _split_lines(block: bytes) -> list[bytes]:
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return block.split(b"\n")


def split_events(payload: bytes) -> tuple[list[bytes], list[int]]:
    """The data of each event of a whole payload, and the offset behind the byte that ends it.

    Gives what `EventParser` gives, in one pass over bytes that are all there.
    """
    return _split_by_lines(payload) if b"\r" in payload else _split_unix(payload)


def _split_unix(payload: bytes) -> tuple[list[bytes], list[int]]:
    if payload.startswith(_FIELD) and payload.endswith(_END):
        datas = payload[len(_FIELD) : -len(_END)].split(_END + _FIELD)
        # no other line in any of them: what servers send, and all that most streams are
        if payload.count(b"\n") == len(_END) * len(datas):
            sizes = (len(data) + len(_FIELD) + len(_END) for data in datas)
            return datas, list(accumulate(sizes))
    return _split_blocks(payload)


def _split_blocks(payload: bytes) -> tuple[list[bytes], list[int]]:
    datas: list[bytes] = []
    ends: list[int] = []
    at = 0
    *blocks, _ = payload.split(_END)
    for block in blocks:
        at += len(block) + len(_END)
        if (data := _data_of(block.split(b"\n"))) is not None:
            datas.append(data)
            ends.append(at)
    return datas, ends


def _split_by_lines(payload: bytes) -> tuple[list[bytes], list[int]]:
    datas: list[bytes] = []
    ends: list[int] = []
    lines: list[bytes] = []
    at = 0
    for end in _LINE_END.finditer(payload):
        if end.start() > at:
            lines.append(payload[at : end.start()])
        elif lines:
            if (data := _data_of(lines)) is not None:
                datas.append(data)
                ends.append(end.start() + 1)
            lines.clear()
        at = end.end()
    return datas, ends


def _data_of(lines: list[bytes]) -> bytes | None:
    found = [value for line in lines if (value := _data_value(line)) is not None]
    return b"\n".join(found) if found else None


def _data_value(line: bytes) -> bytes | None:
    if line.startswith(b"data:"):
        return line[5:].removeprefix(b" ")
    return b"" if line == b"data" else None
