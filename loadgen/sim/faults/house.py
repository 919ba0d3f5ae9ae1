"""What all requests of a fault server share: whose turn it is, the truth log, the server's door."""

import asyncio
from collections.abc import Sequence

from loadgen.clock import monotonic_ns
from loadgen.sim.door import Door
from loadgen.sim.faults.log import Log
from loadgen.sim.faults.scenario import Choice

_QUIET_NS = 1_000_000_000


class House:
    """One fault server. Requests go through `choices` in turn; without any of theirs they are played well."""

    def __init__(self, choices: Sequence[Choice]) -> None:
        self.log = Log()
        self.number = 0
        self.busy_since_ns = 0
        self._quiet_since_ns = 0
        self._turns = [choice for choice in choices if not choice.scenario.is_server_wide]
        self._choices = choices
        self._plays: set[asyncio.Task[None]] = set()
        self._wide: list[asyncio.Task[None]] = []

    def open(self, door: Door) -> None:
        """Begins the faults of the whole server."""
        self._wide = [
            asyncio.create_task(_run(choice, self, door))
            for choice in self._choices
            if choice.scenario.is_server_wide
        ]

    def next(self) -> Choice | None:
        """The scenario of the next request; None: no fault is its own."""
        self.number += 1
        return self._turns[(self.number - 1) % len(self._turns)] if self._turns else None

    def enter(self, play: asyncio.Task[None]) -> None:
        """A request is being played."""
        now_ns = monotonic_ns()
        if not self._plays and now_ns - self._quiet_since_ns > _QUIET_NS:
            self.busy_since_ns = now_ns
        self._plays.add(play)

    def leave(self, play: asyncio.Task[None]) -> None:
        """A request has been played."""
        self._plays.discard(play)
        self._quiet_since_ns = monotonic_ns()

    async def close(self) -> None:
        """Ends all that is being played."""
        tasks = [*self._wide, *self._plays]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _run(choice: Choice, house: House, door: Door) -> None:
    await choice.scenario.play(house, door, **choice.options)
