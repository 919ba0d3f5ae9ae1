"""Server-sent events from bytes. No sockets and no JSON: `transport` reads, `wire` understands.

After the WHATWG rules for event streams: events end at a blank line, `data:` lines of one event are joined by a
newline, lines that begin with a colon are comments. There is no limit on the length of a line or an event, and the
work is linear in the bytes fed, however they are cut.
"""


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
        elif line.startswith(b"data:"):
            value = line[5:]
            self._data.append(value.removeprefix(b" "))
        elif line == b"data":
            self._data.append(b"")


def _split_lines(block: bytes) -> list[bytes]:
    if b"\r" in block:
        block = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    return block.split(b"\n")
