"""What the ways of asking share: which request comes next, and how it is handed to the transport."""

from collections.abc import Callable
from typing import Protocol

from loadgen.job import CellJob
from loadgen.prompts.bodies import Parts
from loadgen.questions import Questions
from loadgen.schedule import target_cycle
from loadgen.transport.exchange import Exchange
from loadgen.transport.pick import Transport


class Source(Protocol):
    """Closed or open loop: decides when the next request goes out."""

    @property
    def connections(self) -> int:
        """How many connections are worth having open before the start."""

    @property
    def settled_ns(self) -> int:
        """Real ns from the start until all of the load asked for has begun."""

    @property
    def unsent(self) -> int:
        """Requests that were due and had not been sent when it was stopped."""

    @property
    def is_exhausted(self) -> bool:
        """Whether there is nothing more to send."""

    def start(self, start_ns: int) -> None:
        """Begins at `start_ns` of the monotonic clock."""

    def ended(self, exchange: Exchange) -> None:
        """A request is over."""

    def stop(self) -> None:
        """Nothing new is sent from now on."""


class Sender:
    """Hands requests to the transport, each to the target that its index gives it."""

    def __init__(self, job: CellJob, questions: Questions, transport: Transport) -> None:
        self._questions = questions
        self._transport = transport
        self._cycle = target_cycle(job.weights)

    def send(self, index: int, scheduled_ns: int, stream: int = 0, parts: Parts | None = None) -> None:
        """Sends request `index` now. `parts` is its body where that depends on earlier answers."""
        body = self._questions.parts(index) if parts is None else parts
        exchange = Exchange(index=index, scheduled_ns=scheduled_ns, stream=stream)
        self._transport.send(exchange, body, self._cycle[index % len(self._cycle)])

    def at(self, due_ns: int, call: Callable[[], None]) -> None:
        """Calls `call` at its time."""
        self._transport.at(due_ns, call)

    def later(self, call: Callable[[], None]) -> None:
        """Calls `call` when there is nothing to read."""
        self._transport.later(call)
