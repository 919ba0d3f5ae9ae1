"""The healthy stream of one request as a list of server-sent events, which scenarios cut, edit and spoil. No I/O."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from loadgen.sim import wire
from loadgen.sim.answers import Answer
from loadgen.sim.scheduler import Sequence
from loadgen.sim.wire import Encoder, View

_DATA = b"data: "
_END = b"\n\n"


class Kind(StrEnum):
    """What an event carries. A completion's finish carries its last text too."""

    ROLE = "role"
    TEXT = "text"
    FINISH = "finish"
    USAGE = "usage"
    OTHER = "other"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Event:
    """The bytes of one event, and the output tokens told by it and all before it."""

    kind: Kind
    data: bytes
    tokens: int


@dataclass(frozen=True, slots=True)
class Asked:
    """One request as understood: its answer, what of it the client wants to see, and the encoder of its route."""

    answer: Answer
    view: View
    prompt_ids: list[int]
    encoder: Callable[[Answer, View, Sequence], Encoder]

    def events(self, stops: Iterable[int]) -> list[Event]:
        """The whole stream, with a text event up to each of the token counts `stops`; the rest comes in the last."""
        answer = self.answer
        seq = Sequence(self.view.rid, self.prompt_ids, answer.ids, answer.total_tokens, arrival_s=0.0, seed=0)
        encoder = self.encoder(answer, self.view, seq)
        events: list[Event] = []
        sent = 0
        for stop in (*(s for s in stops if s < answer.total_tokens), answer.total_tokens):
            seq.generated = stop
            if not sent:
                events += _cut(encoder.first(stop), stop)
            elif stop < answer.total_tokens:
                events += _cut(encoder.step(sent, stop), stop)
            if stop == answer.total_tokens:
                seq.end = "done"
                events += _cut(encoder.last(sent or stop, stop), stop)
            sent = stop
        return events

    def paced(self, step_tokens: int) -> list[Event]:
        """The whole stream, `step_tokens` tokens an event."""
        return self.events(range(step_tokens, self.answer.total_tokens, step_tokens))

    def seen(self, **changes: Any) -> "Asked":
        """The same with another view."""
        return replace(self, view=replace(self.view, **changes))

    def answered(self, **changes: Any) -> "Asked":
        """The same with another answer."""
        return replace(self, answer=replace(self.answer, **changes))


def edited(event: Event, change: Callable[[dict[str, Any]], None]) -> Event:
    """`event` with its JSON value changed in place by `change`."""
    value = value_of(event)
    change(value)
    return replace(event, data=wire.event(value))


def value_of(event: Event) -> dict[str, Any]:
    """The JSON object of an event that has one."""
    value: dict[str, Any] = json.loads(event.data.removeprefix(_DATA))
    return value


def until(events: Iterable[Event], texts: int) -> list[Event]:
    """The beginning of a stream: `texts` text events and what stands before them, never an end mark."""
    kept: list[Event] = []
    for event in events:
        if event.kind is Kind.TEXT:
            texts -= 1
        if texts < 0 or event.kind not in (Kind.ROLE, Kind.TEXT):
            break
        kept.append(event)
    return kept


def without(events: Iterable[Event], *kinds: Kind) -> list[Event]:
    """The stream less the events of some kinds."""
    return [event for event in events if event.kind not in kinds]


def joined(events: Iterable[Event]) -> bytes:
    """All bytes of a stream."""
    return b"".join(event.data for event in events)


def _cut(data: bytes, tokens: int) -> list[Event]:
    """JSON has no bare newline, so an empty line always ends an event."""
    events = [part + _END for part in data.split(_END) if part]
    kinds = [_kind(event) for event in events]
    return [
        Event(kind, event, 0 if kind is Kind.ROLE else tokens)
        for kind, event in zip(kinds, events, strict=True)
    ]


def _kind(data: bytes) -> Kind:
    if data == wire.DONE:
        return Kind.DONE
    value = json.loads(data.removeprefix(_DATA))
    if "meta_info" in value:
        return Kind.FINISH if value["meta_info"]["finish_reason"] else Kind.TEXT
    if not value["choices"]:
        return Kind.USAGE if value.get("usage") else Kind.OTHER
    choice = value["choices"][0]
    if choice["finish_reason"]:
        return Kind.FINISH
    return Kind.ROLE if "role" in choice.get("delta", {}) else Kind.TEXT
