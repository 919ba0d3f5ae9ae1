"""A response body as it came -> the payload that was meant: chunk framing and compression taken off.

Pure, linear in bytes, and never an exception on what a server sent: damage is a value, beside what was understood
before it. RFC 9112 section 7.1 for chunks, RFC 1950-1952 for deflate and gzip.
"""

import re
import zlib
from dataclasses import dataclass, replace

import numpy as np

from loadgen.records import Outcome
from loadgen.transport.exchange import Integers

# A stream of 260,000 tokens with a running usage is 130 MB; what expands to more is no answer.
MAX_EXPANDED_BYTES = 256 << 20
_SIZE_LINE = re.compile(rb"([0-9a-fA-F]{1,15})[ \t]*(?:;[^\r\n]*)?")
_BEGUN_SIZE_LINE = re.compile(rb"(?:[0-9a-fA-F]{1,15}[ \t]*(?:;[^\r\n]*)?)?\r?")
_EITHER_WRAPPER = zlib.MAX_WBITS | 32  # gzip or zlib, told by its first bytes
_NO_WRAPPER = -zlib.MAX_WBITS


@dataclass(frozen=True, slots=True)
class Payload:
    """`data`, and for each read how much of it had come by then. `damage` says why it does not end as it should."""

    data: bytes
    read_ends: Integers
    damage: Outcome | None = None
    error: str | None = None


def payload(body: bytes, read_ends: Integers, *, is_chunked: bool, encoding: str) -> Payload:
    """The payload of a body. `read_ends`: body bytes read so far, after each read; `encoding`: as the header says."""
    plain = _unchunked(body, read_ends) if is_chunked else Payload(body, read_ends)
    name = encoding.strip().lower()
    if name in ("", "identity"):
        return plain
    if name in ("gzip", "x-gzip", "deflate"):
        return _expanded(plain)
    return replace(plain, data=b"", damage=Outcome.MALFORMED, error=f"unknown content encoding {name[:40]!r}")


def _unchunked(body: bytes, read_ends: Integers) -> Payload:
    starts: list[int] = []
    parts: list[bytes] = []
    sizes: dict[bytes, int] = {}
    at = 0
    while True:
        end_of_line = body.find(b"\r\n", at)
        line = body[at:end_of_line] if end_of_line >= 0 else b""
        size = sizes.get(line)
        if size is None:
            if end_of_line < 0 or not (head := _SIZE_LINE.fullmatch(line)):
                damage = _broken_size(body, at)
                break
            size = sizes[line] = int(head[1], 16)
        start = end_of_line + 2
        if size == 0:
            damage = _after_last_chunk(body, start)
            break
        at = start + size
        starts.append(start)
        parts.append(body[start:at])
        if body[at : at + 2] != b"\r\n":
            damage = _broken_chunk(body, at)
            break
        at += 2
    return Payload(b"".join(parts), _through_chunks(read_ends, starts, parts), *damage)


_Damage = tuple[Outcome | None, str | None]
_CUT_SHORT: _Damage = (Outcome.TRUNCATED_STREAM, "the body ended inside its chunk framing")


def _broken_size(body: bytes, at: int) -> _Damage:
    if _BEGUN_SIZE_LINE.fullmatch(body, at):
        return _CUT_SHORT
    return Outcome.MALFORMED, f"not a chunk size: {body[at : at + 40]!r}"


def _broken_chunk(body: bytes, at: int) -> _Damage:
    if at >= len(body) or body[at:] == b"\r":
        return _CUT_SHORT
    return Outcome.MALFORMED, f"a chunk longer than its size: {body[at : at + 40]!r}"


def _after_last_chunk(body: bytes, at: int) -> _Damage:
    # The line of the size ends in the CRLF before `at`: without trailers, the next one is the end.
    end = body.find(b"\r\n\r\n", at - 2)
    if end < 0:
        return _CUT_SHORT
    extra = len(body) - end - 4
    return (Outcome.MALFORMED, f"{extra} bytes after the end of the body") if extra else (None, None)


def _through_chunks(read_ends: Integers, starts: list[int], parts: list[bytes]) -> Integers:
    if not starts:
        return np.zeros_like(read_ends)
    sizes = np.array([len(part) for part in parts], np.int64)
    before = np.cumsum(sizes) - sizes
    chunk = np.maximum(np.searchsorted(starts, read_ends, side="right") - 1, 0)
    inside = np.clip(read_ends - np.array(starts, np.int64)[chunk], 0, sizes[chunk])
    return np.asarray(before[chunk] + inside, np.int64)


def _expanded(packed: Payload) -> Payload:
    """Expanded read by read, so that each byte keeps the read that it came out of."""
    expander = _Expander()
    ends: list[int] = []
    start = 0
    for end in packed.read_ends.tolist():
        expander.feed(packed.data[start:end])
        ends.append(expander.size)
        start = end
    damage: _Damage = (packed.damage, packed.error)
    if expander.error:
        damage = (Outcome.MALFORMED, expander.error)
    elif packed.damage is None and packed.data and not expander.is_at_end:
        damage = (Outcome.TRUNCATED_STREAM, "the body ended inside its compression")
    return Payload(b"".join(expander.parts), np.array(ends, np.int64), *damage)


class _Expander:
    """One compressed body, member after member (RFC 1952 section 2.2), up to `MAX_EXPANDED_BYTES`."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.size = 0
        self.error: str | None = None
        self._member = zlib.decompressobj(_EITHER_WRAPPER)
        self._has_begun = False

    @property
    def is_at_end(self) -> bool:
        return self._member.eof

    def feed(self, packed: bytes) -> None:
        while packed and not self.error:
            if self._member.eof:
                self._member = zlib.decompressobj(_EITHER_WRAPPER)
            try:
                packed = self._take(packed)
            except zlib.error as error:
                self.error = f"broken compression: {error}"

    def _take(self, packed: bytes) -> bytes:
        """Expands `packed`; gives back what lies behind the member's end."""
        room = MAX_EXPANDED_BYTES - self.size + 1
        try:
            part = self._member.decompress(packed, room)
        except zlib.error:
            if self._has_begun:
                raise
            # "deflate" is sent with and without the zlib wrapper that RFC 9110 section 8.4.1.2 asks for
            self._member = zlib.decompressobj(_NO_WRAPPER)
            part = self._member.decompress(packed, room)
        self._has_begun = True
        self.parts.append(part)
        self.size += len(part)
        if self.size > MAX_EXPANDED_BYTES:
            self.error = f"the compressed body expands to more than {MAX_EXPANDED_BYTES} bytes"
        return self._member.unused_data
