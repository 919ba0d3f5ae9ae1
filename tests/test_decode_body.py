"""Bodies: chunk framing, compression, and through both the read that brought each byte."""

import gzip
import random
import zlib

import numpy as np
import pytest

from loadgen.decode import body as body_module
from loadgen.decode.body import Payload, payload
from loadgen.records import Outcome


def read(*blocks: bytes, is_chunked: bool = False, encoding: str = "") -> Payload:
    ends = np.cumsum([len(block) for block in blocks], dtype=np.int64)
    return payload(b"".join(blocks), ends, is_chunked=is_chunked, encoding=encoding)


def test_a_plain_body_is_its_own_payload() -> None:
    plain = read(b"abc", b"", b"de")
    assert (plain.data, plain.read_ends.tolist(), plain.damage) == (b"abcde", [3, 3, 5], None)


def test_chunks_are_joined_and_every_read_knows_how_much_had_come() -> None:
    # sizes 3 and 12 (0xC), an extension, a trailer; cut inside a size, inside data and between CR and LF
    blocks = (b"3\r\nab", b"c\r", b"\n0", b'C;name="v"\r\n0123456789', b"xy\r\n0\r\nTrailer: 1\r\n\r\n")
    framed = read(*blocks, is_chunked=True)
    assert framed.data == b"abc0123456789xy"
    assert framed.read_ends.tolist() == [2, 3, 3, 13, 15]
    assert (framed.damage, framed.error) == (None, None)


def test_an_empty_chunked_body_is_empty() -> None:
    empty = read(b"0\r\n\r\n", is_chunked=True)
    assert (empty.data, empty.read_ends.tolist(), empty.damage) == (b"", [0], None)


@pytest.mark.parametrize(
    "end",
    [
        b"",
        b"2",
        b"2\r",
        b"2\r\n",
        b"2\r\nx",
        b"2\r\nxy",
        b"2\r\nxy\r",
        b"2;ext",
        b"0\r\n",
        b"0\r\n\r",
        b"0\r\nA: b\r\n",
    ],
)
def test_a_body_that_ends_inside_its_framing_is_truncated(end: bytes) -> None:
    framed = read(b"3\r\nabc\r\n" + end, is_chunked=True)
    assert framed.damage is Outcome.TRUNCATED_STREAM
    assert framed.error == "the body ended inside its chunk framing"
    assert framed.data.startswith(b"abc")


@pytest.mark.parametrize(
    ("end", "error"),
    [
        (b"zz\r\n", "not a chunk size: b'zz\\r\\n'"),
        (b"-1\r\nx\r\n", "not a chunk size: b'-1\\r\\nx\\r\\n'"),
        (b"0x2\r\nxy\r\n", "not a chunk size: b'0x2\\r\\nxy\\r\\n'"),
        (b"1_0\r\n", "not a chunk size: b'1_0\\r\\n'"),
        (b"\r\n", "not a chunk size: b'\\r\\n'"),
        (b"f" * 16 + b"\r\n", "not a chunk size: b'ffffffffffffffff\\r\\n'"),
        (b"data: {}\n\n", "not a chunk size: b'data: {}\\n\\n'"),
        (b"1\r\nxy\r\n", "a chunk longer than its size: b'y\\r\\n'"),
        (b"0\r\n\r\nHTTP/1.1 200 OK", "15 bytes after the end of the body"),
    ],
)
def test_broken_framing_is_malformed_and_keeps_what_came_before(end: bytes, error: str) -> None:
    framed = read(b"3\r\nabc\r\n" + end, is_chunked=True)
    assert (framed.damage, framed.error) == (Outcome.MALFORMED, error)
    assert framed.data.startswith(b"abc")


def test_a_size_beyond_all_memory_is_a_body_that_ended_early() -> None:
    framed = read(b"fffffffffffffff\r\nabc", is_chunked=True)
    assert (framed.data, framed.damage) == (b"abc", Outcome.TRUNCATED_STREAM)


TEXT = b"".join(b"data: %d\n\n" % n for n in range(2000))


@pytest.mark.parametrize(
    ("encoding", "packed"),
    [
        ("gzip", gzip.compress(TEXT)),
        ("X-GZIP ", gzip.compress(TEXT[:50]) + gzip.compress(TEXT[50:])),
        ("deflate", zlib.compress(TEXT)),
        ("deflate", zlib.compress(TEXT)[2:-4]),
    ],
    ids=["gzip", "two members", "zlib", "bare deflate"],
)
def test_a_compressed_body_is_expanded_read_by_read(encoding: str, packed: bytes) -> None:
    blocks = [packed[at : at + 100] for at in range(0, len(packed), 100)]
    whole = read(*blocks, encoding=encoding)
    assert (whole.data, whole.damage) == (TEXT, None)
    ends = whole.read_ends.tolist()
    assert ends == sorted(ends)
    assert ends[-1] == len(TEXT)
    assert ends[-2] < len(TEXT)


def test_compression_inside_chunks_is_expanded() -> None:
    packed = gzip.compress(TEXT)
    framed = b"%x\r\n%s\r\n0\r\n\r\n" % (len(packed), packed)
    assert read(framed[:30], framed[30:], is_chunked=True, encoding="gzip").data == TEXT


def test_a_compressed_body_that_ends_early_is_truncated_and_keeps_what_it_gave() -> None:
    noise = random.Random(1).randbytes(50_000)
    early = read(gzip.compress(noise)[:-20_000], encoding="gzip")
    assert (early.damage, early.error) == (Outcome.TRUNCATED_STREAM, "the body ended inside its compression")
    assert noise.startswith(early.data)
    assert len(early.data) > 20_000


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
@pytest.mark.parametrize("junk", [b"\xffnot compressed at all", gzip.compress(TEXT)[:40] + b"\xff" * 90])
def test_broken_compression_is_malformed(encoding: str, junk: bytes) -> None:
    broken = read(junk, encoding=encoding)
    assert broken.damage is Outcome.MALFORMED
    assert broken.error is not None
    assert broken.error.startswith("broken compression: ")


def test_an_encoding_that_nobody_asked_for_is_malformed() -> None:
    assert read(b"x", encoding="br").error == "unknown content encoding 'br'"


def test_a_bomb_is_malformed_and_is_not_expanded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_module, "MAX_EXPANDED_BYTES", 1_000_000)
    bomb = read(gzip.compress(bytes(50_000_000)), encoding="gzip")
    assert bomb.damage is Outcome.MALFORMED
    assert bomb.error == "the compressed body expands to more than 1000000 bytes"
    assert len(bomb.data) == 1_000_001


def test_a_million_chunks_take_linear_work() -> None:
    # looking for the next size from the start each time would read 3 TB here
    assert len(read(b"1\r\nx\r\n" * 1_000_000 + b"0\r\n\r\n", is_chunked=True).data) == 1_000_000
