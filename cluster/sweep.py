"""A platform's sweep as a state machine: an event in, instructions out. No I/O, no clock, no Ray.

    begin -> StartServer -> ready -> RunCell -> ended -> RunCell ... -> StopServer -> stopped -> StartServer ...
                         -> failed -> the life's cells are recorded as failed, next life
             RunCell -> died -> StartServer again, the cell once more; a second death is the cell's outcome
                     -> client_limited -> RunCell again with more workers, while the config allows more
             a search's step ended -> RunCell at the next concurrency, or RecordVerdict

Instructions are carried out by the coordinator, one event for each list of instructions.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from loadgen.plan import Execution, Life, search_step
from loadgen.saturation import Step, Verdict, next_step
from loadgen.spec import Saturate

_ATTEMPTS = 2

Key = tuple[str, int]


@dataclass(frozen=True, slots=True)
class StartServer:
    life: Life


@dataclass(frozen=True, slots=True)
class RunCell:
    life: Life
    execution: Execution
    is_second_attempt: bool
    workers: int = 1


@dataclass(frozen=True, slots=True)
class RecordFailure:
    life: Life
    execution: Execution
    reason: str


@dataclass(frozen=True, slots=True)
class RecordVerdict:
    """The end of a search, to be written beside the execution that it names."""

    execution: Execution
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class StopServer:
    pass


Instruction = StartServer | RunCell | RecordFailure | RecordVerdict | StopServer


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the config allows: of a search, and of the load workers."""

    saturate: Saturate = field(default_factory=Saturate)
    workers: int = 1
    most_workers: int = 1


@dataclass(slots=True)
class _Pending:
    """An execution that is to run; for a step of a search, with its first step and what was measured so far."""

    execution: Execution
    workers: int
    first: Execution | None = None
    steps: tuple[Step, ...] = ()
    attempts: int = 0


class PlatformSweep:
    """The lives of one platform, in order. `done` names executions that need not run (again); `steps` holds what
    those of them measured that are steps of a search.
    """

    def __init__(
        self,
        lives: Sequence[Life],
        done: Iterable[Key] = (),
        steps: Mapping[Key, Step] | None = None,
        bounds: Bounds | None = None,
    ) -> None:
        self._bounds = bounds or Bounds()
        self._verdicts: list[Instruction] = []
        finished = set(done)
        pending = [(life, self._to_do(life, finished, steps or {})) for life in lives]
        self._lives = [(life, todo) for life, todo in pending if todo]

    @property
    def is_finished(self) -> bool:
        return not self._lives

    @property
    def life(self) -> Life:
        """The life that is current."""
        return self._lives[0][0]

    @property
    def may_add_workers(self) -> bool:
        """Whether the config, and the streams of the running cell, leave room for more load workers."""
        current = self._pending()[0]
        cell, most = current.execution.cell, self._bounds.most_workers
        useful = most if cell.concurrency is None else min(most, cell.concurrency)
        return cell.kind == "load" and current.workers < useful

    def begin(self) -> list[Instruction]:
        """The first instructions; among them the verdicts of searches that earlier sessions came to the end of."""
        return self._verdicts + self._start()

    def server_ready(self) -> list[Instruction]:
        return self._next_cell()

    def server_failed(self, reason: str) -> list[Instruction]:
        """The server did not start: that is the outcome of all cells that needed it."""
        life, pending = self._lives.pop(0)
        failures: list[Instruction] = [RecordFailure(life, one.execution, reason) for one in pending]
        return failures + self._start()

    def cell_ended(self, step: Step | None = None) -> list[Instruction]:
        """The running cell is committed, whatever its outcome; `step` is what it measured, for a search."""
        return self._end_one(step) + self._next_cell()

    def client_limited(self) -> list[Instruction]:
        """The running cell measured the client and is not committed: once more, with twice the workers."""
        current = self._pending()[0]
        current.workers = min(current.workers * 2, self._bounds.most_workers)
        current.attempts -= 1
        return self._next_cell()

    def server_died(self, reason: str) -> list[Instruction]:
        """The server died under the running cell. It is already gone."""
        life, pending = self._lives[0]
        current = pending[0]
        told: list[Instruction] = []
        if current.attempts >= _ATTEMPTS:
            told = [RecordFailure(life, current.execution, reason), *self._end_one(None)]
            if not pending:
                self._lives.pop(0)
        return told + self._start()

    def server_stopped(self) -> list[Instruction]:
        self._lives.pop(0)
        return self._start()

    def _to_do(self, life: Life, finished: set[Key], steps: Mapping[Key, Step]) -> list[_Pending]:
        todo = []
        for execution in life.executions:
            one = _Pending(execution, self._bounds.workers)
            if execution.cell.is_search_step:
                one.first = execution
                if (end := self._replay(one, finished, steps)) is not None:
                    self._verdicts.append(end)
                    continue
            elif execution.key in finished:
                continue
            todo.append(one)
        return todo

    def _replay(
        self, search: _Pending, finished: set[Key], steps: Mapping[Key, Step]
    ) -> RecordVerdict | None:
        """Takes a search through the steps that are facts, to its end or to the first that is to run."""
        while search.execution.key in finished:
            if (end := self._go_on(search, steps[search.execution.key])) is not None:
                return end
        return None

    def _go_on(self, search: _Pending, step: Step) -> RecordVerdict | None:
        """Turns a search to its next step; or says how it ended."""
        assert search.first is not None
        search.steps = (*search.steps, step)
        chosen = next_step(search.steps, self._bounds.saturate)
        if isinstance(chosen, Verdict):
            return RecordVerdict(search_step(search.first, chosen.concurrency), chosen)
        search.execution, search.attempts = search_step(search.first, chosen), 0
        return None

    def _end_one(self, step: Step | None) -> list[Instruction]:
        """The current execution has its outcome: it makes room for its search's next step, or for the next cell."""
        pending = self._pending()
        current = pending[0]
        told: list[Instruction] = []
        if current.first is not None:
            end = self._go_on(current, step or Step(current.execution.cell.concurrency or 0, None))
            if end is None:
                return []
            told = [end]
        pending.pop(0)
        return told

    def _pending(self) -> list[_Pending]:
        return self._lives[0][1]

    def _start(self) -> list[Instruction]:
        return [StartServer(self._lives[0][0])] if self._lives else []

    def _next_cell(self) -> list[Instruction]:
        life, pending = self._lives[0]
        if not pending:
            return [StopServer()]
        current = pending[0]
        current.attempts += 1
        return [RunCell(life, current.execution, current.attempts > 1, current.workers)]
