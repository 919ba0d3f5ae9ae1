"""Where a response ends: any cut of any response gives the same end, and what the decoder takes off agrees."""

from dataclasses import dataclass

import numpy as np
import pytest
from decode_fixtures import cut
from hypothesis import given
from hypothesis import strategies as st

from loadgen.decode.body import payload
from loadgen.records import Outcome
from loadgen.transport.framing import (
    MAX_HEAD_BYTES,
    BodyFraming,
    BrokenFraming,
    Head,
    check_begun_head,
    parse_head,
)

CHUNKED = Head(200, True, None, True, "")
PLACES = st.lists(st.integers(0, 10_000), max_size=30)


def head(*lines: str, first: str = "HTTP/1.1 200 OK") -> Head:
    return parse_head("\r\n".join([first, *lines, "", ""]).encode("latin-1"))


# -- heads -----------------------------------------------------------------------------------------------------------


def test_a_chunked_head_has_no_length() -> None:
    found = head("Transfer-Encoding: chunked", "Content-Length: 5")
    assert found == Head(200, is_chunked=True, length=None, keeps_alive=True, content_encoding="")


@pytest.mark.parametrize(
    ("lines", "length"),
    [(["Content-Length: 12"], 12), (["content-length:0"], 0), (["CONTENT-LENGTH:   7  "], 7), ([], None)],
)
def test_length_of_an_identity_body(lines: list[str], length: int | None) -> None:
    assert head(*lines).length == length


@pytest.mark.parametrize(
    "value", ["-1", "+5", "5, 5", "5, 6", "", "0x10", "1e3", "five", "9" * 16, "1_000", "٣"]
)
def test_a_length_that_is_no_number_is_broken(value: str) -> None:
    with pytest.raises(BrokenFraming, match="Content-Length"):
        parse_head(f"HTTP/1.1 200 OK\r\nContent-Length: {value}\r\n\r\n".encode())


def test_two_lengths_are_no_length() -> None:
    with pytest.raises(BrokenFraming, match="Content-Length"):
        head("Content-Length: 5", "Content-Length: 6")


@pytest.mark.parametrize("status", [204, 304])
def test_some_statuses_have_no_body_whatever_the_head_says(status: int) -> None:
    found = head("Transfer-Encoding: chunked", "Content-Length: 9", first=f"HTTP/1.1 {status} X")
    assert (found.is_chunked, found.length) == (False, 0)


@pytest.mark.parametrize(
    ("version", "connection", "keeps"),
    [
        ("1.1", None, True),
        ("1.1", "close", False),
        ("1.1", "Close", False),
        ("1.1", "keep-alive", True),
        ("1.1", "foo, CLOSE", False),
        ("1.0", None, False),
        ("1.0", "keep-alive", True),
        ("1.0", "Keep-Alive", True),
    ],
)
def test_whether_the_connection_is_kept(version: str, connection: str | None, keeps: bool) -> None:
    lines = [] if connection is None else [f"Connection: {connection}"]
    assert head(*lines, first=f"HTTP/{version} 200 OK").keeps_alive is keeps


def test_other_codings_before_chunked_are_chunked_and_after_it_are_not() -> None:
    assert head("Transfer-Encoding: gzip, chunked").is_chunked
    assert head("Transfer-Encoding: gzip", "Transfer-Encoding: Chunked").is_chunked
    assert not head("Transfer-Encoding: chunked, gzip").is_chunked


def test_the_encoding_is_told_in_lower_case() -> None:
    assert head("Content-Encoding:  GZip ").content_encoding == "gzip"


@pytest.mark.parametrize(
    "first",
    ["HTTP/2 200 OK", "HTTP/1.1 99 X", "HTTP/1.1 600 X", "HTTP/1.1  200 OK", "http/1.1 200 OK", "", "200 OK"],
)
def test_what_is_no_status_line_is_broken(first: str) -> None:
    with pytest.raises(BrokenFraming, match=r"not an HTTP/1\.1 response"):
        head(first=first)


@pytest.mark.parametrize(
    "first", ["HTTP/1.1 200", "HTTP/1.1 200 ", "HTTP/1.0 200 Very Fine", "HTTP/1.1 200 \xff"]
)
def test_a_reason_may_be_missing_or_anything(first: str) -> None:
    assert head(first=first).status == 200


@pytest.mark.parametrize("line", ["no colon here", " folded", "X"])
def test_a_line_without_a_colon_is_broken(line: str) -> None:
    with pytest.raises(BrokenFraming, match="without a colon"):
        head("X-A: 1", line)


def test_a_begun_head_is_watched_byte_by_byte() -> None:
    whole = b"HTTP/1.1 200 OK\r\nX: y"
    for end in range(len(whole)):
        check_begun_head(whole[:end])
    for wrong in (b"S", b"SSH-2.0", b"\x16\x03\x01", b"HTTP/2", b"\r\n", b"data: {}"):
        with pytest.raises(BrokenFraming, match="not an HTTP"):
            check_begun_head(wrong)


def test_a_head_has_a_greatest_length() -> None:
    begun = b"HTTP/1.1 200 OK\r\nX: "
    check_begun_head(begun.ljust(MAX_HEAD_BYTES, b"a"))
    with pytest.raises(BrokenFraming, match="more than 65536 bytes"):
        check_begun_head(begun.ljust(MAX_HEAD_BYTES + 1, b"a"))


@given(st.binary(max_size=300))
def test_any_head_is_understood_or_broken(data: bytes) -> None:
    try:
        found = parse_head(b"HTTP/1.1 200 OK\r\n" + data.replace(b"\r\n\r\n", b"") + b"\r\n\r\n")
    except BrokenFraming:
        return
    assert found.status == 200
    assert found.length is None or found.length >= 0


