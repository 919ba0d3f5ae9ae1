"""The events of one answer stream -> its text, counts, end marks and errors. No clock: events are numbers in order.

Reads the chunks of `/v1/chat/completions` and `/v1/completions`, as SGLang, vLLM, llama.cpp and others send them, and
hands those of SGLang's `/generate` to `generate_stream`. Usage is taken wherever it appears. An event that carries
reasoning and answer text is one chunk.
"""

from typing import Any

from loadgen.decode.generate_stream import is_generate, read_generate
from loadgen.decode.known_shape import KnownShapes
from loadgen.decode.stream_facts import StreamFacts
from loadgen.received_json import error_message, objects, read_event, whole_text
from loadgen.records import AcceptSource, ChunkKind

_REASONING_FIELDS = ("reasoning_content", "reasoning")  # SGLang's name first; vLLM's
_TEXT_FIELDS = (*_REASONING_FIELDS, "reasoning_details", "content", "text")


def read_stream(datas: list[bytes]) -> StreamFacts:
    """What the events with these data say. Never raises on what a server sent."""
    if datas and is_generate(datas[0]):
        return read_generate(datas)
    # A text that is none shows at the end; which event it was in is then for the parser to say.
    return _read(datas, KnownShapes()) or _read(datas, None) or StreamFacts()


def _read(datas: list[bytes], shapes: KnownShapes | None) -> StreamFacts | None:
    facts = StreamFacts()
    number = 0
    while number < len(datas):
        if shapes is not None and (run := shapes.read(datas, number)) is not None:
            number += len(run.texts)
            facts.add_run(number, run, datas[number - 1])
            continue
        data = datas[number]
        if data == b"[DONE]":
            facts.is_done = True
        elif isinstance(event := read_event(data), dict):
            _take_event(facts, number, event, data)
            if shapes is not None:
                _learn(shapes, facts, number, event, data)
        else:
            facts.take_garbage(data)
        number += 1
    facts.close()
    return facts if facts.join_texts() else None


def _take_event(facts: StreamFacts, number: int, event: dict[str, Any], data: bytes) -> None:
    facts.see_event(number)
    if error := event.get("error") or (event.get("object") == "error" and event):
        facts.take_server_error(error.get("code") if isinstance(error, dict) else None, error_message(data))
    kind = None
    if choices := objects(event.get("choices")):
        facts.see_choice(number)
        kind = _take_choices(facts, choices)
    usage = event.get("usage")
    if isinstance(usage, dict):
        facts.take_usage(usage, is_running=kind is not None)
    if kind is not None:
        facts.add_chunk(number, kind, usage)
    if "sglext" in event:
        _take_extension(facts, event["sglext"])


def _learn(shapes: KnownShapes, facts: StreamFacts, number: int, event: dict[str, Any], data: bytes) -> None:
    """Remembers the shape of a chunk that says nothing but its one text and its usage."""
    is_plain = facts.finish_reason is None and not facts.has_error and "sglext" not in event
    choices: list[Any] = event["choices"] if is_plain and facts.chunk_events[-1:] == [number] else []
    if len(choices) == 1:
        holder = choices[0].get("delta", choices[0])
        keys = [key for key in _TEXT_FIELDS if isinstance(holder, dict) and holder.get(key)]
        if len(keys) == 1 and isinstance(text := holder[keys[0]], str):
            has_usage = isinstance(event.get("usage"), dict)
            shapes.learn(data, keys[0], facts.chunk_kinds[-1], text, has_usage=has_usage)


def _take_choices(facts: StreamFacts, choices: list[dict[str, Any]]) -> ChunkKind | None:
    """The kind of the text in the choices of one event; None without text."""
    has_reasoning = has_answer = False
    for choice in choices:
        delta = choice.get("delta")
        if isinstance(delta, dict):
            if reasoning := _reasoning(delta):
                facts.reasoning.append(reasoning)
                has_reasoning = True
            answer = delta.get("content")
        else:
            answer = choice.get("text")
        if answer and isinstance(answer, str):
            facts.answer.append(answer)
            has_answer = True
        reason = choice.get("finish_reason")
        if isinstance(reason, str):
            facts.finish(whole_text(reason))
    if has_reasoning:
        return ChunkKind.BOTH if has_answer else ChunkKind.REASONING
    return ChunkKind.ANSWER if has_answer else None


def _reasoning(delta: dict[str, Any]) -> str:
    for name in _REASONING_FIELDS:
        text = delta.get(name)
        if text and isinstance(text, str):
            return text
    if "reasoning_details" not in delta:
        return ""
    # OpenRouter's form, beside or instead of the plain field
    parts = (part.get("text") or part.get("summary") for part in objects(delta["reasoning_details"]))
    return "".join(text for text in parts if isinstance(text, str))


def _take_extension(facts: StreamFacts, extension: Any) -> None:
    details = extension.get("spec_tokens_details") if isinstance(extension, dict) else None
    if isinstance(details, dict):
        facts.take_acceptance(details, AcceptSource.SPEC_TOKENS_DETAILS)
