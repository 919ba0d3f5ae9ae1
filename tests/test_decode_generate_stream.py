"""SGLang's /generate stream: whole or disjoint texts, its counts, its errors, in linear work."""

import json
from typing import Any

import pytest
from decode_fixtures import decoded
from scripted_server import DONE, event

from loadgen.records import AcceptSource, ChunkKind, Outcome, TokenSource

TOKENS = ["Let", " me", "", " think", "."]  # the third alone makes no text: half a character, or an end mark


def part(text: str, tokens: int, ids: list[int] | None = None, reason: Any = None, **meta: Any) -> bytes:
    body: dict[str, Any] = {"text": text}
    if ids is not None:
        body["output_ids"] = ids
    facts = {"finish_reason": reason, "prompt_tokens": 11, "completion_tokens": tokens, "cached_tokens": 6}
    value = {**body, "meta_info": {"id": "x", **facts, **meta}}
    return event(json.dumps(value, separators=(",", ":")).encode())


def stream(*, is_cumulative: bool, has_ids: bool) -> list[bytes]:
    events = []
    for n, token in enumerate(TOKENS, 1):
        text = "".join(TOKENS[:n]) if is_cumulative else token
        ids = list(range(n)) if is_cumulative else [n]
        reason = {"type": "length", "length": 5} if n == len(TOKENS) else None
        events.append(part(text, n, ids if has_ids else None, reason))
    return [*events, DONE]


@pytest.mark.parametrize("is_cumulative", [True, False])
@pytest.mark.parametrize("has_ids", [True, False])
def test_whole_and_disjoint_texts_give_the_same_record(is_cumulative: bool, has_ids: bool) -> None:
    record = decoded(*stream(is_cumulative=is_cumulative, has_ids=has_ids))
    assert record.outcome is Outcome.OK
    assert (record.content, record.reasoning, record.finish_reason) == ("Let me think.", "", "length")
    assert (record.chunk_tokens, record.output_tokens) == ([1, 2, 4, 5], 5)
    assert record.chunk_ns == [1_000_000, 2_000_000, 4_000_000, 5_000_000]
    assert record.chunk_kind == [ChunkKind.ANSWER] * 4
    assert (record.prompt_tokens, record.cached_tokens) == (11, 6)
    assert record.token_source is TokenSource.CONTINUOUS_USAGE


def test_acceptance_comes_from_the_last_meta() -> None:
    end = part("ab", 4, [1, 2, 3, 4], {"type": "stop"}, spec_verify_ct=2, spec_accept_length=2.0)
    record = decoded(part("a", 1, [1]), end, DONE)
    assert (record.spec_verify_steps, record.spec_accept_length) == (2, 2.0)
    assert record.accept_source is AcceptSource.META_INFO


def test_a_key_inside_the_text_is_text() -> None:
    text = 'say "meta_info":{"completion_tokens":99},"output_ids":'
    record = decoded(part(text, 3, [1, 2, 3]), part(text + "!", 4, [1, 2, 3, 4], {"type": "stop"}))
    assert (record.content, record.chunk_tokens) == (text + "!", [3, 4])


def test_a_full_queue_and_other_aborts_are_failures() -> None:
    busy = {"type": "abort", "status_code": 503, "message": "The request queue is full."}
    record = decoded(part("", 0, [], busy), DONE)
    assert (record.outcome, record.error) == (Outcome.REJECTED, "The request queue is full.")
    record = decoded(part("a", 1, [1]), part("a", 1, [1], {"type": "abort"}), DONE)
    assert (record.outcome, record.error) == (Outcome.IN_STREAM_ERROR, "the server aborted the request")
    record = decoded(part("a", 1, [1]), event({"error": {"message": "out of memory"}}), DONE)
    assert (record.outcome, record.error) == (Outcome.IN_STREAM_ERROR, "out of memory")


@pytest.mark.parametrize(
    "junk", [b'{"text":"a"', b'{"text":"a","meta_info":{', b"[]", b'{"text":"\xff","meta_info":{}}']
)
def test_garbage_among_the_events_is_malformed(junk: bytes) -> None:
    events = stream(is_cumulative=True, has_ids=True)
    assert decoded(events[0], event(junk), *events[1:]).outcome is Outcome.MALFORMED


@pytest.mark.parametrize(
    "meta", [b"{}", b"[]", b'{"completion_tokens":"5"}', b'{"finish_reason":[1],"completion_tokens":-1}']
)
def test_odd_meta_gives_no_chunk_and_no_exception(meta: bytes) -> None:
    record = decoded(event(b'{"text":"a","meta_info":%s}' % meta))
    assert (record.outcome, record.chunk_ns, record.output_tokens) == (Outcome.EMPTY_STREAM, [], None)


def test_an_answer_of_32k_tokens_that_repeats_itself_is_read() -> None:
    # 1,000 events that say 26 MB in all, and one of 240 KB; only the first and the last are parsed
    text = "x" * 48_000
    events = [part(text[: 12 * n], 8 * n, list(range(8 * n))) for n in range(1, 1001)]
    record = decoded(*events, part(text, 32_000, list(range(32_000)), {"type": "length"}))
    assert (record.outcome, record.content) == (Outcome.OK, text)
    assert record.chunk_tokens == [*range(8, 8001, 8), 32_000]