# -- bodies ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Chunk:
    data: bytes
    size_line: bytes

    @property
    def framed(self) -> bytes:
        return self.size_line + b"\r\n" + self.data + b"\r\n"


@st.composite
def chunks(draw: st.DrawFn) -> Chunk:
    data = draw(
        st.binary(min_size=1, max_size=40)
        | st.sampled_from([b"data: {}\n\n", b"\r\n", b"0\r\n\r\n", b"x" * 300])
    )
    size = b"%x" % len(data)
    size = b"0" * draw(st.integers(0, 3)) + (size.upper() if draw(st.booleans()) else size)
    return Chunk(data, size + draw(st.sampled_from([b"", b"", b"; a=b", b" ", b"\t;x", b';q="1;2"'])))


TRAILERS = st.sampled_from([b"", b"", b"X-A: 1\r\n", b"X-A: 1\r\nX-B: 0\r\n"])
BODIES = st.tuples(st.lists(chunks(), max_size=8), TRAILERS)
LEFTOVERS = st.sampled_from([b"", b"HTTP/1.1 200 OK\r\n\r\n", b"\r\n", b"0\r\n\r\n", b"x"])


def fed(framing: BodyFraming, pieces: list[bytes]) -> int | None:
    """How many bytes of the pieces were the body's; None where it did not end. Keeps to the reader's short cut."""
    before = 0
    for piece in pieces:
        end = framing.feed(piece) if piece else None
        if end is not None:
            return before + end
        before += len(piece)
    return None


@given(BODIES, LEFTOVERS, PLACES)
def test_any_cut_of_a_chunked_body_ends_at_the_same_byte(
    body: tuple[list[Chunk], bytes], leftover: bytes, places: list[int]
) -> None:
    parts, trailers = body
    framed = b"".join(chunk.framed for chunk in parts) + b"0\r\n" + trailers + b"\r\n"
    assert fed(BodyFraming(CHUNKED), cut(framed + leftover, places)) == len(framed)
    assert fed(BodyFraming(CHUNKED), [framed[:-1]]) is None


@given(BODIES, PLACES)
def test_a_chunked_body_that_ends_is_sound_to_the_decoder(
    body: tuple[list[Chunk], bytes], places: list[int]
) -> None:
    parts, trailers = body
    framed = b"".join(chunk.framed for chunk in parts) + b"0\r\n" + trailers + b"\r\n"
    pieces = [piece for piece in cut(framed, places) if piece]
    found = payload(framed, np.cumsum([len(piece) for piece in pieces]), is_chunked=True, encoding="")
    assert (found.data, found.damage) == (b"".join(chunk.data for chunk in parts), None)


@given(st.lists(chunks(), min_size=1, max_size=5), st.integers(0, 10_000), st.binary(max_size=6), PLACES)
def test_a_broken_body_is_broken_to_both_or_to_the_decoder(
    parts: list[Chunk], place: int, garbage: bytes, places: list[int]
) -> None:
    framed = b"".join(chunk.framed for chunk in parts) + b"0\r\n\r\n"
    place %= len(framed) + 1
    body = framed[:place] + garbage + framed[place + len(garbage) :]
    try:
        end = fed(BodyFraming(CHUNKED), cut(body, places))
        is_broken = False
    except BrokenFraming:
        end, is_broken = None, True
    damage = payload(body, np.array([len(body)]), is_chunked=True, encoding="").damage
    if is_broken:
        assert damage is Outcome.MALFORMED
    if damage is None:
        assert end == len(body)
    if damage is Outcome.TRUNCATED_STREAM:
        assert end is None


@given(st.integers(0, 60), LEFTOVERS, PLACES)
def test_any_cut_of_a_body_with_a_length_ends_at_the_same_byte(
    length: int, leftover: bytes, places: list[int]
) -> None:
    framing = BodyFraming(Head(200, False, length, True, ""))
    assert not framing.ends_with_connection
    pieces = [piece for piece in cut(b"x" * length + leftover, places) if piece]
    assert (framing.feed(b"") if not length else fed(framing, pieces)) == length


@given(st.lists(st.binary(max_size=50), max_size=10))
def test_a_body_without_a_length_ends_with_the_connection_alone(pieces: list[bytes]) -> None:
    framing = BodyFraming(Head(200, False, None, False, ""))
    assert framing.ends_with_connection
    assert fed(framing, pieces) is None


@given(st.lists(chunks(), min_size=1, max_size=8), PLACES)
def test_at_chunk_says_where_a_size_line_begins(parts: list[Chunk], places: list[int]) -> None:
    framed = b"".join(chunk.framed for chunk in parts) + b"0\r\n\r\n"
    starts = {0}
    for chunk in parts:
        starts.add(max(starts) + len(chunk.framed))
    framing = BodyFraming(CHUNKED)
    at = 0
    for piece in cut(framed[: max(starts)], places):
        framing.feed(piece)
        at += len(piece)
        assert framing.at_chunk == (at in starts), at


@pytest.mark.parametrize(
    "body",
    [
        b"zz\r\nab\r\n",
        b"-5\r\n",
        b"\r\n",
        b"5 5\r\n".replace(b" ", b"x"),
        b"2\r\nabc\r\n",
        b"2\r\nabXY",
        b"f" * 5000,
    ],
)
def test_bad_chunks_are_broken_at_once(body: bytes) -> None:
    with pytest.raises(BrokenFraming):
        BodyFraming(CHUNKED).feed(body)
    with pytest.raises(BrokenFraming):
        fed(BodyFraming(CHUNKED), [body[n : n + 1] for n in range(len(body))])
