"""The truth that a harness can be compared with: what was sent when, kept for each scripted request.

Times are CLOCK_MONOTONIC of this host in ns, taken just before the send: on one host a client can subtract them.
"""

from array import array
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from loadgen.clock import monotonic_ns

_MAX_REQUESTS = 10_000
_MAX_SENDS = 20_000  # a flood's further ones count in the sums alone


@dataclass(slots=True)
class Entry:
    """One request as the server saw it. `ended` is None while it runs; see docs/faults.md for its words."""

    number: int
    scenario: str
    path: str
    client_port: int
    received_ns: int
    prompt_tokens: int
    max_tokens: int
    head_ns: int | None = None
    first_token_ns: int | None = None
    last_token_ns: int | None = None
    ended_ns: int | None = None
    ended: str | None = None
    tokens: int = 0
    bytes: int = 0
    sends: "array[int]" = field(default_factory=lambda: array("q"))

    def sent(self, at_ns: int, size: int, tokens: int) -> None:
        """`size` bytes went out, after which the client has been sent `tokens` tokens."""
        if self.head_ns is None:
            self.head_ns = at_ns
        if tokens > self.tokens:
            self.first_token_ns = self.first_token_ns or at_ns
            self.last_token_ns = at_ns
            self.tokens = tokens
        self.bytes += size
        if len(self.sends) < 3 * _MAX_SENDS:
            self.sends.extend((at_ns, size, tokens))

    def end(self, how: str) -> None:
        """The first word counts."""
        if self.ended is None:
            self.ended, self.ended_ns = how, monotonic_ns()

    def json(self) -> dict[str, Any]:
        """The entry as /__faults/log shows it; `sends` is a list of [ns, bytes, tokens so far]."""
        shown: dict[str, Any] = {name: getattr(self, name) for name in self.__slots__ if name != "sends"}
        flat = self.sends.tolist()
        return {**shown, "sends": [flat[at : at + 3] for at in range(0, len(flat), 3)]}


class Log:
    """The last requests and the server's own faults, in order."""

    def __init__(self) -> None:
        self.entries: deque[Entry] = deque(maxlen=_MAX_REQUESTS)
        self.faults: deque[dict[str, Any]] = deque(maxlen=_MAX_REQUESTS)

    def fault(self, name: str, from_ns: int, to_ns: int) -> None:
        """A fault of the whole server, from one moment to another."""
        self.faults.append({"scenario": name, "from_ns": from_ns, "to_ns": to_ns})

    def clear(self) -> None:
        self.entries.clear()
        self.faults.clear()

    def json(self, last: int = _MAX_REQUESTS) -> dict[str, Any]:
        """The last requests, and the faults of the server."""
        shown = [*self.entries][-last:] if last else []
        return {"requests": [entry.json() for entry in shown], "server": list(self.faults)}
