"""Streams recorded from real servers: what is in them, and that no cut, framing or compression changes it."""

import gzip
import zlib
from collections import Counter
from pathlib import Path

import pytest
from decode_fixtures import cut, decoded, exchange_of, in_chunks
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen.decode.record import EndMarks, learn_end_marks
from loadgen.decode.sse import EventParser, split_events
from loadgen.records import ChunkKind, Outcome, RequestRecord, TokenSource

CAPTURES = Path(__file__).parent / "fixtures" / "captures"
STREAMS = {f"{path.parent.name}/{path.stem}": path.read_bytes() for path in sorted(CAPTURES.rglob("*.sse"))}

# Read from the files with a few lines of Python that know nothing of the decoder: finish reason, completion and prompt
# tokens, reasoning and answer chunks, characters of each, the last ones of all, whether [DONE] came.
GOLDEN = {
    "other-servers/guidellm": ("stop", 6, 1, 0, 6, 0, 17, " each cause.", True),
    "other-servers/llamacpp": ("stop", 50, 45, 0, 49, 0, 193, "e operation.", True),
    "other-servers/transformers-serve": ("stop", 51, 45, 0, 50, 0, 200, "e operation.", False),
    "other-servers/vllm": ("stop", 51, 45, 0, 50, 0, 200, "e operation.", True),
    "sglang-0.5.23/abort_rid": ("abort", None, None, 5, 4, 17, 17, "is the\n    #", True),
    "sglang-0.5.23/chat_length": ("length", 5, 35, 5, 0, 21, 0, "ink. We need", True),
    "sglang-0.5.23/chat_stop": ("stop", None, None, 5, 4, 17, 12, "Here is the\n", True),
    "sglang-0.5.23/chat_stream_cont": ("length", 8, 35, 8, 0, 32, 0, "d to add two", True),
    "sglang-0.5.23/chat_stream_instant": ("stop", None, None, 0, 22, 0, 85, "b\n```\nDone.\n", True),
    "sglang-0.5.23/chat_stream_nosep": ("stop", None, None, 0, 4, 0, 14, "t me think.\n", True),
    "sglang-0.5.23/chat_stream_nostreamreason": ("stop", None, None, 1, 21, 100, 85, "b\n```\nDone.\n", True),
    "sglang-0.5.23/chat_stream_usage": ("stop", 60, 35, 5, 3, 25, 11, "\nHere is the", True),
    "sglang-0.5.23/completions_stream": ("length", 8, 1, 0, 8, 0, 32, "d to add two", True),
    "sglang-0.5.23/gen_stream": ("length", 30, 11, 0, 10, 0, 108, " b.\n</think>", True),
    "sglang-0.5.23/spec_chat1": ("stop", 60, 35, 3, 0, 13, 0, "et me think.", True),
    "sglang-0.5.23/spec_chat2": ("stop", 60, 35, 5, 5, 100, 85, "b\n```\nDone.\n", True),
    "whole-streams/llamacpp-gemma": ("length", 150, 38, 0, 150, 0, 437, "function add", True),
    "whole-streams/sglang-generate": ("length", 30, 11, 0, 29, 0, 108, " b.\n</think>", True),
    "whole-streams/sglang-ignore-eos": ("length", 70, 35, 28, 33, 100, 103, "emoji 😀 is a", True),
    "whole-streams/sglang-n2": ("length", 8, 35, 8, 0, 32, 0, "think. We We", True),
    "whole-streams/sglang-ngram-cold": ("stop", 60, 35, 27, 20, 100, 85, "b\n```\nDone.\n", True),
    "whole-streams/sglang-ngram-smol-cold": ("length", 250, 48, 0, 128, 0, 960, "index == len", True),
    "whole-streams/sglang-ngram-smol-warm": ("length", 250, 48, 0, 35, 0, 960, "index == len", True),
    "whole-streams/sglang-no-usage": ("stop", None, None, 28, 25, 100, 85, "b\n```\nDone.\n", True),
    "whole-streams/sglang-smol": ("stop", 51, 45, 0, 50, 0, 200, "e operation.", True),
}
ABORTED = ("sglang-0.5.23/abort_rid",)
COUNTED = ("sglang-0.5.23/chat_stream_cont", "sglang-0.5.23/gen_stream", "whole-streams/sglang-generate")
EACH = pytest.mark.parametrize("name", sorted(STREAMS))


def said(record: RequestRecord) -> tuple[object, ...]:
    """What a record says, but for times and sizes on the wire."""
    return (
        record.outcome, record.error, record.finish_reason, record.token_source, record.prompt_tokens,
        record.output_tokens, record.reasoning_tokens, record.cached_tokens, record.spec_verify_steps,
        record.spec_accept_length, record.accept_source, record.choice_events, record.chunk_tokens, record.chunk_kind,
        record.reasoning, record.content, len(record.chunk_ns),
    )  # fmt: skip


