"""The open loop: requests go out at their planned times, whatever became of those before.

A request that finds the bound on requests in flight reached waits for the next to end; its planned time stays, so that
the wait counts in what is measured from the plan.
"""

from collections import deque

from loadgen.clock import monotonic_ns
from loadgen.job import CellJob
from loadgen.load.source import Sender
from loadgen.questions import Questions
from loadgen.transport.exchange import Exchange
from loadgen.transport.pick import Transport

_LEAST_CONNECTIONS = 16
_MOST_CONNECTIONS = 1024
_STOCK_S = 2.0  # connections for the requests of so long are opened beforehand


class OpenLoop:
    """Requests on an absolute schedule."""

    def __init__(self, job: CellJob, questions: Questions, transport: Transport) -> None:
        self._indexes = questions.indexes
        self._sender = Sender(job, questions, transport)
        self._transport = transport
        self._arrivals_ns = job.arrivals_ns().tolist()
        self._most = job.shard.max_in_flight
        self._next = 0
        self._start_ns = 0
        self._waiting: deque[int] = deque()
        self._is_stopping = False
        rate = len(self._arrivals_ns) / max(1e-9, self._arrivals_ns[-1] / 1e9) if self._arrivals_ns else 0.0
        stock = min(_MOST_CONNECTIONS, max(_LEAST_CONNECTIONS, round(rate * _STOCK_S)))
        self.connections = stock if self._most is None else min(stock, self._most)
        self.settled_ns = 0
        self.unsent = 0

    @property
    def is_exhausted(self) -> bool:
        return self._next == len(self._arrivals_ns) and not self._waiting

    def start(self, start_ns: int) -> None:
        self._start_ns = start_ns
        self._wait_for_next()

    def stop(self) -> None:
        self._is_stopping = True
        self.unsent = len(self._waiting)
        self._waiting.clear()

    def ended(self, _exchange: Exchange) -> None:
        if self._waiting and not self._is_stopping:
            self._send(self._waiting.popleft())

    def _wait_for_next(self) -> None:
        if self._next < len(self._arrivals_ns):
            self._sender.at(self._start_ns + self._arrivals_ns[self._next], self._send_due)

    def _send_due(self) -> None:
        if self._is_stopping:
            return
        arrivals_ns = self._arrivals_ns
        while self._next < len(arrivals_ns):
            due_ns = self._start_ns + arrivals_ns[self._next]
            if due_ns > monotonic_ns():
                break
            self._next += 1
            if self._most is not None and self._transport.in_flight >= self._most:
                self._waiting.append(due_ns)
            else:
                self._send(due_ns)
        self._wait_for_next()

    def _send(self, due_ns: int) -> None:
        self._sender.send(next(self._indexes), due_ns)
