"""A platform's sweep as a state machine: an event in, instructions out. No I/O, no clock, no Ray.

    begin -> StartServer -> ready -> RunCell -> ended -> RunCell ... -> StopServer -> stopped -> StartServer ...
                         -> failed -> the life's cells are recorded as failed, next life
             RunCell -> died -> StartServer again, the cell once more; a second death is the cell's outcome

Instructions are carried out by the coordinator, one event for each list of instructions.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from loadgen.plan import Execution, Life

_ATTEMPTS = 2


@dataclass(frozen=True, slots=True)
class StartServer:
    life: Life


@dataclass(frozen=True, slots=True)
class RunCell:
    life: Life
    execution: Execution
    is_second_attempt: bool


@dataclass(frozen=True, slots=True)
class RecordFailure:
    life: Life
    execution: Execution
    reason: str


@dataclass(frozen=True, slots=True)
class StopServer:
    pass


Instruction = StartServer | RunCell | RecordFailure | StopServer


class PlatformSweep:
    """The lives of one platform, in order. `done` names executions that need not run (again)."""

    def __init__(self, lives: Sequence[Life], done: Iterable[tuple[str, int]] = ()) -> None:
        finished = set(done)
        pending = [(life, [e for e in life.executions if e.key not in finished]) for life in lives]
        self._lives = [(life, executions) for life, executions in pending if executions]
        self._attempts: dict[tuple[str, int], int] = {}

    @property
    def is_finished(self) -> bool:
        return not self._lives

    @property
    def life(self) -> Life:
        """The life that is current."""
        return self._lives[0][0]

    def begin(self) -> list[Instruction]:
        """The first instructions."""
        return self._start()

    def server_ready(self) -> list[Instruction]:
        return self._next_cell()

    def server_failed(self, reason: str) -> list[Instruction]:
        """The server did not start: that is the outcome of all cells that needed it."""
        life, pending = self._lives.pop(0)
        failures: list[Instruction] = [RecordFailure(life, execution, reason) for execution in pending]
        return failures + self._start()

    def cell_ended(self) -> list[Instruction]:
        """The running cell is committed, whatever its outcome."""
        self._pending().pop(0)
        return self._next_cell()

    def server_died(self, reason: str) -> list[Instruction]:
        """The server died under the running cell. It is already gone."""
        life, pending = self._lives[0]
        failures: list[Instruction] = []
        if self._attempts[pending[0].key] >= _ATTEMPTS:
            failures = [RecordFailure(life, pending.pop(0), reason)]
            if not pending:
                self._lives.pop(0)
        return failures + self._start()

    def server_stopped(self) -> list[Instruction]:
        self._lives.pop(0)
        return self._start()

    def _pending(self) -> list[Execution]:
        return self._lives[0][1]

    def _start(self) -> list[Instruction]:
        return [StartServer(self._lives[0][0])] if self._lives else []

    def _next_cell(self) -> list[Instruction]:
        life, pending = self._lives[0]
        if not pending:
            return [StopServer()]
        key = pending[0].key
        self._attempts[key] = self._attempts.get(key, 0) + 1
        return [RunCell(life, pending[0], self._attempts[key] > 1)]
