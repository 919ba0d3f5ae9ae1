"""A finished exchange -> its record: what the answer was, when each part of it came, and how it ended.

A request is a success only if it had status 200, no error object, text, a finish_reason that is no abort, and the
end marks that its server sends. HTTP 200 alone means nothing: SGLang answers a full queue with 200 and an error
event. A running usage on the chunks (`stream_options.continuous_usage_stats`) gives exact counts per chunk.
"""

from dataclasses import dataclass

import numpy as np

from loadgen.decode.arrivals import EventArrivals, event_arrivals, lags_ns, reads_of, stamp_source
from loadgen.decode.body import Payload, payload
from loadgen.decode.chat_stream import read_stream
from loadgen.decode.sse import split_events
from loadgen.decode.stream_facts import StreamFacts
from loadgen.received_json import MAX_COUNT, error_message, whole_text
from loadgen.records import ChunkKind, Outcome, Phase, RequestRecord, TokenSource
from loadgen.transport.exchange import ClockOffsets, Exchange, Reads

_MAX_ERROR_CHARS = 300
# How the connection ended says nothing about an answer that was whole by then.
_ENDS_AFTER_THE_ANSWER = (
    Outcome.IDLE_TIMEOUT,
    Outcome.TOTAL_TIMEOUT,
    Outcome.TRUNCATED_STREAM,
    Outcome.RESET,
    Outcome.CUT,
)
# Without an event, a body that begins like this was cut short; any other is no event stream.
_BEGINS_OF_EVENTS = (b":", b"data", b"event:", b"id:", b"retry:")


@dataclass(frozen=True, slots=True)
class EndMarks:
    """What a server sends when an answer is whole: a finish_reason, `[DONE]`, or both."""

    finish_reason: bool = True
    done: bool = False

    def are_in(self, facts: StreamFacts) -> bool:
        has_reason = facts.finish_reason is not None or not self.finish_reason
        return has_reason and (facts.is_done or not self.done)


_FINISH_REASON = EndMarks()


def learn_end_marks(exchange: Exchange, offsets: ClockOffsets | None = None) -> EndMarks | None:
    """The end marks of the server that answered this probe; None when the answer was not whole, and teaches nothing."""
    record = RequestRecord(exchange.index, Phase.WARMUP, exchange.scheduled_ns, 0)
    facts = _decode(exchange, record, offsets, EndMarks(finish_reason=False))
    if record.outcome is not Outcome.OK or exchange.failure is not None:
        return None
    return EndMarks(finish_reason=facts.finish_reason is not None, done=facts.is_done)


def decode(
    exchange: Exchange,
    record: RequestRecord,
    offsets: ClockOffsets | None = None,
    marks: EndMarks = _FINISH_REASON,
) -> None:
    """Fills `record` with what the finished exchange says. Never raises on what a server sent.

    Arrivals are the kernel's stamps where there are some and `offsets` knows the clocks; else our own.
    An answer that was whole when its connection failed is ok; it ended with its last byte, and `error` keeps the rest.
    """
    _decode(exchange, record, offsets, marks)


def events_of(exchange: Exchange, offsets: ClockOffsets | None = None) -> list[tuple[int, bytes]]:
    """Arrival (monotonic ns) and data of each event of a finished exchange."""
    reads = reads_of(exchange, offsets)
    body = payload(
        bytes(exchange.body), reads.end, is_chunked=exchange.is_chunked, encoding=exchange.content_encoding
    )
    datas, ends = split_events(body.data)
    return (
        list(zip(event_arrivals(ends, body.read_ends, reads).at_ns.tolist(), datas, strict=True))
        if ends
        else []
    )


def _decode(
    exchange: Exchange, record: RequestRecord, offsets: ClockOffsets | None, marks: EndMarks
) -> StreamFacts:
    reads = reads_of(exchange, offsets)
    body = payload(
        bytes(exchange.body), reads.end, is_chunked=exchange.is_chunked, encoding=exchange.content_encoding
    )
    datas, ends = split_events(body.data)
    facts = read_stream(datas) if exchange.status == 200 else StreamFacts()
    _take_moments(record, exchange, reads)
    if ends and exchange.status == 200:
        _take_arrivals(record, facts, event_arrivals(ends, body.read_ends, reads))
    _take_answer(record, facts)
    record.outcome, problem = _judge(exchange, body, facts, marks, datas)
    if record.outcome is Outcome.OK and exchange.failure is not None:
        record.done_ns = int(reads.arrival_ns[-1])
    record.error = whole_text(problem or exchange.error or "")[:_MAX_ERROR_CHARS] or None
    return facts


