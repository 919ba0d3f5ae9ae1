"""Timelines made by hand, as records, rows and figures: for the tests of the arithmetic."""

from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from loadgen.metrics import Window, summarize
from loadgen.records import ChunkKind, Outcome, Phase, RequestRecord, TokenSource
from loadgen.tables import RequestContext, requests_table

S = 1_000_000_000
MS = 1_000_000
SENT = 100 * S  # moments of the tests are seconds after this


def at(seconds: float) -> int:
    return SENT + round(seconds * S)


def window(start_s: float, end_s: float, time_scale: float = 1.0) -> Window:
    return Window(at(start_s), at(end_s), time_scale)


def table(records: Iterable[RequestRecord], time_scale: float = 1.0) -> pa.Table:
    return requests_table(records, RequestContext("c", 0, "p", "s", "w", time_scale))


def summary(records: Iterable[RequestRecord], span: Window, **more: Any) -> dict[str, Any]:
    return summarize(table(records, span.time_scale), span, **more)


def made(
    sent_s: float,
    chunks: dict[float, int],
    *,
    done_s: float | None = None,
    outcome: Outcome = Outcome.OK,
    phase: Phase = Phase.MEASURE,
    **fields: Any,
) -> RequestRecord:
    """A record with chunks at given seconds, each with the running token count after it."""
    moments = [at(seconds) for seconds in chunks]
    values: dict[str, Any] = {
        "scheduled_ns": at(sent_s),
        "sent_ns": at(sent_s),
        "first_token_ns": moments[0] if moments else None,
        "first_answer_ns": moments[0] if moments else None,
        "last_token_ns": moments[-1] if moments else None,
        "done_ns": at(done_s if done_s is not None else max(chunks, default=sent_s)),
        "output_tokens": max(chunks.values(), default=None),
        "first_chunk_ns": moments[0] if moments else None,
        "first_choice_ns": moments[0] if moments else None,
        "last_choice_ns": moments[-1] if moments else None,
        "choice_events": len(moments),
        "last_event_ns": moments[-1] if moments else None,
        "chunk_ns": moments,
        "chunk_tokens": list(chunks.values()) or None,
        "chunk_kind": [ChunkKind.ANSWER] * len(chunks),
        "token_source": TokenSource.CONTINUOUS_USAGE if chunks else None,
        **fields,
    }
    return RequestRecord(**{"index": 0, "max_tokens": 32, "phase": phase, "outcome": outcome, **values})


def golden(**changes: Any) -> RequestRecord:
    """The stream that every definition is worked out on by hand.

    Planned -0.50 s, sent 0; a role-only event at 0.10; reasoning chunks at 1.00 and 1.10, answer chunks at 1.20 and
    1.30, each of 4 tokens (N = 16); the finish in its own event at 1.30; usage and [DONE] at 1.32; max_tokens 32.
    """
    values: dict[str, Any] = {
        "scheduled_ns": at(-0.5),
        "first_chunk_ns": at(0.10),
        "first_choice_ns": at(0.10),
        "last_choice_ns": at(1.30),
        "choice_events": 6,
        "first_answer_ns": at(1.20),
        "last_event_ns": at(1.32),
        "chunk_kind": [ChunkKind.REASONING] * 2 + [ChunkKind.ANSWER] * 2,
        "spec_verify_steps": 4,
        "prompt_tokens": 7,
        **changes,
    }
    return made(0, {1.00: 4, 1.10: 8, 1.20: 12, 1.30: 16}, done_s=1.32, **values)
