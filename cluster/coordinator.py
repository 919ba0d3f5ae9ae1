"""Carries out a sweep: server lives, cells and grades of each platform, platforms side by side.

What to do next is decided by `sweep` (pure); how, by the roles. Each cell is committed whole before the next one
begins, so resuming is starting with some executions already done.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

from cluster import rows
from cluster.commands import key_of
from cluster.journal import Journal
from cluster.roles import Clients, Graders, WorkerLost
from cluster.server_form import learn_form
from cluster.server_process import ServerFailed
from cluster.servers import LiveServer, PlatformServer
from cluster.sweep import (
    Bounds,
    Instruction,
    PlatformSweep,
    RecordFailure,
    RecordVerdict,
    RunCell,
    StartServer,
    StopServer,
)
from loadgen.calibration import Calibration
from loadgen.clock import unix_ns
from loadgen.endpoint import open_endpoint
from loadgen.errors import RunFailed
from loadgen.grading.sandbox import Limits as ProgramLimits
from loadgen.job import CellJob
from loadgen.plan import Cell, Execution, Life, Plan
from loadgen.prompts.sources import Source, read_source
from loadgen.saturation import Step
from loadgen.schedule import Shard, make_shards, open_shards
from loadgen.spec import Sweep
from loadgen.store import CellResult, Run
from loadgen.trace import trace_of

_FLUSH_WAIT_S = 10.0
_PREPARE_S = 1800.0
# A server that dies refuses connections before it exits: SGLang, whose scheduler has died, by five seconds.
_DYING_S = 15.0
# Beyond the bounds of the cell itself: fitting prompts, decoding, and the way back.
_CALL_SLACK_S = 300.0


class Watcher(Protocol):
    """Whoever shows progress."""

    def server(self, platform: str, text: str) -> None:
        """A server starts, is ready, failed, died or stopped."""

    def cell_started(self, execution: Execution) -> None: ...

    def cell_ended(self, execution: Execution, row: Mapping[str, Any]) -> None: ...


@dataclass(frozen=True, slots=True)
class Staff:
    """The roles of one run."""

    clients: Clients
    graders: Graders
    servers: Mapping[str, PlatformServer]


class Coordinator:
    """One run of one sweep."""

    def __init__(
        self,
        sweep: Sweep,
        plan: Plan,
        run: Run,
        journal: Journal,
        staff: Staff,
        watcher: Watcher,
        *,
        shares_cores: bool = False,
        reserved_cores: Mapping[str, Sequence[int]] = MappingProxyType({}),
        calibration: Calibration | None = None,
    ) -> None:
        self._sweep = sweep
        self._plan = plan
        self._run = run
        self._journal = journal
        self._staff = staff
        self._watcher = watcher
        self._shares_cores = shares_cores
        self._reserved_cores = reserved_cores
        self._calibration = calibration
        self._trace_ns = trace_of(sweep.load)
        self._corpora = {w.prompt_source: read_source(w.prompt_source) for w in sweep.workloads}

    async def run(self) -> None:
        """All platforms to their end. On cancellation their servers are stopped quickly, and nothing committed is lost.

        What ends one platform (OSError: a full disk) ends all, and is raised as it is.
        """
        done = {key for key, status in rows.statuses(self._run).items() if status == "done"}
        steps = rows.search_steps(self._run)
        clients = self._sweep.clients
        bounds = Bounds(self._sweep.load.saturate, clients.workers_per_platform, clients.most_workers)
        try:
            async with asyncio.TaskGroup() as group:
                for name, lives in self._plan.lives.items():
                    group.create_task(self._platform(name, PlatformSweep(lives, done, steps, bounds)))
        except ExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def _platform(self, name: str, sweep: PlatformSweep) -> None:
        try:
            await self._grade_what_is_not(name)
            todo = sweep.begin()
            while todo:
                instruction, *todo = todo
                todo += await self._carry_out(instruction, sweep)
        except BaseException:
            await self._staff.servers[name].stop(hurried=True)
            raise

    async def _carry_out(self, instruction: Instruction, sweep: PlatformSweep) -> list[Instruction]:
        match instruction:
            case StartServer(life):
                return await self._start(life, sweep)
            case StopServer():
                return await self._stop(sweep)
            case RecordFailure(life, execution, reason):
                self._record_failure(life, execution, reason, None)
                return []
            case RecordVerdict():
                self._record_verdict(instruction)
                return []
            case RunCell():
                return await self._run_cell(instruction, sweep)

    async def _start(self, life: Life, sweep: PlatformSweep) -> list[Instruction]:
        server = self._staff.servers[life.platform]
        doing = "starting" if server.is_ours else "found running; it is not touched"
        self._note("server_starting", life.platform, f"{life.config}: {doing}")
        try:
            live = await server.start(life)
        except ServerFailed as error:
            self._note("server_failed", life.platform, f"{life.config}: {error}")
            return sweep.server_failed(str(error))
        self._journal.add("server_ready", life.config, platform=life.platform, server_id=live.server_id)
        pid = f" (pid {live.pid})" if live.pid is not None else ""
        self._watcher.server(life.platform, f"{life.config}: ready after {live.ready_s:.1f} s{pid}")
        await self._learn_form(server, live)
        await self._prepare_prompts(life, live)
        return sweep.server_ready()

    async def _prepare_prompts(self, life: Life, live: LiveServer) -> None:
        """Makes the prompts of all load cells of the life to length before its first cell, and not between two."""
        asked = {
            (e.cell.workload, e.cell.context_tokens): e for e in life.executions if e.cell.kind == "load"
        }
        jobs = [self._jobs(execution, live, 1)[0] for execution in asked.values()]
        workers = [f"{life.platform}-w{number}" for number in range(self._sweep.clients.workers_per_platform)]
        try:
            await self._staff.clients.prepare(life.platform, workers, jobs, _PREPARE_S)
        except (RunFailed, WorkerLost) as error:  # the cells themselves will meet it, and say so
            self._journal.add(
                "warning", f"prompts: {error}", platform=life.platform, server_id=live.server_id
            )

    async def _learn_form(self, server: PlatformServer, live: LiveServer) -> None:
        urls = [target.endpoint for target in live.targets]
        form = await learn_form(urls, live.model, key_of(live), self._sweep.clients.transport)
        server.take_form(form)
        event = "server_form" if form.end_marks else "warning"
        self._journal.add(event, form.sentence, platform=server.platform.name, server_id=live.server_id)

    async def _stop(self, sweep: PlatformSweep) -> list[Instruction]:
        platform = sweep.life.platform
        await self._staff.servers[platform].stop()
        if self._staff.servers[platform].is_ours:
            self._note("server_stopped", platform, f"{sweep.life.config}: stopped")
        return sweep.server_stopped()

    async def _run_cell(self, order: RunCell, sweep: PlatformSweep) -> list[Instruction]:
        life, execution = order.life, order.execution
        server = self._staff.servers[life.platform]
        live = server.live
        assert live is not None
        self._journal.add(
            "cell_started", platform=life.platform, server_id=live.server_id, cell=execution.key
        )
        self._watcher.cell_started(execution)
        measuring = asyncio.create_task(self._measure(order, live))
        death = asyncio.create_task(server.died())
        try:
            await asyncio.wait({measuring, death}, return_when=asyncio.FIRST_COMPLETED)
            if live.pid is not None and not death.done() and not await server.answers():
                await asyncio.wait({death}, timeout=_DYING_S)
            if not death.done() and sweep.may_add_workers and self._is_client_limited(order, measuring):
                return sweep.client_limited()
            if not death.done():
                self._commit_or_fail(life, execution, measuring, live)
        finally:
            await _cancel(measuring, death)
        if not death.cancelled():
            return await self._bury(life, death.result(), sweep)
        await self._grade_if_eval(execution)
        return sweep.cell_ended(self._step(execution))

    def _step(self, execution: Execution) -> Step | None:
        """What a step of a search measured; None where it failed, or is none."""
        if not execution.cell.is_search_step:
            return None
        return rows.search_steps(self._run).get(execution.key)

    def _is_client_limited(self, order: RunCell, measuring: "asyncio.Task[CellResult]") -> bool:
        """Whether the cell measured the client; if so, what it gave is noted, and not committed."""
        if not measuring.done() or measuring.exception() is not None:
            return False
        row = measuring.result().cell
        if "client_limited" not in row["checks"]:
            return False
        detail = row["check_details"][row["checks"].index("client_limited")]
        tps = "unknown" if row["output_tps"] is None else f"{row['output_tps']:.0f}"
        self._journal.add(
            "cell_client_limited",
            f"{detail}; with {row['workers']} worker(s) {tps} output tok/s; it is run again with more",
            platform=order.life.platform,
            cell=order.execution.key,
        )
        return True

    def _record_verdict(self, order: RecordVerdict) -> None:
        verdict, cell = order.verdict, order.execution.cell
        if rows.write_verdict(self._run, order.execution.key, verdict):
            text = f"{verdict.limit}: {verdict.detail}"
            self._journal.add("saturation", text, platform=cell.platform, cell=order.execution.key)
            self._watcher.server(cell.platform, f"{cell.config} {cell.workload} saturation: {text}")

    async def _bury(self, life: Life, reason: str, sweep: PlatformSweep) -> list[Instruction]:
        await self._staff.servers[life.platform].bury(reason)
        self._note("server_died", life.platform, reason)
        return sweep.server_died(reason)

    def _commit_or_fail(
        self, life: Life, execution: Execution, measuring: "asyncio.Task[CellResult]", live: LiveServer
    ) -> None:
        try:
            result = measuring.result()
        except (WorkerLost, RunFailed) as error:
            self._record_failure(life, execution, str(error), live)
            return
        except Exception as error:  # noqa: BLE001 - a fault of ours costs its cell, and not the sweep
            self._record_failure(life, execution, self._journal.fault(error), live)
            return
        self._run.commit_cell(result)
        self._journal.add(
            "cell_committed", platform=life.platform, server_id=live.server_id, cell=execution.key
        )
        if execution.cell.kind == "load":
            self._watcher.cell_ended(execution, result.cell)

    async def _measure(self, order: RunCell, live: LiveServer) -> CellResult:
        life, execution = order.life, order.execution
        started_ns = unix_ns()
        before = await self._settle(execution, live)
        jobs = self._jobs(execution, live, order.workers)
        runs = await self._staff.clients.run(
            life.platform, jobs, self._longest_s(execution.cell, live.time_scale)
        )
        after = await rows.read_sample(execution, live, "after")
        facts = rows.Measured(
            life,
            execution,
            live,
            runs,
            started_ns,
            [before, after],
            was_restarted=order.is_second_attempt,
            shares_cores=self._shares_cores,
            least_window_s=self._sweep.load.measure_min_s,
            max_in_flight=self._sweep.load.max_in_flight,
            calibration=self._calibration,
        )
        return rows.cell_result(facts)

    async def _settle(self, execution: Execution, live: LiveServer) -> dict[str, Any]:
        """An idle server with an empty cache, where it can be had; what it says then."""
        for target in live.targets:
            async with open_endpoint(target.endpoint, key_of(live)) as endpoint:
                await endpoint.flush_cache(_FLUSH_WAIT_S)
        return await rows.read_sample(execution, live, "before")

    def _jobs(self, execution: Execution, live: LiveServer, workers: int) -> list[CellJob]:
        cell = execution.cell
        reserved = self._reserved_cores.get(cell.platform, ())
        return [
            CellJob(
                cell=cell,
                repeat=execution.repeat,
                run_id=str(self._run.meta["run_id"]),
                seed=self._sweep.seed,
                shard=shard,
                worker=f"{cell.platform}-w{shard.number}",
                endpoint=live.endpoint,
                api_key_env=live.api_key_env,
                model=live.model,
                server_id=live.server_id,
                time_scale=live.time_scale,
                load=self._sweep.load,
                limits=self._sweep.limits,
                simulated=live.simulated,
                targets=live.targets,
                transport=self._sweep.clients.transport,
                end_marks=live.end_marks,
                core=reserved[shard.number] if shard.number < len(reserved) else None,
                trace_ns=self._trace_ns if cell.is_open_loop else None,
                corpus=Source() if cell.kind == "eval" else self._corpora[cell.prompts.source],
            )
            for shard in self._shards(cell, workers)
        ]

    def _shards(self, cell: Cell, workers: int) -> list[Shard]:
        if cell.concurrency is None:
            return open_shards(workers, self._sweep.load.max_in_flight)
        return make_shards(cell.concurrency, workers)

    def _longest_s(self, cell: Cell, time_scale: float) -> float:
        if cell.kind == "eval":
            return self._sweep.limits.request_timeout_s * 20 + _CALL_SLACK_S
        load = self._sweep.load
        return (load.warmup_max_s + load.measure_max_s + load.drain_max_s) / time_scale + _CALL_SLACK_S

    async def _grade_what_is_not(self, platform: str) -> None:
        """Grades evaluations that an earlier session committed and did not come to grade."""
        missing = rows.ungraded(self._run)
        for life in self._plan.lives[platform]:
            for execution in life.executions:
                if execution.key in missing:
                    await self._grade_if_eval(execution)

    async def _grade_if_eval(self, execution: Execution) -> None:
        if execution.cell.kind != "eval" or rows.statuses(self._run).get(execution.key) != "done":
            return
        assert self._sweep.grading is not None
        limits = ProgramLimits(wall_s=self._sweep.grading.program_timeout_s)
        responses = self._run.read_cell("responses", execution.key)
        requests = self._run.read_cell("requests", execution.key)
        try:
            grades = await self._staff.graders.grade(execution.cell.workload, responses, requests, limits)
        except WorkerLost as error:
            self._note_ungraded(execution, str(error))
            return
        except Exception as error:  # noqa: BLE001 - as above
            self._note_ungraded(execution, self._journal.fault(error))
            return
        row = rows.graded(self._run, execution.key, grades)
        self._journal.add(
            "graded",
            f"{row['passed']}/{row['problems']} passed",
            platform=row["platform"],
            cell=execution.key,
        )
        self._watcher.cell_ended(execution, row)

    def _note_ungraded(self, execution: Execution, why: str) -> None:
        self._journal.add(
            "warning", f"not graded: {why}", platform=execution.cell.platform, cell=execution.key
        )

    def _record_failure(self, life: Life, execution: Execution, reason: str, live: LiveServer | None) -> None:
        row = rows.failed_cell(life, execution, reason, live)
        self._run.write_cell(row)
        self._journal.add("cell_failed", reason, platform=life.platform, cell=execution.key)
        self._watcher.cell_ended(execution, row)

    def _note(self, event: str, platform: str, text: str) -> None:
        self._journal.add(event, text, platform=platform)
        self._watcher.server(platform, text)


async def _cancel(*tasks: "asyncio.Task[Any]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
