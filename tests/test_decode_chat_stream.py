"""What the events of a chat stream say, in the shapes of several servers; odd and hostile ones too."""

import gzip
import json
from typing import Any

import pytest
from decode_fixtures import MS, decoded, exchange_of, in_chunks
from scripted_server import DONE, delta, event, role, usage, whole_answer

from loadgen.decode.record import EndMarks, learn_end_marks
from loadgen.records import ChunkKind, Outcome, TokenSource


def chunk(fields: dict[str, Any], **more: Any) -> bytes:
    return event({"choices": [{"index": 0, "delta": fields, "finish_reason": None}], **more})


def test_an_event_with_reasoning_and_answer_is_one_chunk_of_both() -> None:
    both = chunk({"reasoning_content": "so.", "content": "Yes"}, usage={"completion_tokens": 4})
    record = decoded(
        delta(reasoning="Hm, ", tokens=2), both, delta("!", tokens=5), delta(finish="stop"), usage(5)
    )
    assert record.chunk_kind == [ChunkKind.REASONING, ChunkKind.BOTH, ChunkKind.ANSWER]
    assert record.chunk_ns == [MS, 2 * MS, 3 * MS]
    assert record.chunk_tokens == [2, 4, 5]
    assert (record.first_token_ns, record.first_answer_ns) == (MS, 2 * MS)
    assert (record.reasoning, record.content) == ("Hm, so.", "Yes!")


DETAILS = {"reasoning_details": [{"type": "reasoning.text", "text": "a"}, {"summary": "b"}, {"text": 3}, "x"]}


@pytest.mark.parametrize(
    ("fields", "reasoning"),
    [
        ({"reasoning_content": "a"}, "a"),
        ({"reasoning": "a"}, "a"),
        ({"reasoning_content": None, "reasoning": "a"}, "a"),
        ({"reasoning_content": "a", "reasoning": "a"}, "a"),
        (DETAILS, "ab"),
        ({"reasoning": "ab", **DETAILS}, "ab"),
        ({"reasoning_details": None, "content": ""}, ""),
        ({"reasoning_details": {"text": "a"}}, ""),
    ],
)
def test_reasoning_is_found_under_every_name_once(fields: dict[str, Any], reasoning: str) -> None:
    record = decoded(chunk(fields), delta("x"), delta(finish="stop"))
    assert record.reasoning == reasoning
    assert record.chunk_kind == [ChunkKind.REASONING] * bool(reasoning) + [ChunkKind.ANSWER]


def test_text_of_the_completions_route_is_an_answer_and_may_carry_the_finish_reason() -> None:
    ends = ((" me", None), (" two", "length"))
    events = [event({"choices": [{"text": text, "finish_reason": end}], "usage": None}) for text, end in ends]
    record = decoded(*events, usage(2), DONE)
    assert (record.content, record.finish_reason, record.outcome) == (" me two", "length", Outcome.OK)
    assert (record.token_source, record.output_tokens) == (TokenSource.USAGE, 2)


def test_the_moments_of_the_golden_stream() -> None:
    four = [({"reasoning_content": "a"}, 1000), ({"reasoning_content": "b"}, 1100)]
    four += [({"content": "c"}, 1200), ({"content": "d"}, 1300)]
    texts = [
        (at * MS, chunk(fields, usage={"completion_tokens": 4 * n})) for n, (fields, at) in enumerate(four, 1)
    ]
    record = decoded(
        (100 * MS, role()),
        *texts,
        (1300 * MS, delta(finish="stop")),
        (1320 * MS, usage(16)),
        (1320 * MS, DONE),
    )
    assert (record.first_chunk_ns, record.first_choice_ns) == (100 * MS, 100 * MS)
    assert (record.first_token_ns, record.first_answer_ns, record.last_token_ns) == (
        1000 * MS,
        1200 * MS,
        1300 * MS,
    )
    assert (record.last_choice_ns, record.last_event_ns, record.choice_events) == (1300 * MS, 1320 * MS, 6)
    assert record.chunk_tokens == [4, 8, 12, 16]


