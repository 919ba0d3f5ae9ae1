"""How a server answers, learnt from one small untimed stream before its first cell: end marks, token counts, details.

Without it a stream that was cut behind its finish_reason would count as whole, or one of a server that sends none as
cut short. What the probe cannot teach is left at its default, and said.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cluster.screen import harmless
from loadgen.chat_request import ChatOptions, chat_body
from loadgen.decode.record import EndMarks, decode, learn_end_marks
from loadgen.records import Outcome, Phase, RequestRecord
from loadgen.transport.exchange import Exchange, TimeLimits
from loadgen.transport.pick import Transport, make_transport

_S = 1_000_000_000
_LIMITS = TimeLimits(first_byte_ns=120 * _S, idle_ns=30 * _S, total_ns=180 * _S)
# Long enough for several chunks, so that a running count can be told from one number repeated.
_QUESTION = "Count from one to twenty in words."
_MAX_TOKENS = 32
NO_COUNTS = "none"


@dataclass(frozen=True, slots=True)
class ServerForm:
    """What a probe taught; all None when it did not end well, and `problem` says why."""

    end_marks: EndMarks | None = None
    token_counts: str | None = None
    has_spec_details: bool | None = None
    problem: str | None = None

    @property
    def columns(self) -> dict[str, Any]:
        """Its columns of `servers`."""
        return {
            "end_marks": None if self.end_marks is None else _words(self.end_marks),
            "token_counts": self.token_counts,
            "spec_details": self.has_spec_details,
        }

    @property
    def sentence(self) -> str:
        """For the journal."""
        if self.end_marks is None:
            return f"the probe did not end well ({self.problem}): a finish_reason is taken as the end of an answer"
        details = "with" if self.has_spec_details else "without"
        return (
            f"streams end with {_words(self.end_marks)}; token counts: {self.token_counts}; {details} details of "
            "speculative decoding"
        )


async def learn_form(urls: Sequence[str], model: str, api_key: str | None, transport: str) -> ServerForm:
    """The form of a server, or what several have in common. Never raises on what a server does."""
    body = chat_body(ChatOptions(model, _MAX_TOKENS, 0.0), _QUESTION)
    return _common([_form(await _exchange(url, body, api_key, transport)) for url in urls])


async def _exchange(url: str, body: bytes, api_key: str | None, kind: str) -> Exchange:
    """One request, in a thread; a cancellation ends it at once."""
    exchange = Exchange()

    def ended(_: Exchange) -> None:
        transport.stop()

    transport: Transport = await asyncio.to_thread(
        make_transport, kind, [url], _LIMITS, ended, api_key=api_key
    )
    transport.wake(lambda: transport.send(exchange, (body,)))
    running = asyncio.create_task(asyncio.to_thread(transport.run))
    try:
        await asyncio.shield(running)
    finally:
        if not running.done():
            transport.wake(transport.stop)
            await asyncio.gather(running, return_exceptions=True)
        await asyncio.to_thread(transport.close)  # aiohttp's has a loop of its own, which must not meet ours
    return exchange


def _form(exchange: Exchange) -> ServerForm:
    marks = learn_end_marks(exchange)
    record = RequestRecord(exchange.index, Phase.WARMUP, exchange.scheduled_ns, _MAX_TOKENS)
    decode(exchange, record, marks=marks or EndMarks())
    if marks is None or record.outcome is not Outcome.OK:
        said = f"{record.outcome}{f': {record.error}' if record.error else ''}"
        return ServerForm(problem=harmless(said))
    counts = str(record.token_source) if record.token_source else NO_COUNTS
    return ServerForm(marks, counts, record.accept_source is not None)


def _common(forms: Sequence[ServerForm]) -> ServerForm:
    if failed := [form for form in forms if form.end_marks is None]:
        return failed[0]
    marks = [form.end_marks for form in forms if form.end_marks is not None]
    shared = EndMarks(all(mark.finish_reason for mark in marks), all(mark.done for mark in marks))
    order = (NO_COUNTS, "usage", "continuous_usage")
    counts = min((form.token_counts or NO_COUNTS for form in forms), key=order.index)
    return ServerForm(shared, counts, all(form.has_spec_details for form in forms))


def _words(marks: EndMarks) -> str:
    named = ["finish_reason"] * marks.finish_reason + ["[DONE]"] * marks.done
    return ", ".join(named) or "neither finish_reason nor [DONE]"
