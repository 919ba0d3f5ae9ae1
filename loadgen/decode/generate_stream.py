"""SGLang's own `/generate` stream, understood from the `meta_info` of its events.

By default each event repeats the whole text and all token ids so far: reading all of them would be quadratic in the
tokens, so only the first and the last text are read, the others looked over for their form alone. With `--incremental-streaming-output` the texts are disjoint,
and all are read. The text is what the model said, thoughts included: there is no reasoning apart from the answer.
"""

import re
from typing import Any

from loadgen.decode.stream_facts import StreamFacts
from loadgen.received_json import error_message, read_event, whole_text
from loadgen.records import AcceptSource, ChunkKind

_BEGIN = b'{"text":'
_NO_TEXT = b'{"text":""'
_AFTER_TEXT = b',"output_ids":'
_META = b'"meta_info":'
# What comes before the meta: one string, and perhaps a list of integers.
_BEFORE_META = re.compile(
    rb'\{"text":"[^"\\\x00-\x1f]*(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*)*",(?:"output_ids":\[[0-9,]*\],)?'
)


def is_generate(data: bytes) -> bool:
    """Whether the first event of a stream is one of `/generate`."""
    return data.startswith(_BEGIN) and _META in data


def read_generate(datas: list[bytes]) -> StreamFacts:
    """What the events with these data say. Never raises on what a server sent."""
    facts = StreamFacts()
    for number, data in enumerate(datas):
        if data == b"[DONE]":
            facts.is_done = True
        elif isinstance(event := _read_meta(data), dict):
            _take_event(facts, number, event, data)
        else:
            facts.take_garbage(data)
    facts.close()
    _take_texts(facts, [datas[number] for number in facts.chunk_events])
    facts.join_texts()
    return facts


def _read_meta(data: bytes) -> Any:
    """The event with its `meta_info` alone, where that comes last as SGLang writes it; else the whole event."""
    # Inside a JSON string the quotes would be escaped: what is found is the key.
    at = data.rfind(_META)
    if at >= 0 and data.endswith(b"}") and _BEFORE_META.fullmatch(data, 0, at) and _is_utf8(data):
        meta = read_event(data[at + len(_META) : -1])
        if isinstance(meta, dict):
            return {"meta_info": meta}
    return read_event(data)


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _take_event(facts: StreamFacts, number: int, event: dict[str, Any], data: bytes) -> None:
    facts.see_event(number)
    if error := event.get("error"):
        facts.take_server_error(error.get("code") if isinstance(error, dict) else None, error_message(data))
    meta = event.get("meta_info")
    if isinstance(meta, dict):
        facts.see_choice(number)
        _take_meta(facts, number, meta, has_text=not data.startswith(_NO_TEXT))


def _take_meta(facts: StreamFacts, number: int, meta: dict[str, Any], *, has_text: bool) -> None:
    before = next(reversed(facts.chunk_counts), None) or 0
    tokens = meta.get("completion_tokens")
    is_chunk = has_text and isinstance(tokens, int) and tokens > before
    facts.take_usage(meta, is_running=is_chunk)
    if is_chunk:
        facts.add_chunk(number, ChunkKind.ANSWER, meta)
    facts.take_acceptance(meta, AcceptSource.META_INFO)
    _take_reason(facts, meta.get("finish_reason"))


def _take_reason(facts: StreamFacts, reason: Any) -> None:
    kind = reason.get("type") if isinstance(reason, dict) else reason
    if not isinstance(kind, str):
        return
    facts.finish(whole_text(kind))
    if kind == "abort" and isinstance(reason, dict):
        words = reason.get("message")
        message = words if isinstance(words, str) and words else "the server aborted the request"
        facts.take_server_error(reason.get("status_code"), message)


def _take_texts(facts: StreamFacts, chunks: list[bytes]) -> None:
    if not chunks:
        return
    first, last = _whole(facts, chunks[0]), _whole(facts, chunks[-1])
    if _is_cumulative(first, last, facts.chunk_counts[-1]):
        facts.answer = [_text(last)]
        facts.keep_chunks(_longer_than_before([_text_end(data) for data in chunks]))
    else:
        facts.answer = [_text(first), *(_text(_whole(facts, data)) for data in chunks[1:])]


def _text_end(data: bytes) -> int:
    at = data.find(_AFTER_TEXT)
    return at if at >= 0 else data.rfind(_META)


def _longer_than_before(lengths: list[int]) -> list[bool]:
    """Whether each text is longer than the one before: a token without text, as an end mark, is no chunk."""
    return [length > before for length, before in zip(lengths, [len(_NO_TEXT), *lengths], strict=False)]


def _whole(facts: StreamFacts, data: bytes) -> dict[str, Any]:
    event = read_event(data)
    if isinstance(event, dict):
        return event
    facts.take_garbage(data)
    return {}


def _is_cumulative(first: dict[str, Any], last: dict[str, Any], tokens: int | None) -> bool:
    ids = last.get("output_ids")
    if isinstance(ids, list) and ids:
        return len(ids) == tokens
    return _text(last).startswith(_text(first))


def _text(event: dict[str, Any]) -> str:
    text = event.get("text")
    return text if isinstance(text, str) else ""
