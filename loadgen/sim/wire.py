"""Bytes of a stream: SGLang 0.5.23's server-sent events for chat, completions and /generate.

No I/O and no clock. What is the same in all events of a stream is built once, so that a chunk costs one string
formatting and the JSON escape of its text.
"""

import json
from dataclasses import dataclass
from json.encoder import encode_basestring as _quote
from typing import Any, Protocol

from loadgen.sim.answers import Answer
from loadgen.sim.scheduler import Sequence

DONE = b"data: [DONE]\n\n"
_COMPACT = (",", ":")


@dataclass(frozen=True, slots=True)
class View:
    """What of an answer a client wants to see, and how."""

    rid: str
    model: str
    created: int
    stream: bool = False
    separate_reasoning: bool = False
    stream_reasoning: bool = True
    include_usage: bool = False
    continuous_usage: bool = False
    spec_details: bool = False
    cached_details: bool = False
    report_cached: bool = False
    proposed_per_step: int = 0  # draft tokens of a verify step; 0: no speculation


class Encoder(Protocol):
    """One stream's events. Token ranges are half open; the last event of a stream comes from `last`."""

    def first(self, stop: int) -> bytes: ...

    def step(self, start: int, stop: int) -> bytes: ...

    def last(self, start: int, stop: int) -> bytes: ...


def frame(data: bytes) -> bytes:
    """One chunk of HTTP/1.1's chunked transfer coding (RFC 9112, 7.1)."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(value: Any) -> bytes:
    """One server-sent event with a JSON value."""
    return b"data: " + dumps(value) + b"\n\n"


def dumps(value: Any) -> bytes:
    """JSON as SGLang writes it: compact, not escaped to ASCII. Lone surrogates are escaped."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=_COMPACT).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=_COMPACT).encode()


def reasoning_text(answer: Answer, view: View, tokens: int) -> str:
    """The reasoning within the first `tokens` tokens; empty if it is not separated."""
    if not view.separate_reasoning or not answer.thinking_tokens:
        return ""
    return answer.text[: _char(answer, min(tokens, answer.thinking_tokens - 1))]


def content_text(answer: Answer, view: View, tokens: int) -> str:
    """What stands in `content` after the first `tokens` tokens."""
    skipped = answer.thinking_tokens if view.separate_reasoning else 0
    return answer.text[_char(answer, skipped) : _char(answer, tokens)] if tokens > skipped else ""


def usage(answer: Answer, view: View, seq: Sequence, tokens: int, *, chat: bool = True) -> dict[str, Any]:
    """The usage object after `tokens` output tokens."""
    reasoning = min(tokens, answer.thinking_tokens) if view.separate_reasoning else 0
    prompt = len(seq.prompt_ids)
    counts: dict[str, Any] = {
        "prompt_tokens": prompt,
        "total_tokens": prompt + tokens,
        "completion_tokens": tokens,
        "prompt_tokens_details": {"cached_tokens": seq.cached_tokens} if view.report_cached else None,
        "reasoning_tokens": reasoning,
    }
    if chat:
        counts["completion_tokens_details"] = {"reasoning_tokens": reasoning} if reasoning else None
    return counts


def finish_reason(answer: Answer, seq: Sequence) -> tuple[str, int | str | None]:
    """Why the output ended, and the stop token or string that did it."""
    return ("abort", None) if seq.end == "abort" else (answer.finish_reason, answer.matched_stop)


def spec_details(seq: Sequence, proposed_per_step: int) -> dict[str, Any]:
    """The per-request account of speculation; empty if the request did no verify step."""
    if not seq.verify_steps:
        return {}
    correct, proposed = seq.correct_drafts, seq.verify_steps * proposed_per_step
    return {
        "spec_accept_rate": correct / proposed,
        "spec_accept_length": seq.generated / seq.verify_steps,
        "spec_cap_length": 0.0,
        "spec_block_accept_length": 0.0,
        "spec_num_correct_drafts": correct,
        "spec_num_proposed_drafts": proposed,
        "spec_verify_ct": seq.verify_steps,
        "spec_correct_drafts_histogram": seq.accepts,
        "spec_cap_lens_histogram": [],
    }


def extensions(view: View, seq: Sequence) -> dict[str, Any]:
    """The `sglext` object, of what the request asked for and the server has."""
    found: dict[str, Any] = {}
    if view.cached_details:
        found["cached_tokens_details"] = {"device": seq.cached_tokens, "host": 0}
    if view.spec_details and (details := spec_details(seq, view.proposed_per_step)):
        found["spec_tokens_details"] = details
    return found


