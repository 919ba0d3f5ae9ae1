"""What one request leaves behind: plain integers and strings, no I/O.

A request's failure is a value here (`Outcome`); an exception always means that the harness failed.
"""

from dataclasses import dataclass, field
from enum import StrEnum


class Outcome(StrEnum):
    """How a request ended. Every request that was sent has exactly one."""

    OK = "ok"
    CONNECT_ERROR = "connect_error"
    TIMEOUT_FIRST_BYTE = "timeout_first_byte"
    IDLE_TIMEOUT = "idle_timeout"
    TOTAL_TIMEOUT = "total_timeout"
    HTTP_ERROR = "http_error"
    REJECTED = "rejected"  # 429 or 503, as a status or as an error inside a 200 stream
    IN_STREAM_ERROR = "in_stream_error"
    TRUNCATED_STREAM = "truncated_stream"
    EMPTY_STREAM = "empty_stream"
    MALFORMED = "malformed"
    RESET = "reset"
    CLIENT_LOST = "client_lost"
    CUT = "cut"  # still running when the cell's time was over, and ended by us


class Phase(StrEnum):
    """The part of a cell in which a request was sent."""

    WARMUP = "warmup"
    MEASURE = "measure"
    DRAIN = "drain"


def phase_of(sent_ns: int | None, window_start_ns: int, window_end_ns: int) -> Phase:
    """The phase of a request by its time of sending; one that was never sent belongs to the warm-up."""
    if sent_ns is None or sent_ns < window_start_ns:
        return Phase.WARMUP
    return Phase.MEASURE if sent_ns <= window_end_ns else Phase.DRAIN


class ChunkKind(StrEnum):
    """Which part of a thinking model's output a chunk belongs to."""

    REASONING = "reasoning"
    ANSWER = "answer"
    BOTH = "both"  # one event with text of each; how its tokens divide is unknown


class TokenSource(StrEnum):
    """Where the token counts of a request come from. Unknown counts are null, never guessed."""

    CONTINUOUS_USAGE = "continuous_usage"  # a running count on every chunk, and the total
    USAGE = "usage"  # the total only; tokens per chunk are unknown


class StampSource(StrEnum):
    """Whose clock stamped a request's reads."""

    KERNEL = "kernel"  # when the bytes came
    USER = "user"  # when we read them
    MIXED = "mixed"


class AcceptSource(StrEnum):
    """Where the speculation figures of a request come from."""

    SPEC_TOKENS_DETAILS = "spec_tokens_details"  # SGLang's extension of a chat stream
    META_INFO = "meta_info"  # SGLang's /generate


@dataclass(slots=True)
class RequestRecord:
    """One request, as the worker saw it. Times are monotonic ns of the worker's host; None: did not happen.

    `chunk_ns`, `chunk_tokens` and `chunk_kind` are parallel: arrival, running token count after the chunk
    (None where the server gives no running count), and kind. `read_lag_us` has one value for each read that has a
    kernel stamp: how much later ours was.
    """

    index: int
    phase: Phase
    scheduled_ns: int
    max_tokens: int
    target_prompt_tokens: int | None = None
    problem: str | None = None
    sent_ns: int | None = None
    connected_ns: int | None = None
    written_ns: int | None = None
    headers_ns: int | None = None
    first_chunk_ns: int | None = None
    first_token_ns: int | None = None
    first_answer_ns: int | None = None
    last_token_ns: int | None = None
    first_choice_ns: int | None = None
    last_choice_ns: int | None = None
    last_event_ns: int | None = None
    done_ns: int | None = None
    outcome: Outcome | None = None
    http_status: int | None = None
    error: str | None = None
    finish_reason: str | None = None
    token_source: TokenSource | None = None
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None
    spec_verify_steps: int | None = None
    spec_accept_length: float | None = None
    accept_source: AcceptSource | None = None
    response_bytes: int = 0
    blocks: int = 0
    resends: int = 0
    choice_events: int = 0
    shared_events: int = 0
    stamp_source: StampSource | None = None
    client_lag_max_ns: int | None = None
    read_lag_us: list[int] | None = None
    chunk_ns: list[int] = field(default_factory=list)
    chunk_tokens: list[int] | None = None
    chunk_kind: list[ChunkKind] = field(default_factory=list)
    reasoning: str = ""
    content: str = ""