def test_every_recorded_stream_has_its_golden_record() -> None:
    assert set(GOLDEN) == set(STREAMS)


@EACH
def test_a_recorded_stream_gives_its_golden_record(name: str) -> None:
    record = decoded(STREAMS[name])
    kinds = Counter(record.chunk_kind)
    is_done = learn_end_marks(exchange_of(STREAMS[name]))
    assert (
        record.finish_reason,
        record.output_tokens,
        record.prompt_tokens,
        kinds[ChunkKind.REASONING],
        kinds[ChunkKind.ANSWER],
        len(record.reasoning),
        len(record.content),
        (record.reasoning + record.content)[-12:],
    ) == GOLDEN[name][:-1]
    assert record.outcome == (Outcome.IN_STREAM_ERROR if name in ABORTED else Outcome.OK)
    assert is_done == (None if name in ABORTED else EndMarks(finish_reason=True, done=GOLDEN[name][-1]))
    if record.output_tokens is None:
        assert record.token_source is None
    else:
        assert (record.token_source is TokenSource.CONTINUOUS_USAGE) == (name in COUNTED)


@EACH
@settings(max_examples=20)
@given(places=st.lists(st.integers(0, 100_000), max_size=12))
def test_any_cut_gives_the_same_events_and_the_same_record(name: str, places: list[int]) -> None:
    stream = STREAMS[name]
    parser = EventParser()
    assert [data for block in cut(stream, places) for data in parser.feed(block)] == split_events(stream)[0]
    assert said(decoded(*cut(stream, places))) == said(decoded(stream))


@EACH
@settings(max_examples=20)
@given(
    places=st.lists(st.integers(0, 100_000), max_size=8), reads=st.lists(st.integers(0, 100_000), max_size=8)
)
def test_any_framing_gives_the_same_record(name: str, places: list[int], reads: list[int]) -> None:
    stream = STREAMS[name]
    body = in_chunks(*cut(stream, places))
    assert said(decoded(*cut(body, reads), is_chunked=True)) == said(decoded(stream))


@EACH
@pytest.mark.parametrize("newline", [b"\r\n", b"\r"])
def test_any_line_ends_give_the_same_record(name: str, newline: bytes) -> None:
    assert said(decoded(STREAMS[name].replace(b"\n", newline))) == said(decoded(STREAMS[name]))


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
@given(reads=st.lists(st.integers(0, 100_000), max_size=8))
def test_compression_gives_the_same_record(encoding: str, reads: list[int]) -> None:
    stream = STREAMS["sglang-0.5.23/spec_chat2"]
    packed = gzip.compress(stream) if encoding == "gzip" else zlib.compress(stream)
    record = decoded(*cut(packed, reads), content_encoding=encoding)
    assert said(record) == said(decoded(stream))


@pytest.mark.parametrize("name", ["sglang-0.5.23/chat_stream_cont", "other-servers/vllm"])
def test_a_stream_cut_off_at_any_byte_is_never_ok_and_keeps_what_it_said(name: str) -> None:
    stream = STREAMS[name]
    whole = decoded(stream)
    marks = EndMarks(finish_reason=True, done=True)
    for end in range(0, len(stream) - 1, 3):
        record = decoded(stream[:end], marks=marks)
        assert record.outcome in (Outcome.EMPTY_STREAM, Outcome.TRUNCATED_STREAM), end
        assert whole.content.startswith(record.content)
        assert whole.reasoning.startswith(record.reasoning)


FAILURES = set(Outcome) - {Outcome.OK}


@EACH
@settings(max_examples=20)
@given(junk=st.binary(min_size=1, max_size=40), place=st.integers(0, 100_000))
def test_an_event_of_garbage_anywhere_is_one_failure(name: str, junk: bytes, place: int) -> None:
    events = STREAMS[name].split(b"\n\n")
    junk = junk.replace(b"\n", b"").replace(b"\r", b"")
    events.insert(place % len(events), b'data: {"x":' + junk)
    assert decoded(b"\n\n".join(events)).outcome in FAILURES


@given(
    junk=st.binary(max_size=300),
    is_chunked=st.booleans(),
    encoding=st.sampled_from(["", "gzip", "deflate", "br"]),
)
def test_garbage_alone_is_one_failure(junk: bytes, is_chunked: bool, encoding: str) -> None:
    record = decoded(junk, is_chunked=is_chunked, content_encoding=encoding)
    assert record.outcome in FAILURES
    assert record.chunk_ns == []


@EACH
@settings(max_examples=20)
@given(place=st.integers(0, 100_000), junk=st.binary(min_size=1, max_size=6))
def test_bytes_overwritten_anywhere_in_a_framed_body_are_never_an_exception(
    name: str, place: int, junk: bytes
) -> None:
    body = bytearray(in_chunks(*STREAMS[name].split(b"\n")))
    at = place % len(body)
    body[at : at + len(junk)] = junk
    assert decoded(bytes(body), is_chunked=True).outcome in set(Outcome)