class ChatEncoder:
    """Events of a chat completion: role, text chunks, finish, [sglext], [usage], [DONE]."""

    def __init__(self, answer: Answer, view: View, seq: Sequence) -> None:
        self._answer, self._view, self._seq = answer, view, seq
        self._thinking = answer.thinking_tokens if view.separate_reasoning else 0
        self._counts: tuple[int, str] | None = None
        self._head = _head(view, "chat.completion.chunk")
        self._reasoning = self._head + '"choices":[{"index":0,"delta":{"reasoning_content":'
        self._content = self._reasoning + 'null,"content":'
        self._tail = '},"logprobs":null,"finish_reason":null,"matched_stop":null}]'

    def first(self, stop: int) -> bytes:
        role = f'{self._reasoning}null,"role":"assistant","content":""{self._tail}}}\n\n'
        return role.encode() + self.step(0, stop)

    def step(self, start: int, stop: int) -> bytes:
        answer, thinking = self._answer, self._thinking
        end = f"{self._tail}{self._usage(stop)}}}\n\n"
        text = ""
        if start < thinking:
            if self._view.stream_reasoning:
                text = answer.text[_char(answer, start) : _char(answer, min(stop, thinking - 1))]
            elif stop >= thinking or self._seq.end is not None:
                text = answer.text[: _char(answer, min(stop, thinking - 1))]
            if text:
                text = f"{self._reasoning}{_quote(text)}{end}"
            if stop <= thinking:
                return text.encode()
            start = thinking
        shown = answer.text[_char(answer, start) : _char(answer, stop)]
        if shown:
            text += f"{self._content}{_quote(shown)}{end}"
        return text.encode()

    def last(self, start: int, stop: int) -> bytes:
        reason, matched = finish_reason(self._answer, self._seq)
        delta = f'{self._reasoning}null}},"logprobs":null,"finish_reason":"{reason}","matched_stop":'
        parts = [self.step(start, stop), f"{delta}{json.dumps(matched)}}}]}}\n\n".encode()]
        if found := extensions(self._view, self._seq):
            parts.append(
                f'{self._head}"choices":[],"usage":null,"sglext":{json.dumps(found, separators=_COMPACT)}}}\n\n'.encode()
            )
        if self._view.include_usage:
            total = json.dumps(usage(self._answer, self._view, self._seq, stop), separators=_COMPACT)
            parts.append(f'{self._head}"choices":[],"usage":{total}}}\n\n'.encode())
        parts.append(DONE)
        return b"".join(parts)

    def _usage(self, tokens: int) -> str:
        if not self._view.continuous_usage:
            return ""
        prompt, cached = self._counts or self._count()
        thought = min(tokens, self._thinking)
        details = f'{{"reasoning_tokens":{thought}}}' if thought else "null"
        return (
            f',"usage":{{"prompt_tokens":{prompt},"total_tokens":{prompt + tokens},"completion_tokens":{tokens},'
            f'"prompt_tokens_details":{cached},"reasoning_tokens":{thought},"completion_tokens_details":{details}}}'
        )

    def _count(self) -> tuple[int, str]:
        # Not before the first event: until it is admitted nobody knows what of the prompt is cached.
        cached = f'{{"cached_tokens":{self._seq.cached_tokens}}}' if self._view.report_cached else "null"
        self._counts = len(self._seq.prompt_ids), cached
        return self._counts


class CompletionEncoder:
    """Events of a text completion: the finish reason rides on the last text chunk."""

    def __init__(self, answer: Answer, view: View, seq: Sequence) -> None:
        self._answer, self._view, self._seq = answer, view, seq
        self._head = _head(view, "text_completion")

    def first(self, stop: int) -> bytes:
        return self.step(0, stop)

    def step(self, start: int, stop: int) -> bytes:
        return self._chunk(start, stop, None, None)

    def last(self, start: int, stop: int) -> bytes:
        parts = [self._chunk(start, stop, *finish_reason(self._answer, self._seq))]
        if self._view.include_usage:
            total = dumps(usage(self._answer, self._view, self._seq, stop, chat=False))
            parts.append(f'{self._head}"choices":[],"usage":'.encode() + total + b"}\n\n")
        parts.append(DONE)
        return b"".join(parts)

    def _chunk(self, start: int, stop: int, reason: str | None, matched: int | str | None) -> bytes:
        text = self._answer.text[_char(self._answer, start) : _char(self._answer, stop)]
        count = None
        if self._view.continuous_usage:
            count = usage(self._answer, self._view, self._seq, stop, chat=False)
        choice = {
            "index": 0,
            "text": text,
            "logprobs": None,
            "finish_reason": reason,
            "matched_stop": matched,
        }
        return f'{self._head}"choices":['.encode() + dumps(choice) + b'],"usage":' + dumps(count) + b"}\n\n"


def _head(view: View, kind: str) -> str:
    # ASCII escapes keep a hostile rid or model name from breaking the encoding of the stream.
    rid, model = json.dumps(view.rid), json.dumps(view.model)
    return f'data: {{"id":{rid},"object":"{kind}","created":{view.created},"model":{model},'


def _char(answer: Answer, tokens: int) -> int:
    """Characters shown of the first `tokens` tokens."""
    if not tokens:
        return 0
    return min(answer.ends[tokens - 1], answer.visible)
