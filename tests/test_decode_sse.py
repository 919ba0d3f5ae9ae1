"""Event streams, however the network cuts them."""

from pathlib import Path

import pytest
from decode_fixtures import cut
from hypothesis import given
from hypothesis import strategies as st

from loadgen.decode.sse import EventParser, split_events

CAPTURES = sorted((Path(__file__).parent / "fixtures" / "captures").rglob("*.sse"))


def parse(*blocks: bytes) -> list[bytes]:
    parser = EventParser()
    return [data for block in blocks for data in parser.feed(block)]


@pytest.mark.parametrize("path", CAPTURES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_real_stream_gives_its_data_lines(path: Path) -> None:
    stream = path.read_bytes()
    expected = [line.removeprefix(b"data: ") for line in stream.split(b"\n") if line.startswith(b"data:")]
    assert parse(stream) == expected
    assert len(expected) > 2


@pytest.mark.parametrize("newline", [b"\n", b"\r\n", b"\r"])
def test_a_stream_cut_in_two_at_every_byte_gives_the_same_events(newline: bytes) -> None:
    stream = b'\n: ping\n\nevent: x\ndata: {"a":1}\nid: 3\ndata:second\n\n\ndata: caf\xc3\xa9 \xe2\x98\x95\n\ndata:\n\n'
    stream = stream.replace(b"\n", newline)
    expected = [b'{"a":1}\nsecond', "café ☕".encode(), b""]
    assert parse(stream) == expected
    for place in range(len(stream) + 1):
        assert parse(stream[:place], stream[place:]) == expected


@given(st.lists(st.integers(0, 10_000), max_size=20))
def test_arbitrary_cuts_give_the_same_events(places: list[int]) -> None:
    stream = CAPTURES[0].read_bytes().replace(b"\n", b"\r\n")
    assert parse(*cut(stream, places)) == parse(stream)


PIECES = st.sampled_from(
    [b"data: x", b"data:", b"data", b": c", b"event: e", b"a\xff", b"", b"\n", b"\r", b"\r\n"]
)


@given(st.lists(PIECES, max_size=12), st.lists(st.integers(0, 80), max_size=6))
def test_any_mix_of_newlines_is_cut_alike(pieces: list[bytes], places: list[int]) -> None:
    stream = b"".join(pieces)
    assert parse(*cut(stream, places)) == parse(stream)
    assert split_events(stream)[0] == parse(stream)
    unix = stream.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    assert parse(stream) == parse(unix)


@given(st.lists(PIECES, max_size=12))
def test_an_event_of_a_whole_payload_ends_with_the_byte_that_lets_the_parser_give_it(
    pieces: list[bytes],
) -> None:
    stream = b"".join(pieces)
    datas, ends = split_events(stream)
    assert ends == sorted(set(ends))
    for number, end in enumerate(ends):
        assert parse(stream[: end - 1]) == datas[:number]
        assert parse(stream[:end]) == datas[: number + 1]


def test_data_lines_of_one_event_are_joined_by_a_newline() -> None:
    assert parse(b"data: a\ndata:  b\ndata\ndata: c\n\n") == [b"a\n b\n\nc"]


def test_comments_other_fields_and_blank_lines_are_no_events() -> None:
    assert parse(b": keep-alive\n\nevent: ping\n\n\n\nretry: 5\ndatabase: no\n\n") == []


def test_an_event_that_no_blank_line_ends_is_not_given_out() -> None:
    assert parse(b"data: a\n\ndata: b\n") == [b"a"]
    assert parse(b"data: a\n\ndata: b") == [b"a"]


def test_a_20_mb_event_in_1_kb_pieces_takes_linear_work() -> None:
    payload = b"x" * 20_000_000
    stream = b"data: " + payload + b"\n\n"
    # a parser that looks at its buffer again for each piece would copy 200 GB here
    assert parse(*(stream[at : at + 1024] for at in range(0, len(stream), 1024))) == [payload]


def test_200_000_tiny_lines_in_one_block_take_linear_work() -> None:
    assert len(parse(b"data: x\n\n" * 200_000)) == 200_000
    assert len(split_events(b"data: x\n\n" * 200_000)[0]) == 200_000
    assert len(split_events(b"data: x\r\n\r\n" * 200_000)[0]) == 200_000


def test_an_event_of_many_data_lines_takes_linear_work() -> None:
    assert parse(b"data: x\n" * 200_000, b"\n") == [b"\n".join([b"x"] * 200_000)]
