"""Recorded arrivals: the three forms, and what is wrong with a file in one line."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.errors import BadInput
from loadgen.trace import parse_trace, read_trace

SECONDS = [0, 250_000_000, 1_500_000_000]


@pytest.mark.parametrize(
    "text",
    [
        "10\n10.25\n11.5\n",
        "\n10\r\n10.25\r\n\r\n11.5",
        '{"timestamp": 10, "x": 1}\n{"timestamp": 10.25}\n{"timestamp": "11.5"}\n',
        "Timestamp,tokens\n10,5\n10.25,6\n11.5,7\n",
        'model, timestamp\n"a,b",10\nc,10.25\nd,11.5\n',
    ],
)
def test_each_form_gives_the_offsets(text: str) -> None:
    assert parse_trace(text, "t").tolist() == SECONDS


def test_milliseconds_are_a_unit() -> None:
    assert parse_trace('{"timestamp": 0}\n{"timestamp": 27482}', "t", "ms").tolist() == [0, 27_482_000_000]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "t: it holds no timestamp; give one a line"),
        ("timestamp\n", "t: it holds no timestamp; give one a line"),
        ("1\n\nx\n", "t:3: 'x' is no timestamp; write a number of s"),
        ("1\nnan\n", "t:2: 'nan' is no timestamp; write a number of s"),
        ("3\n2\n", "t:2: 2 comes after 3; sort the trace by time"),
        ('{"timestamp": 1}\n{"time": 2}', "t:2: '{\"time\": 2}' is no JSON object with a timestamp; give each line one"),
        ('{"timestamp": true}', "t:1: True is no timestamp; write a number of s"),
        ('{"timestamp": 1', "t:1: '{\"timestamp\": 1' is no JSON object with a timestamp; give each line one"),
        ("at,timestamp\n1,2\n1\n", "t:3: '' is no timestamp; write a number of s"),
        ("timestamp_ms\n1\n", "t:1: 'timestamp_ms' is no timestamp; write a number of s"),
        ("0\n86401\n", "t: it is longer than a day; cut it, or check the unit (s)"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_one_line(text: str, message: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_trace(text, "t")
    assert str(caught.value) == f"load.arrivals.trace: {message}"


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"trace: .*none: cannot be read \(No such file"):
        read_trace(tmp_path / "none")
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadInput, match="it is not UTF-8 text"):
        read_trace(tmp_path / "binary")


def test_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("\ufeff1\n2\n", encoding="utf-8")
    assert read_trace(tmp_path / "t").tolist() == [0, 1_000_000_000]


@given(st.text())
def test_any_text_is_offsets_or_one_line_of_bad_input(text: str) -> None:
    said: list[str] = []
    offsets = [0]
    try:
        offsets = parse_trace(text, "t").tolist()
    except BadInput as error:
        said = str(error).splitlines()
    assert len(said) <= 1
    assert offsets == sorted(offsets)
    assert offsets[0] == 0
