"""The closed loop: each stream sends its next request the moment its last one has ended, so that the requests in flight
stay at the target. With conversations, a stream has one conversation after the other, and thinks between its turns.
"""

import re
from functools import partial

from loadgen.clock import monotonic_ns
from loadgen.decode.record import decode
from loadgen.job import CellJob
from loadgen.load.source import Sender
from loadgen.prompts.bodies import Parts
from loadgen.questions import Questions
from loadgen.records import Outcome, Phase, RequestRecord
from loadgen.transport.exchange import ClockOffsets, Exchange
from loadgen.transport.pick import Transport

_NS = 1_000_000_000
# A refusal comes back in a millisecond; without a pause a closed loop would turn it into a flood.
_REFUSED_PAUSE_NS = _NS // 10
_REFUSED_BYTES = 600
_FINISHED = re.compile(rb'"finish_reason":\s*"')


class ClosedLoop:
    """A fixed number of streams that start over the ramp and end when there is nothing more to ask."""

    def __init__(self, job: CellJob, questions: Questions, transport: Transport) -> None:
        self._indexes = questions.indexes
        self._sender = Sender(job, questions, transport)
        self._starts_ns: list[int] = job.starts_ns().tolist()
        self._is_stopping = False
        self._running = len(self._starts_ns)
        self._talks = Talks(job, questions, transport.offsets) if questions.conversations else None

    unsent = 0  # a stream that is stopped owes no request

    @property
    def connections(self) -> int:
        return len(self._starts_ns)

    @property
    def settled_ns(self) -> int:
        return max(self._starts_ns)

    @property
    def is_exhausted(self) -> bool:
        return self._running == 0

    def start(self, start_ns: int) -> None:
        for stream, offset_ns in enumerate(self._starts_ns):
            self._sender.at(start_ns + offset_ns, partial(self._next, stream))

    def stop(self) -> None:
        self._is_stopping = True

    def ended(self, exchange: Exchange) -> None:
        if self._is_stopping:
            return
        if _is_refused(exchange):
            self._sender.at(monotonic_ns() + _REFUSED_PAUSE_NS, partial(self._next, exchange.stream))
        elif self._talks is None:
            self._next(exchange.stream)
        else:
            self._sender.later(partial(self._go_on_talking, exchange))

    def _go_on_talking(self, exchange: Exchange) -> None:
        assert self._talks is not None
        if not self._talks.goes_on(exchange):
            self._next(exchange.stream)
            return
        due_ns = (exchange.done_ns or monotonic_ns()) + self._talks.think_ns
        self._sender.at(due_ns, partial(self._next_turn, exchange.stream, due_ns))

    def _next(self, stream: int) -> None:
        if self._is_stopping:
            return
        number = next(self._indexes, None)
        if number is None:
            self._running -= 1
        elif self._talks is None:
            self._sender.send(number, monotonic_ns(), stream)
        else:
            index, parts = self._talks.begin(stream, number)
            self._sender.send(index, monotonic_ns(), stream, parts)

    def _next_turn(self, stream: int, due_ns: int) -> None:
        if not self._is_stopping and self._talks is not None:
            index, parts = self._talks.next_turn(stream)
            self._sender.send(index, due_ns, stream, parts)


class Talks:
    """The conversation that each stream is in. A turn that failed ends it: what comes next would be another one."""

    def __init__(self, job: CellJob, questions: Questions, offsets: ClockOffsets) -> None:
        assert questions.conversations is not None
        self._conversations = questions.conversations
        self._offsets = offsets
        self._talks: dict[int, tuple[int, list[tuple[str, str]]]] = {}
        self.think_ns = round(self._conversations.think_time_s / job.time_scale * _NS)

    def begin(self, stream: int, number: int) -> tuple[int, Parts]:
        """Index and body of the first turn of conversation `number`."""
        self._talks[stream] = (number, [])
        return self._conversations.index(number, 0), self._conversations.first_body(number)

    def goes_on(self, exchange: Exchange) -> bool:
        """Takes in an answer; whether the conversation has another turn after it."""
        number, said = self._talks[exchange.stream]
        answer = _answer(exchange, self._offsets)
        if answer is None or not self._conversations.has_turn(number, len(said) + 1):
            return False
        said.append((self._conversations.user_text(number, len(said)), answer))
        return True

    def next_turn(self, stream: int) -> tuple[int, Parts]:
        """Index and body of the turn that follows the answers taken in."""
        number, said = self._talks[stream]
        turn = len(said)
        return self._conversations.index(number, turn), self._conversations.next_body(number, turn, said)


def _answer(exchange: Exchange, offsets: ClockOffsets) -> str | None:
    record = RequestRecord(exchange.index, Phase.MEASURE, exchange.scheduled_ns, 0)
    decode(exchange, record, offsets)
    return record.content if record.outcome is Outcome.OK else None


def _is_refused(exchange: Exchange) -> bool:
    if exchange.status != 200:
        return True
    # a server may refuse inside a 200; the answer of a token or two is as short, and finished
    return len(exchange.body) < _REFUSED_BYTES and not _FINISHED.search(exchange.body)
