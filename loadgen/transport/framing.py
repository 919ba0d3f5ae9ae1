"""Where an HTTP/1.1 response ends: its head, and the framing of its body (RFC 9112, sections 2 to 7). No sockets.

Only as much is understood as decides when the next request may go out on the connection. Chunk framing stays in the
recorded bytes; `body` takes it out after the stream's end.
"""

import re
from dataclasses import dataclass

_CRLF = b"\r\n"
_BEGIN = b"HTTP/1."
_HEAD_END = b"\r\n\r\n"
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9][0-9])(?: [^\r\n]*)?")
_CHUNK_SIZE = re.compile(rb"[0-9A-Fa-f]{1,15}(?=[ \t;\r]|$)")
_NO_BODY = frozenset({204, 304})
MAX_HEAD_BYTES = 65_536
_MAX_LINE_BYTES = 4096


class BrokenFraming(ValueError):
    """What the server sent is no HTTP/1.1 response; the message says why."""


@dataclass(frozen=True, slots=True)
class Head:
    """The parts of a response head that matter here. `length` is None where no Content-Length counts."""

    status: int
    is_chunked: bool
    length: int | None
    keeps_alive: bool
    content_encoding: str


def parse_head(data: bytes) -> Head:
    """The head in `data`, which ends in an empty line. Raises BrokenFraming."""
    status_line, *lines = data[: -len(_HEAD_END)].split(_CRLF)
    found = _STATUS_LINE.fullmatch(status_line)
    if not found:
        raise BrokenFraming(f"not an HTTP/1.1 response: {status_line[:100]!r}")
    fields = _fields(lines)
    status = int(found[2])
    codings = fields.get(b"transfer-encoding", b"").lower()
    is_chunked = codings.endswith(b"chunked")
    has_body = status not in _NO_BODY
    connection = fields.get(b"connection", b"").lower()
    keeps_alive = b"keep-alive" in connection if found[1] == b"0" else b"close" not in connection
    return Head(
        status=status,
        is_chunked=is_chunked and has_body,
        length=None if is_chunked and has_body else _length(fields, has_body=has_body),
        keeps_alive=keeps_alive,
        content_encoding=fields.get(b"content-encoding", b"").decode("latin-1").strip().lower(),
    )


def check_begun_head(data: bytes) -> None:
    """Raises BrokenFraming where `data`, a head without its end, can become no head of a response any more."""
    begin = data[: len(_BEGIN)]
    if not _BEGIN.startswith(begin):
        raise BrokenFraming(f"not an HTTP/1.1 response: {data[:100]!r}")
    if len(data) > MAX_HEAD_BYTES:
        raise BrokenFraming(f"a response head of more than {MAX_HEAD_BYTES} bytes")


def _fields(lines: list[bytes]) -> dict[bytes, bytes]:
    fields: dict[bytes, bytes] = {}
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon:
            raise BrokenFraming(f"a header line without a colon: {line[:100]!r}")
        name = name.strip().lower()
        # lines of one name are one list (RFC 9110, 5.3), so that two lengths are no length
        fields[name] = b", ".join((fields[name], value.strip())) if name in fields else value.strip()
    return fields


def _length(fields: dict[bytes, bytes], *, has_body: bool) -> int | None:
    if not has_body:
        return 0
    value = fields.get(b"content-length")
    if value is None:
        return None
    if not value.isdigit() or len(value) > 15:
        raise BrokenFraming(f"a Content-Length that is no length: {value[:40]!r}")
    return int(value)


class BodyFraming:
    """The state of one body while it is read. `feed` says when it has ended.

    `at_chunk` says that the next byte begins a chunk's size line: the reader then takes the common case, one whole chunk
    in one read, without calling `feed`.
    """

    def __init__(self, head: Head) -> None:
        self._is_chunked = head.is_chunked
        self._left = head.length
        self._line = b""  # the start of a size line or trailer that was cut by a read
        self._in_trailers = False
        self._need = 0  # bytes up to the end of the current chunk
        self._is_behind_chunk = False  # where the chunk's own CRLF stands
        self.at_chunk = head.is_chunked

    @property
    def ends_with_connection(self) -> bool:
        """Whether only the end of the connection ends this body."""
        return not self._is_chunked and self._left is None

    def feed(self, data: bytes) -> int | None:
        """Takes the next bytes. Returns how many of them belong to the body when it ends in them, else None.

        Raises BrokenFraming.
        """
        if self._is_chunked:
            end = self._feed_chunked(data)
            self.at_chunk = not (self._need or self._line or self._in_trailers or self._is_behind_chunk)
            return end
        if self._left is None:
            return None
        if len(data) < self._left:
            self._left -= len(data)
            return None
        used, self._left = self._left, 0
        return used

    def _feed_chunked(self, data: bytes) -> int | None:
        at, size = 0, len(data)
        while at < size:
            if self._need:
                step = min(self._need, size - at)
                at += step
                self._need -= step
                continue
            end = data.find(b"\n", at)
            if end < 0:
                self._keep(data[at:])
                return None
            line = (self._line + data[at : end + 1]).rstrip(_CRLF)
            self._line = b""
            at = end + 1
            if self._in_trailers:
                if not line:
                    return at
            elif self._is_behind_chunk:
                self._end_chunk(line)
            else:
                self._take_size(line)
        return None

    def _keep(self, part: bytes) -> None:
        self._line += part
        if self._is_behind_chunk and self._line != b"\r":
            self._end_chunk(self._line)
        if len(self._line) > _MAX_LINE_BYTES:
            raise BrokenFraming("a chunk's size line does not end")

    def _take_size(self, line: bytes) -> None:
        found = _CHUNK_SIZE.match(line)
        if not found:
            raise BrokenFraming(f"a chunk's size is no hexadecimal number: {line[:40]!r}")
        self._need = int(found[0], 16)
        self._is_behind_chunk = self._need > 0
        self._in_trailers = not self._need

    def _end_chunk(self, line: bytes) -> None:
        if line:
            raise BrokenFraming(f"a chunk longer than its size: {line[:40]!r}")
        self._is_behind_chunk = False
