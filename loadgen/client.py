"""One load worker: makes a cell's requests ready, and runs its part of the cell."""

import asyncio
import os
import resource
from collections.abc import Sequence

from loadgen.grading.problems import problem_set
from loadgen.job import CellJob, CellRun
from loadgen.keys import key_from
from loadgen.load.cell import CellLoop
from loadgen.load.meeting import Point
from loadgen.load.place import on_core
from loadgen.prompts.prepare import PromptMaker, chat_options
from loadgen.questions import Questions, eval_questions, load_questions


class Client:
    """A load worker. Plain class: Ray's actor, and `--local`, are coats over it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._prompts = PromptMaker()
        self._loop: asyncio.Future[CellLoop] | None = None

    async def run_cell(self, job: CellJob) -> CellRun:
        """Runs its part of the cell, in a thread. Raises RunFailed when the prompts cannot be made; all else is in the rows."""
        api_key = _api_key(job)
        made = self._loop = asyncio.get_running_loop().create_future()
        questions = await self._questions(job, api_key)
        loop = await asyncio.to_thread(CellLoop, job, questions, api_key)  # it looks for the server's address
        made.set_result(loop)
        running = asyncio.create_task(asyncio.to_thread(_run_on, job.core, loop))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            loop.give_up()
            await asyncio.gather(running, return_exceptions=True)
            raise

    async def reached(self, point: Point) -> None:
        """Returns when the cell that runs has come to `point`."""
        assert self._loop is not None, "run_cell comes first"
        loop = await asyncio.shield(self._loop)
        await asyncio.wrap_future(loop.meeting.reached(point))

    async def pass_at(self, point: Point, at_ns: int) -> None:
        """Lets the cell that runs pass `point` at `at_ns` of this host's monotonic clock."""
        assert self._loop is not None, "run_cell comes first"
        (await self._loop).pass_at(point, at_ns)

    async def prepare(self, jobs: Sequence[CellJob]) -> None:
        """Fits the prompts of a server's cells before the first of them. Raises RunFailed when they cannot be made."""
        await self._prompts.prepare(jobs, _api_key(jobs[0]) if jobs else None)

    async def _questions(self, job: CellJob, api_key: str | None) -> Questions:
        if job.cell.kind == "eval":
            return eval_questions(problem_set(job.cell.workload), chat_options(job), job.shard)
        await self._prompts.prepare([job], api_key)
        return load_questions(self._prompts.make(job), job)


def _run_on(core: int | None, loop: CellLoop) -> CellRun:
    with on_core(core):
        return loop.run()


def _api_key(job: CellJob) -> str | None:
    return key_from(job.api_key_env)


def niceness() -> int:
    """Niceness of this process; above 0 its stamps come late on a busy machine."""
    return os.getpriority(os.PRIO_PROCESS, 0)


def raise_open_files() -> int:
    """Raises this process's descriptor limit to its hard limit (one socket a stream), and says what it is now."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
