"""What the coordinator speaks to. Two sets play these roles: `local` (this process) and `actors` (Ray)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from loadgen.grading.sandbox import Limits
from loadgen.job import CellJob, CellRun


class WorkerLost(Exception):
    """A load worker or the grader is gone, or did not come back in time. Its part of the work is lost."""


@dataclass(frozen=True, slots=True)
class WorkerFacts:
    """What a load worker's process is allowed to do."""

    niceness: int
    max_open_files: int


class Clients(Protocol):
    """The load workers."""

    async def facts(self, platform: str) -> WorkerFacts:
        """Facts of a platform's first worker. Raises WorkerLost."""

    async def prepare(
        self, platform: str, workers: Sequence[str], jobs: Sequence[CellJob], timeout_s: float
    ) -> None:
        """Makes the prompts of these jobs, on each of the workers. Raises RunFailed, WorkerLost."""

    async def run(self, platform: str, jobs: Sequence[CellJob], timeout_s: float) -> list[CellRun]:
        """Runs the jobs side by side, one a worker. Raises WorkerLost, after which the next call has new workers."""

    async def close(self) -> None:
        """Ends all workers and what they have in flight."""


class Graders(Protocol):
    """Whoever runs the programs in the answers."""

    async def grade(
        self, problems: str, responses: pa.Table, requests: pa.Table, limits: Limits
    ) -> list[dict[str, Any]]:
        """Rows of `grades`, one for each request. Raises WorkerLost."""

    async def close(self) -> None:
        """Ends the grader and the programs that it runs."""
