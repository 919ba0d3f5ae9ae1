"""The OpenAI-style chat JSON, as SGLang 0.5.x, llama.cpp and vLLM speak it: request body out, finished exchange in.

A request is a success only if it had status 200, no error object, text, and a finish_reason that is no abort.
HTTP 200 alone means nothing: SGLang answers a full queue with 200 and an error event. Usage is taken wherever it
appears; a running usage on the chunks (`stream_options.continuous_usage_stats`) gives exact counts per chunk.
"""

import json
from dataclasses import dataclass
from typing import Any

from loadgen.records import ChunkKind, Outcome, RequestRecord, TokenSource
from loadgen.sse import EventParser
from loadgen.transport.exchange import READ, Exchange, blocks

_MAX_ERROR_CHARS = 300
_MAX_COUNT = 2**31 - 1  # the tables' integers; more tokens than that are no count
_REASONING_FIELDS = ("reasoning_content", "reasoning")  # SGLang's name first; vLLM's


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """Everything of a chat request but its message."""

    model: str
    max_tokens: int
    temperature: float
    ignore_eos: bool = False
    thinking: bool | None = None


def chat_body(options: ChatOptions, message: str) -> bytes:
    """The JSON body of a streaming chat request with one user message."""
    body: dict[str, Any] = {
        "model": options.model,
        "messages": [{"role": "user", "content": message}],
        "max_tokens": options.max_tokens,
        "temperature": options.temperature,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "return_spec_tokens_details": True,
    }
    if options.ignore_eos:
        body["ignore_eos"] = True
    if options.thinking is not None:
        body["chat_template_kwargs"] = {"thinking": options.thinking, "enable_thinking": options.thinking}
    return json.dumps(body, ensure_ascii=False).encode()


def decode(exchange: Exchange, record: RequestRecord) -> None:
    """Fills `record` with what the finished exchange says. Never raises on what a server sent."""
    record.sent_ns = exchange.sent_ns
    record.headers_ns = exchange.headers_ns
    record.done_ns = exchange.done_ns
    record.http_status = exchange.status
    record.resends = exchange.resends
    record.blocks = len(exchange.reads) // READ.size
    record.response_bytes = len(exchange.body)
    stream = _Stream(record)
    if exchange.status == 200:
        for at_ns, data in _events(exchange):
            stream.take(data, at_ns)
    stream.finish()
    record.outcome = _outcome(exchange, stream)
    problem = stream.error or _http_problem(exchange) or exchange.error or ""
    record.error = _whole_text(problem)[:_MAX_ERROR_CHARS] or None


def _events(exchange: Exchange) -> list[tuple[int, bytes]]:
    parser = EventParser()
    return [(at_ns, data) for at_ns, block in blocks(exchange) for data in parser.feed(block)]