def _take_moments(record: RequestRecord, exchange: Exchange, reads: Reads) -> None:
    record.sent_ns = exchange.sent_ns
    record.connected_ns = exchange.connected_ns
    record.written_ns = exchange.written_ns
    record.headers_ns = exchange.headers_ns
    record.done_ns = exchange.done_ns
    record.http_status = exchange.status
    record.resends = exchange.resends
    record.blocks = len(reads.end)
    record.response_bytes = len(exchange.body)
    record.stamp_source = stamp_source(reads)
    lags = lags_ns(reads)
    if lags.size:
        record.client_lag_max_ns = int(lags.max())
        record.read_lag_us = np.minimum((lags + 500) // 1000, MAX_COUNT).tolist()


def _take_arrivals(record: RequestRecord, facts: StreamFacts, arrivals: EventArrivals) -> None:
    at_ns = arrivals.at_ns.tolist()
    chunks = np.array(facts.chunk_events, np.int64)
    record.chunk_ns = arrivals.at_ns[chunks].tolist()
    record.shared_events = int(arrivals.is_shared[chunks].sum())
    record.last_event_ns = at_ns[-1]
    record.choice_events = facts.choice_events
    for name, event in (
        ("first_chunk_ns", facts.first_event),
        ("first_choice_ns", facts.first_choice),
        ("last_choice_ns", facts.last_choice),
    ):
        setattr(record, name, None if event is None else at_ns[event])
    if record.chunk_ns:
        record.first_token_ns, record.last_token_ns = record.chunk_ns[0], record.chunk_ns[-1]
    answers = (
        at
        for at, kind in zip(record.chunk_ns, facts.chunk_kinds, strict=True)
        if kind is not ChunkKind.REASONING
    )
    record.first_answer_ns = next(answers, None)


def _take_answer(record: RequestRecord, facts: StreamFacts) -> None:
    record.chunk_kind = facts.chunk_kinds
    record.reasoning = facts.reasoning_text
    record.content = facts.answer_text
    record.finish_reason = facts.finish_reason
    for name, value in facts.usage.items():
        setattr(record, name, value)
    record.spec_verify_steps = facts.verify_steps
    record.spec_accept_length = facts.accept_length
    record.accept_source = facts.accept_source
    counts = _trusted_counts(facts.chunk_counts, record.output_tokens)
    if counts is not None:
        record.chunk_tokens = counts
        record.token_source = TokenSource.CONTINUOUS_USAGE
    elif facts.usage:
        record.token_source = TokenSource.USAGE


def _trusted_counts(counts: list[int | None], total: int | None) -> list[int] | None:
    """The running counts where they can be: on every chunk, never falling, growing, and not above the total."""
    known = [count for count in counts if count is not None]
    if not known or len(known) != len(counts) or known != sorted(known) or total is None:
        return None
    # some proxies repeat one number on every chunk
    is_constant = len(known) > 2 and known[0] == known[-1]
    return None if is_constant or not 0 < known[-1] <= total else known


def _judge(
    exchange: Exchange, body: Payload, facts: StreamFacts, marks: EndMarks, datas: list[bytes]
) -> tuple[Outcome, str | None]:
    """The outcome, and the words for it. What the server said tells more than how the connection ended afterwards."""
    if exchange.status not in (None, 200):
        refused = exchange.status in (429, 503)
        return (Outcome.REJECTED if refused else Outcome.HTTP_ERROR), _http_problem(exchange, body, datas)
    if facts.has_error:
        return (Outcome.REJECTED if facts.is_refusal else Outcome.IN_STREAM_ERROR), facts.error
    if facts.is_aborted:
        return Outcome.IN_STREAM_ERROR, "the server aborted the request"
    is_sound = not facts.is_malformed and body.damage is not Outcome.MALFORMED
    is_whole = is_sound and facts.chunk_events and marks.are_in(facts)
    if is_whole and (exchange.failure is None or exchange.failure in _ENDS_AFTER_THE_ANSWER):
        return Outcome.OK, body.error
    if exchange.failure is not None:
        return exchange.failure, exchange.error or facts.error
    if body.damage is Outcome.MALFORMED:
        return body.damage, body.error
    if not datas:
        return _without_events(body)
    if facts.is_malformed:
        return Outcome.MALFORMED, facts.error
    if facts.chunk_events or body.damage:
        return Outcome.TRUNCATED_STREAM, body.error
    return Outcome.EMPTY_STREAM, None


def _without_events(body: Payload) -> tuple[Outcome, str | None]:
    data = body.data
    if not data or data.startswith(b":"):
        return body.damage or Outcome.EMPTY_STREAM, body.error
    if data.startswith(_BEGINS_OF_EVENTS) or any(begin.startswith(data) for begin in _BEGINS_OF_EVENTS):
        return Outcome.TRUNCATED_STREAM, body.error
    said = read_stream([data])
    if said.has_error:
        return (Outcome.REJECTED if said.is_refusal else Outcome.IN_STREAM_ERROR), said.error
    return Outcome.MALFORMED, f"not an event stream: {data[:100]!r}"


def _http_problem(exchange: Exchange, body: Payload, datas: list[bytes]) -> str:
    return error_message(datas[0] if datas else body.data) or f"HTTP {exchange.status}"