def test_chunks_that_share_a_read_with_something_later_are_counted() -> None:
    reads = (
        role() + delta("a"),
        delta("b") + delta("c"),
        delta("d"),
        delta("e") + delta(finish="stop") + DONE,
    )
    record = decoded(*reads)
    # a is the last of its read, b is not, c and d are, e is not
    assert record.shared_events == 2
    assert record.chunk_ns == [MS, 2 * MS, 2 * MS, 3 * MS, 4 * MS]
    assert (record.stamp_source, record.client_lag_max_ns, record.read_lag_us) == ("user", None, None)


def test_a_chunk_completed_by_a_later_read_has_that_reads_time() -> None:
    first, second = delta("a"), delta("b")
    record = decoded(first + second[:-1], second[-1:] + delta(finish="stop"))
    assert record.chunk_ns == [MS, 2 * MS]


@pytest.mark.parametrize(
    ("counts", "total", "trusted"),
    [
        ((1, 2, 3), 3, True),
        (
            (4, 4, 9),
            10,
            True,
        ),  # SGLang: a step across </think> is two chunks with one count; the end mark has no text
        ((2, 2), 2, True),
        ((5, 3, 6), 6, False),
        ((1, 2, 50), 6, False),
        ((0, 0, 0), 6, False),
        ((6, 6, 6), 6, False),
        ((0,), 6, False),
        ((1, None, 3), 3, False),
    ],
)
def test_running_counts_are_believed_only_where_they_can_be_true(
    counts: tuple[int | None, ...], total: int, trusted: bool
) -> None:
    record = decoded(*(delta("x", tokens=count) for count in counts), delta(finish="stop"), usage(total))
    assert record.chunk_tokens == (list(counts) if trusted else None)
    assert record.token_source is (TokenSource.CONTINUOUS_USAGE if trusted else TokenSource.USAGE)
    assert record.output_tokens == total


def test_merged_chunks_keep_their_tokens() -> None:
    record = decoded(delta("a", tokens=1), delta("b c d", tokens=4), delta(finish="stop"), usage(4))
    assert (record.chunk_tokens, len(record.chunk_ns)) == ([1, 4], 2)


def test_a_cut_stream_has_the_last_running_count_for_its_total() -> None:
    record = decoded(role(), delta("a", tokens=1), delta("b", tokens=2), failure=Outcome.CUT)
    assert (record.outcome, record.output_tokens, record.chunk_tokens) == (Outcome.CUT, 2, [1, 2])


def test_what_a_later_usage_does_not_say_stays_as_it_was() -> None:
    first = {"completion_tokens": 1, "prompt_tokens": 9, "prompt_tokens_details": {"cached_tokens": 4}}
    last = {"completion_tokens": 2, "prompt_tokens_details": None}
    record = decoded(
        chunk({"content": "a"}, usage=first), chunk({"content": "b"}, usage=last), delta(finish="stop")
    )
    assert (record.prompt_tokens, record.cached_tokens, record.output_tokens) == (9, 4, 2)


@pytest.mark.parametrize("size", [300_000, 20_000_000])
def test_an_event_has_no_largest_size(size: int) -> None:
    stream = in_chunks(role(), delta(reasoning="x" * size), delta("y", finish="stop"), DONE)
    blocks = [stream[at : at + 65536] for at in range(0, len(stream), 65536)]
    record = decoded(*blocks, is_chunked=True)
    assert record.outcome is Outcome.OK
    assert (len(record.reasoning), record.content) == (size, "y")


def test_comments_while_waiting_are_no_events() -> None:
    record = decoded(b": ping\n\n", b":\n\n", *whole_answer())
    assert (record.outcome, record.first_chunk_ns, record.content) == (Outcome.OK, 3 * MS, "w0 w1 w2 ")
    assert decoded(b": ping\n\n").outcome is Outcome.EMPTY_STREAM