class _Stream:
    """The state of one stream while its events are read in order."""

    def __init__(self, record: RequestRecord) -> None:
        self.record = record
        self.error: str | None = None
        self.error_code = ""
        self.is_malformed = False
        self.is_aborted = False
        self.has_error = False
        self.has_events = False
        self._counts: list[int | None] = []
        self._texts: dict[ChunkKind, list[str]] = {ChunkKind.REASONING: [], ChunkKind.ANSWER: []}
        self._has_usage = False

    def take(self, data: bytes, at_ns: int) -> None:
        self.has_events = True
        if data == b"[DONE]":
            return
        event = read_json(data)
        if not isinstance(event, dict):
            self.is_malformed, self.error = True, self.error or f"not a JSON object: {data[:100]!r}"
            return
        record = self.record
        record.first_chunk_ns = record.first_chunk_ns or at_ns
        if error := event.get("error") or (event.get("object") == "error" and event):
            self._take_error(error, data)
        count = self._take_usage(event.get("usage"))
        self._take_spec(event)
        for choice in _objects(event.get("choices")):
            self._take_choice(choice, count, at_ns)

    def finish(self) -> None:
        record = self.record
        record.reasoning = _whole_text("".join(self._texts[ChunkKind.REASONING]))
        record.content = _whole_text("".join(self._texts[ChunkKind.ANSWER]))
        counts = [count for count in self._counts if count is not None]
        if counts and len(counts) == len(self._counts) and counts == sorted(counts):
            record.chunk_tokens = counts
            record.token_source = TokenSource.CONTINUOUS_USAGE
        elif self._has_usage:
            record.token_source = TokenSource.USAGE

    def _take_error(self, error: Any, data: bytes) -> None:
        code = error.get("code") if isinstance(error, dict) else None
        self.error_code = str(code) if isinstance(code, int | str) else ""
        self.has_error, self.error = True, error_message(data)

    def _take_usage(self, usage: Any) -> int | None:
        if not isinstance(usage, dict):
            return None
        record = self.record
        self._has_usage = True
        prompt_details = usage.get("prompt_tokens_details")
        output_details = usage.get("completion_tokens_details")
        record.prompt_tokens = _count(usage, "prompt_tokens", record.prompt_tokens)
        record.output_tokens = _count(usage, "completion_tokens", record.output_tokens)
        record.cached_tokens = _count(prompt_details, "cached_tokens", record.cached_tokens)
        record.reasoning_tokens = _count(usage, "reasoning_tokens", record.reasoning_tokens)
        record.reasoning_tokens = _count(output_details, "reasoning_tokens", record.reasoning_tokens)
        return _count(usage, "completion_tokens", None)

    def _take_spec(self, event: dict[str, Any]) -> None:
        extension = event.get("sglext")
        details = extension.get("spec_tokens_details") if isinstance(extension, dict) else None
        if isinstance(details, dict):
            self.record.spec_verify_steps = _count(details, "spec_verify_ct", None)
            self.record.spec_accept_length = _ratio(details.get("spec_accept_length"))

    def _take_choice(self, choice: dict[str, Any], count: int | None, at_ns: int) -> None:
        delta = choice.get("delta")
        if isinstance(delta, dict):
            reasoning = next(
                (text for name in _REASONING_FIELDS if isinstance(text := delta.get(name), str) and text), ""
            )
            content = delta.get("content")
            if reasoning:
                self._add(ChunkKind.REASONING, reasoning, count, at_ns)
            if isinstance(content, str) and content:
                self._add(ChunkKind.ANSWER, content, count, at_ns)
        reason = choice.get("finish_reason")
        if isinstance(reason, str):
            self.record.finish_reason = _whole_text(reason)
            self.is_aborted = reason == "abort"

    def _add(self, kind: ChunkKind, text: str, count: int | None, at_ns: int) -> None:
        record = self.record
        self._texts[kind].append(text)
        record.chunk_ns.append(at_ns)
        record.chunk_kind.append(kind)
        self._counts.append(count)
        record.first_token_ns = record.first_token_ns or at_ns
        record.last_token_ns = at_ns
        if kind is ChunkKind.ANSWER:
            record.first_answer_ns = record.first_answer_ns or at_ns


def _outcome(exchange: Exchange, stream: _Stream) -> Outcome:
    # What the server said tells more than how the connection ended afterwards.
    if exchange.status not in (None, 200):
        return Outcome.REJECTED if exchange.status in (429, 503) else Outcome.HTTP_ERROR
    if stream.has_error:
        return Outcome.REJECTED if stream.error_code in ("429", "503") else Outcome.IN_STREAM_ERROR
    if exchange.failure is not None:
        return exchange.failure
    if exchange.body and not stream.has_events:
        stream.error = f"not an event stream: {bytes(exchange.body[:100])!r}"
        return Outcome.MALFORMED
    if stream.is_malformed:
        return Outcome.MALFORMED
    if stream.is_aborted:
        stream.error = "the server aborted the request"
        return Outcome.IN_STREAM_ERROR
    if not stream.record.chunk_ns:
        return Outcome.EMPTY_STREAM
    if stream.record.finish_reason is None:
        return Outcome.TRUNCATED_STREAM
    return Outcome.OK


def _http_problem(exchange: Exchange) -> str | None:
    if exchange.status is None or exchange.status == 200:
        return None
    body = bytes(exchange.body)
    return error_message(body) or f"HTTP {exchange.status}"


def error_message(body: bytes) -> str:
    """The message of an error body, in the shapes {"message"}, {"error": {"message"}} and {"detail"}; else its text."""
    text = body.decode(errors="replace").strip()
    value = read_json(body)
    if isinstance(value, dict):
        inner = value.get("error")
        said = (
            inner.get("message") if isinstance(inner, dict) else inner,
            value.get("message"),
            value.get("detail"),
        )
        text = next((words for words in said if isinstance(words, str) and words), text)
    return text[:_MAX_ERROR_CHARS]


def _objects(value: Any) -> list[dict[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def _count(holder: Any, name: str, default: int | None) -> int | None:
    value = holder.get(name) if isinstance(holder, dict) else None
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_COUNT
    return value if is_count else default


def _ratio(value: Any) -> float | None:
    is_ratio = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= _MAX_COUNT
    return float(value) if is_ratio else None


def _whole_text(text: str) -> str:
    """`text` with split surrogate pairs joined and lone halves replaced: JSON can carry them, no file can."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def read_json(body: bytes) -> Any:
    """The JSON value of what a server sent; None if it is none. Nesting too deep for the parser is no value either."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None
