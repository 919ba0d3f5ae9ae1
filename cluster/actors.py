"""The roles as Ray actors, and the local Ray that carries them. With `cli`, the only place that knows Ray.

Load workers: one async actor for each worker, niceness 0 (Ray's default of 15 makes every stamp late on a busy host),
no restarts and no retries (Ray would silently send the load twice; recovery is the coordinator's).
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Sequence
from typing import Any

import pyarrow as pa

# Read by Ray when it is imported or started. No telemetry; no second cluster by a stray call after shutdown.
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
os.environ["RAY_ENABLE_AUTO_CONNECT"] = "0"
os.environ.setdefault("RAY_worker_niceness", "0")
os.environ.setdefault("RAY_AUTH_MODE", "token")

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from cluster.roles import WorkerFacts, WorkerLost
from cluster.together import run_together
from loadgen.client import Client, niceness, raise_open_files
from loadgen.errors import RunFailed
from loadgen.grading.grade import grade_rows
from loadgen.grading.problems import problem_set
from loadgen.grading.sandbox import Limits
from loadgen.job import CellJob, CellRun
from loadgen.load.meeting import Point

_START_S = 120.0


def start_ray(address: str | None) -> str:
    """Joins the Ray cluster at `address`, or starts one on this machine; returns Ray's version. Quiet.

    Raises RunFailed when Ray cannot be joined or started.
    """
    try:
        ray.init(
            address=address or "local",
            include_dashboard=False if address is None else None,
            log_to_driver=False,
            logging_level=logging.WARNING,
            namespace=None,
        )
    except (RayError, RuntimeError, OSError, ValueError) as error:
        place = f"the Ray cluster at {address} cannot be joined" if address else "Ray cannot be started"
        raise RunFailed(f"{place} ({_first_line(error)}); --local runs without Ray") from error
    return str(ray.__version__)


def stop_ray() -> None:
    """Leaves Ray; a Ray that we started ends."""
    ray.shutdown()


class LoadWorker(Client):
    """A client in an actor."""

    async def facts(self) -> WorkerFacts:
        return WorkerFacts(niceness(), raise_open_files())


class Grader:
    """The correctness actor: runs programs in subprocesses of its own, never on a load worker."""

    def grade(
        self, problems: str, responses: pa.Table, requests: pa.Table, limits: Limits
    ) -> list[dict[str, Any]]:
        return grade_rows(problem_set(problems), responses, requests, limits)


class _Remote:
    """A load worker's calls over Ray. Each raises WorkerLost."""

    def __init__(self, actor: Any, timeout_s: float) -> None:
        self._actor = actor
        self._timeout_s = timeout_s

    async def run_cell(self, job: CellJob) -> CellRun:
        run: CellRun = await _result(self._actor.run_cell.remote(job), self._timeout_s)
        return run

    async def reached(self, point: Point) -> None:
        await _result(self._actor.reached.remote(point), self._timeout_s)

    async def pass_at(self, point: Point, at_ns: int) -> None:
        await _result(self._actor.pass_at.remote(point, at_ns), self._timeout_s)


class RayClients:
    """Load workers by platform and name, made when first needed, and again after a loss."""

    def __init__(self) -> None:
        self._actors: dict[str, dict[str, Any]] = {}

    async def facts(self, platform: str) -> WorkerFacts:
        facts: WorkerFacts = await _result(self._actor(platform, f"{platform}-w0").facts.remote(), _START_S)
        return facts

    async def prepare(
        self, platform: str, workers: Sequence[str], jobs: Sequence[CellJob], timeout_s: float
    ) -> None:
        for name in workers:  # the first fits, the others find it in the cache
            await _result(self._actor(platform, name).prepare.remote(jobs), timeout_s)

    async def run(self, platform: str, jobs: Sequence[CellJob], timeout_s: float) -> list[CellRun]:
        workers = [_Remote(self._actor(platform, job.worker), timeout_s) for job in jobs]
        try:
            return await run_together(workers, jobs)
        except BaseException:  # where one has failed, the others would load the server during the next cell
            self._drop(platform)
            raise

    async def close(self) -> None:
        for platform in tuple(self._actors):
            self._drop(platform)

    def _actor(self, platform: str, name: str) -> Any:
        workers = self._actors.setdefault(platform, {})
        if name not in workers:
            workers[name] = _here(LoadWorker, max_concurrency=4).remote(name)
        return workers[name]

    def _drop(self, platform: str) -> None:
        for actor in self._actors.pop(platform, {}).values():
            ray.kill(actor)


class RayGraders:
    """One grader for the run; platforms take turns."""

    def __init__(self) -> None:
        self._actor: Any = None
        self._turn = asyncio.Lock()

    async def grade(
        self, problems: str, responses: pa.Table, requests: pa.Table, limits: Limits
    ) -> list[dict[str, Any]]:
        timeout_s = _START_S + responses.num_rows * (limits.wall_s + 5)
        async with self._turn:
            if self._actor is None:
                self._actor = _here(Grader).remote()
            try:
                rows: list[dict[str, Any]] = await _result(
                    self._actor.grade.remote(problems, responses, requests, limits), timeout_s
                )
            except WorkerLost:
                await self.close()
                raise
        return rows

    async def close(self) -> None:
        if self._actor is not None:
            ray.kill(self._actor)
            self._actor = None


def _here(role: type, **options: Any) -> Any:
    """A role as an actor on this host: servers are on its loopback, and workers share its monotonic clock."""
    here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
    return ray.remote(role).options(
        num_cpus=0, max_restarts=0, max_task_retries=0, scheduling_strategy=here, **options
    )


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]


async def _result(ref: Awaitable[Any], timeout_s: float) -> Any:
    """The result of a call. Raises WorkerLost for a death or a time-out, and the callee's own exception as itself."""
    try:
        async with asyncio.timeout(timeout_s):
            return await ref
    except RayTaskError as error:  # first: it is also what its cause is, TimeoutError included
        if isinstance(error.cause, Exception):
            raise error.cause from error  # whose words are the traceback over there
        raise
    except TimeoutError as error:
        raise WorkerLost(f"no answer within {timeout_s:.0f} s") from error
    except RayError as error:
        raise WorkerLost(_first_line(error)) from error