@pytest.mark.parametrize(
    ("body", "outcome", "error"),
    [
        (b'{"error":{"message":"no","code":500}}', Outcome.IN_STREAM_ERROR, "no"),
        (b'{"object":"error","message":"full","code":503}', Outcome.REJECTED, "full"),
        (b'{"choices":[{"message":{"content":"x"},"finish_reason":"stop"}]}', Outcome.MALFORMED, None),
        (b"<html>", Outcome.MALFORMED, "not an event stream: b'<html>'"),
        (b"data: {", Outcome.TRUNCATED_STREAM, None),
        (b"da", Outcome.TRUNCATED_STREAM, None),
    ],
)
def test_a_200_that_is_no_event_stream(body: bytes, outcome: Outcome, error: str | None) -> None:
    record = decoded(body)
    assert record.outcome is outcome
    assert error is None or record.error == error


def test_a_stream_with_another_status_gives_its_error_and_no_chunk() -> None:
    said = event({"error": {"message": "busy", "code": 429}})
    for status, outcome in ((429, Outcome.REJECTED), (500, Outcome.HTTP_ERROR)):
        record = decoded(in_chunks(said, *whole_answer()), status=status, is_chunked=True)
        assert (record.outcome, record.error, record.chunk_ns) == (outcome, "busy", [])
        assert record.first_chunk_ns is None


def test_the_body_of_an_error_is_read_without_its_framing_and_compression() -> None:
    body = gzip.compress(json.dumps({"detail": "Not Found"}).encode())
    record = decoded(in_chunks(body), status=404, is_chunked=True, content_encoding="gzip")
    assert (record.outcome, record.error) == (Outcome.HTTP_ERROR, "Not Found")


def test_broken_framing_after_a_whole_answer_is_malformed() -> None:
    record = decoded(in_chunks(*whole_answer()) + b"junk", is_chunked=True)
    assert (record.outcome, record.error) == (Outcome.MALFORMED, "4 bytes after the end of the body")
    assert record.content == "w0 w1 w2 "


def test_a_body_without_its_last_chunk_is_truncated_unless_the_answer_was_whole() -> None:
    *events, done = whole_answer()
    marks = EndMarks(done=True)
    unfinished = in_chunks(*events).removesuffix(b"0\r\n\r\n")
    record = decoded(unfinished, marks=marks, is_chunked=True)
    assert record.outcome is Outcome.TRUNCATED_STREAM
    whole = decoded(in_chunks(*events, done).removesuffix(b"0\r\n\r\n"), marks=marks, is_chunked=True)
    assert (whole.outcome, whole.error) == (Outcome.OK, "the body ended inside its chunk framing")


@pytest.mark.parametrize(
    ("events", "marks"),
    [
        (whole_answer(), EndMarks(finish_reason=True, done=True)),
        (whole_answer()[:-1], EndMarks(finish_reason=True, done=False)),
        ((role(), delta("a"), DONE), EndMarks(finish_reason=False, done=True)),
        ((role(), delta("a")), EndMarks(finish_reason=False, done=False)),
        ((role(), DONE), None),
        ((role(), delta("a"), event({"error": "x"}), DONE), None),
        ((event(b"{oops"), *whole_answer()), None),
    ],
)
def test_a_probe_teaches_the_end_marks_of_its_server(
    events: tuple[bytes, ...], marks: EndMarks | None
) -> None:
    assert learn_end_marks(exchange_of(*events)) == marks


def test_a_probe_that_failed_teaches_nothing() -> None:
    assert learn_end_marks(exchange_of(*whole_answer(), failure=Outcome.RESET)) is None
    assert learn_end_marks(exchange_of(*whole_answer(), status=500)) is None
    assert learn_end_marks(exchange_of()) is None


@pytest.mark.parametrize(
    ("marks", "missing_done", "missing_reason"),
    [
        (EndMarks(True, True), Outcome.TRUNCATED_STREAM, Outcome.TRUNCATED_STREAM),
        (EndMarks(True, False), Outcome.OK, Outcome.TRUNCATED_STREAM),
        (EndMarks(False, True), Outcome.TRUNCATED_STREAM, Outcome.OK),
        (EndMarks(False, False), Outcome.OK, Outcome.OK),
    ],
)
def test_success_needs_the_end_marks_of_this_server(
    marks: EndMarks, missing_done: Outcome, missing_reason: Outcome
) -> None:
    assert decoded(role(), delta("a"), delta(finish="stop"), marks=marks).outcome is missing_done
    assert decoded(role(), delta("a"), DONE, marks=marks).outcome is missing_reason
