"""The roles in this process, without Ray: `loadgen run --local`, `loadgen eval`, and most coordinator tests."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from cluster.roles import WorkerFacts, WorkerLost
from cluster.together import run_together
from loadgen.client import Client, niceness, raise_open_files
from loadgen.grading.grade import grade_rows
from loadgen.grading.problems import problem_set
from loadgen.grading.sandbox import Limits
from loadgen.job import CellJob, CellRun


class LocalClients:
    """Load workers on this process's own event loop; good for a few streams, and for one platform at a time."""

    def __init__(self) -> None:
        self._clients: dict[str, Client] = {}

    async def facts(self, platform: str) -> WorkerFacts:
        del platform
        return WorkerFacts(niceness(), raise_open_files())

    async def prepare(
        self, platform: str, workers: Sequence[str], jobs: Sequence[CellJob], timeout_s: float
    ) -> None:
        del platform
        try:
            async with asyncio.timeout(timeout_s):
                for name in workers:  # the first fits, the others find it in the cache
                    await self._client(name).prepare(jobs)
        except TimeoutError as error:
            raise WorkerLost(f"the prompts were not made within {timeout_s:.0f} s") from error

    def _client(self, name: str) -> Client:
        return self._clients.setdefault(name, Client(name))

    async def run(self, platform: str, jobs: Sequence[CellJob], timeout_s: float) -> list[CellRun]:
        del platform
        clients = [self._client(job.worker) for job in jobs]
        try:
            async with asyncio.timeout(timeout_s):
                return await run_together(clients, jobs)
        except TimeoutError as error:
            raise WorkerLost(f"the cell did not end within {timeout_s:.0f} s") from error

    async def close(self) -> None:
        self._clients.clear()


class LocalGraders:
    """Grading in a thread of this process; the programs themselves run in subprocesses as always."""

    async def grade(
        self, problems: str, responses: pa.Table, requests: pa.Table, limits: Limits
    ) -> list[dict[str, Any]]:
        return await asyncio.to_thread(grade_rows, problem_set(problems), responses, requests, limits)

    async def close(self) -> None:
        """Nothing outlives a call."""
