"""One invocation of `loadgen run`: from validated input to a finished, interrupted or failed run folder."""

import asyncio
import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from cluster import hosts, rows, signals
from cluster.coordinator import Coordinator, Staff
from cluster.cores import kept_off, reserve_cores
from cluster.host_checks import HostFacts, host_facts, host_warnings, need_of
from cluster.journal import Journal
from cluster.local import LocalClients, LocalGraders
from cluster.preflight import check_cores, preflight
from cluster.progress import ConsoleWatcher
from cluster.roles import Clients, Graders, WorkerFacts, WorkerLost
from cluster.servers import PlatformServer
from loadgen.calibration import Calibration, read_calibration, write_calibration
from loadgen.config import parse_sweep, read_sweep
from loadgen.errors import RunFailed
from loadgen.plan import Plan, make_plan, plan_document
from loadgen.prompts.sources import read_source
from loadgen.prompts.tokenizer_file import TokenizerFile
from loadgen.spec import Sweep
from loadgen.store import Run
from loadgen.tables import HOSTS
from loadgen.trace import trace_of

_CLUSTER_S = 5.0


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be run: a sweep and its plan, on a new run folder or a resumed one."""

    sweep: Sweep
    plan: Plan
    folder: Path
    open_run: Callable[[], Run]
    is_resumed: bool


@dataclass(frozen=True, slots=True)
class Setting:
    """The host of one invocation, and how its cores are shared out: by platform, a core for each load worker."""

    host: HostFacts
    reserved_cores: Mapping[str, Sequence[int]]
    calibration: Calibration | None
    uses_ray: bool
    shares_cores: bool


def new_order(config: Path, out: Path | None, only_platform: str | None) -> Order:
    """The order of a config file. Raises BadInput; writes nothing."""
    sweep, text = read_sweep(config)
    plan = make_plan(sweep, only_platform)
    _check_files(sweep)
    folder = out or Path("runs") / f"{sweep.name}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    document = {**plan_document(sweep, plan), "only_platform": only_platform}

    def create() -> Run:
        return Run.create(folder, config_text=text, plan=document, environment=hosts.environment())

    return Order(sweep, plan, folder, create, is_resumed=False)


def resumed_order(folder: Path) -> Order:
    """The order that a run folder began with. Raises BadInput; writes nothing."""
    run = Run.open(folder)
    sweep = parse_sweep(run.config_text, str(folder / "config.yaml"))
    plan = make_plan(sweep, run.plan.get("only_platform"))
    _check_files(sweep)
    return Order(sweep, plan, folder, lambda: Run.resume(folder), is_resumed=True)


def execute(order: Order, console: Console, *, local: bool, address: str | None) -> tuple[Run, int]:
    """Runs it. Returns the run folder and an exit code: 0 all done, 1 some cell failed, 130 interrupted.

    Raises BadInput before anything has started, and RunFailed when it cannot start or go on.
    """
    if address and not local:
        _check_cluster(address)
    setting, warnings = _look_at_host(order, local=local)
    orphans = asyncio.run(_preflight(order))
    run = order.open_run()
    try:
        journal = Journal(run)
        for text in warnings:
            journal.add("warning", text)
        if setting.calibration:
            write_calibration(setting.calibration, run.path / "calibration.json")
        for platform, text in orphans:
            journal.add("orphan_stopped", text, platform=platform)
            console.print(f"{platform}: {text}", markup=False, highlight=False)
        rows.mark_lost_servers(run)
        journal.add("run_resumed" if order.is_resumed else "run_started", order.sweep.name)
        with kept_off(setting.reserved_cores), _roles(local=local, address=address) as (clients, graders):
            interrupted = asyncio.run(_conduct(order, run, journal, clients, graders, console, setting))
            # before Ray ends, which takes a second: a second Ctrl-C may come
            code = _end(run, journal, interrupted=interrupted)
    except OSError as error:
        raise RunFailed(
            f"{run.path}: the run cannot go on ({error}); what was measured is kept: loadgen run --resume {run.path}"
        ) from error
    finally:
        run.close()
    return run, code


def _look_at_host(order: Order, *, local: bool) -> tuple[Setting, list[str]]:
    """This host as the run will have it, and what makes its numbers doubtful. Raises RunFailed where it cannot work."""
    clients, platforms = order.sweep.clients, tuple(order.plan.lives)
    cores = os.sched_getaffinity(0)
    shares_cores = not local and check_cores(clients, len(platforms), len(cores))
    host = host_facts(order.folder)
    warnings = host_warnings(host, need_of(order.sweep, order.plan, is_resumed=order.is_resumed))
    reserved = {} if local else reserve_cores(platforms, clients.most_workers, cores)
    return Setting(
        host, reserved, read_calibration(), uses_ray=not local, shares_cores=shares_cores
    ), warnings


def _end(run: Run, journal: Journal, *, interrupted: bool) -> int:
    """Notes how the session ended; returns the exit code."""
    if interrupted:
        journal.add("interrupted", "Ctrl-C, SIGTERM, or the end of the terminal")
        return 130
    failed = sum(1 for status in rows.statuses(run).values() if status == "failed")
    ungraded = len(rows.ungraded(run))
    words = [f"{failed} executions failed"] * bool(failed) + [f"{ungraded} not graded"] * bool(ungraded)
    journal.add("run_ended", ", ".join(words) or None)
    return 1 if words else 0


def _check_cluster(address: str) -> None:
    """Ray itself waits for minutes for a cluster that is not there."""
    host, _, port = address.rpartition(":")
    if not port.isdigit():
        return  # Ray's own words, such as auto
    try:
        socket.create_connection((host, int(port)), _CLUSTER_S).close()
    except (OSError, OverflowError) as error:
        raise RunFailed(
            f"--address {address}: no Ray cluster answers there ({error}); start one with `ray start --head`, or leave it out"
        ) from error


async def _preflight(order: Order) -> list[tuple[str, str]]:
    platforms = [platform for platform in order.sweep.platforms if platform.name in order.plan.lives]
    return [(platform.name, text) for platform in platforms for text in await preflight(platform)]


async def _conduct(
    order: Order,
    run: Run,
    journal: Journal,
    clients: Clients,
    graders: Graders,
    console: Console,
    setting: Setting,
) -> bool:
    """Runs the coordinator to its end; True when a signal ended it."""
    servers = {
        platform.name: PlatformServer(platform, order.sweep.axes, run)
        for platform in order.sweep.platforms
        if platform.name in order.plan.lives
    }
    done = sum(1 for status in rows.statuses(run).values() if status == "done")
    with ConsoleWatcher(order.plan, console, done) as watcher:
        coordinator = Coordinator(
            order.sweep,
            order.plan,
            run,
            journal,
            Staff(clients, graders, servers),
            watcher,
            shares_cores=setting.shares_cores,
            reserved_cores=setting.reserved_cores,
            calibration=setting.calibration,
        )
        main = asyncio.current_task()
        assert main is not None
        signals.cancel_on_signals(main)
        try:
            facts = await clients.facts(next(iter(order.plan.lives)))
            _note_host(run, journal, facts, setting)
            await coordinator.run()
        except WorkerLost as error:
            raise RunFailed(f"no load worker could be started: {error}") from error
        except asyncio.CancelledError:
            return True
        finally:
            await clients.close()
            await graders.close()
    return False


def _note_host(run: Run, journal: Journal, facts: WorkerFacts, setting: Setting) -> None:
    row = hosts.head_row(journal.session, facts, setting.host, uses_ray=setting.uses_ray)
    row["calibrated_shapes"] = len(setting.calibration.ceilings) if setting.calibration else 0
    run.write_rows(HOSTS, f"head-{journal.session}", [row])
    if facts.niceness > 0:
        journal.add("warning", f"load workers run at niceness {facts.niceness}: their stamps may be late")


@contextmanager
def _roles(*, local: bool, address: str | None) -> Iterator[tuple[Clients, Graders]]:
    if local:
        yield LocalClients(), LocalGraders()
        return
    from cluster import actors  # noqa: PLC0415 - Ray takes a second to import, and only a run needs it

    try:
        with signals.held():  # a Ray that is half there when Python ends crashes it
            actors.start_ray(address)
        yield actors.RayClients(), actors.RayGraders()
    finally:
        with signals.held():
            actors.stop_ray()


def _check_files(sweep: Sweep) -> None:
    """Opens what the config names. Raises BadInput."""
    trace_of(sweep.load)
    for workload in sweep.workloads:
        read_source(workload.prompt_source)
        if workload.tokenizer is not None:
            TokenizerFile(workload.tokenizer)
