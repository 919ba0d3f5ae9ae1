"""Reading a chunk by its likeness to an earlier one gives what parsing it gives, to the last fact."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen.decode import chat_stream
from loadgen.decode.chat_stream import read_stream
from loadgen.decode.known_shape import KnownShapes
from loadgen.decode.sse import split_events
from loadgen.decode.stream_facts import StreamFacts
from loadgen.received_json import read_event
from loadgen.records import ChunkKind

CAPTURES = Path(__file__).parent / "fixtures" / "captures"
STREAMS = {
    f"{path.parent.name}/{path.stem}": split_events(path.read_bytes())[0]
    for path in sorted(CAPTURES.rglob("*.sse"))
}


class ParseAll(KnownShapes):
    def read(self, datas: list[bytes], start: int) -> None:
        """Knows nothing."""


def parsed(datas: list[bytes]) -> StreamFacts:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chat_stream, "KnownShapes", ParseAll)
        return read_stream(datas)


def parses_of(datas: list[bytes], monkeypatch: pytest.MonkeyPatch) -> int:
    """How many of the events are parsed."""
    seen: list[bytes] = []

    def noted(data: bytes) -> Any:
        seen.append(data)
        return read_event(data)

    monkeypatch.setattr("loadgen.decode.chat_stream.read_event", noted)
    read_stream(datas)
    return len(seen)


@pytest.mark.parametrize("name", sorted(STREAMS))
def test_recorded_streams_say_the_same(name: str) -> None:
    assert read_stream(STREAMS[name]) == parsed(STREAMS[name])


@pytest.mark.parametrize(
    ("name", "parses"),
    [
        ("whole-streams/sglang-ignore-eos", 5),
        ("other-servers/llamacpp", 6),
        ("sglang-0.5.23/chat_stream_cont", 4),
    ],
)
def test_chunks_that_are_alike_are_parsed_once(
    name: str, parses: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    datas = STREAMS[name]
    # role, one of each kind (and each second, where the chunks carry the time), finish, usage
    assert parses_of(datas, monkeypatch) == parses < len(datas) - 4


@pytest.mark.parametrize(
    "name", ["sglang-0.5.23/chat_stream_cont", "other-servers/vllm", "other-servers/guidellm"]
)
@settings(max_examples=100)
@given(
    event=st.integers(0, 1000),
    place=st.integers(0, 1000),
    length=st.integers(0, 3),
    junk=st.binary(max_size=4)
    | st.sampled_from([b'"', b"\\", b"0", b"-1", b"1.5", b"00", b"9" * 20, b"null", b"\xed\xa0\x80"]),
)
def test_a_stream_with_one_event_changed_anywhere_says_the_same(
    name: str, event: int, place: int, length: int, junk: bytes
) -> None:
    datas = list(STREAMS[name])
    changed = datas[event % len(datas)]
    at = place % (len(changed) + 1)
    datas[event % len(datas)] = changed[:at] + junk + changed[at + length :]
    assert read_stream(datas) == parsed(datas)


INTEGERS = st.sampled_from([*range(20), 2**31 - 1, 2**31, 10**17, 10**18, 10**30])
LITERALS = st.text(st.characters(exclude_categories=()), max_size=6) | st.sampled_from(
    ['"content":', '"usage":', "\\", '"', "\x00", "\ud83d", "😀", ""]
)
KEYS = st.sampled_from(["content", "reasoning_content", "reasoning", "text"])


@st.composite
def chunks(draw: st.DrawFn) -> bytes:
    """A chunk as some server might write it; most are alike, some lack a part or have one more."""
    fields: dict[str, Any] = {draw(KEYS): draw(LITERALS)}
    if draw(st.booleans()):
        fields["content"] = draw(st.sampled_from(["", None, "x"]))
    choice = {"index": 0, "delta": fields, "finish_reason": draw(st.sampled_from([None] * 9 + ["stop"]))}
    value: dict[str, Any] = {"id": "x", "choices": [choice]}
    if draw(st.booleans()):
        value["usage"] = {"prompt_tokens": draw(INTEGERS), "completion_tokens": draw(INTEGERS)}
    value |= draw(st.sampled_from([{}] * 9 + [{"error": {"code": 503}}, {"sglext": {}}, {"usage": None}]))
    return json.dumps(value, ensure_ascii=draw(st.booleans())).encode("utf-8", "surrogatepass")


@settings(max_examples=120)
@given(st.lists(chunks(), max_size=8))
def test_any_chunks_whatever_say_the_same(datas: list[bytes]) -> None:
    assert read_stream(datas) == parsed(datas)


def test_a_text_beside_the_delta_is_no_text() -> None:
    datas = [b'{"choices":[{"delta":{"text":"a"}}]}', b'{"choices":[{"delta":{"text":"b"}}]}']
    assert read_stream(datas).chunk_events == []


def test_streams_whose_chunks_are_not_alike_are_parsed() -> None:
    datas = [b'{"n":%d,"choices":[{"delta":{"content":"a"}}]}' % n for n in range(100)]
    facts = read_stream(datas)
    assert facts == parsed(datas)
    assert facts.chunk_kinds == [ChunkKind.ANSWER] * 100
