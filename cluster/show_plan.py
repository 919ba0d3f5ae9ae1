"""The plan in words, for `--dry-run`: cells, restarts with their command lines, bounds of time, size."""

import shlex
from collections.abc import Iterator

from cluster.commands import fill_in
from loadgen.plan import Cell, Estimate, Life, Plan
from loadgen.redact import mask_command, mask_env
from loadgen.saturation import most_steps
from loadgen.spec import ExternalServer, Load, Platform, Sweep


def plan_lines(sweep: Sweep, plan: Plan) -> Iterator[str]:
    """Lines of plain text."""
    platforms = {platform.name: platform for platform in sweep.platforms}
    yield f"sweep {plan.name}: {_count(plan.estimate.cells, 'cell execution')}, {_count(plan.estimate.starts, 'server start')}"
    for name, lives in plan.lives.items():
        yield ""
        yield f"platform {name} ({platforms[name].server.control}, {_endpoints(platforms[name])})"
        for life in lives:
            yield from _life_lines(platforms[name], life, sweep)
    yield ""
    yield from _estimate_lines(plan.estimate)


def _endpoints(platform: Platform) -> str:
    targets = platform.server.targets
    if len(targets) == 1:
        return targets[0].url
    return ", ".join(f"{target.url} weight {target.weight}" for target in targets)


def _life_lines(platform: Platform, life: Life, sweep: Sweep) -> Iterator[str]:
    axes = ", ".join(f"{axis}={value}" for axis, value in life.axes.items()) or "no axes"
    yield f"  server config {life.config} ({axes}): {_count(len(life.executions), 'execution')}"
    server = platform.server
    if isinstance(server, ExternalServer):
        yield "    already running; never touched"
    else:
        env = mask_env({**server.env, **life.env})
        command = fill_in([*server.command, *life.flags], server.endpoint)
        words = [*(f"{key}={shlex.quote(value)}" for key, value in env.items())]
        yield f"    {' '.join([*words, shlex.join(mask_command(command))])}"
    loads = [execution.cell for execution in life.executions if execution.cell.kind == "load"]
    for workload in dict.fromkeys(cell.workload for cell in loads):
        contexts = sorted({cell.context_tokens or 0 for cell in loads if cell.workload == workload})
        asked = [cell for cell in loads if cell.workload == workload]
        for load in _load_words(asked, sweep.load):
            yield f"    workload {workload}: context {_list(contexts)} x {load}"
    if any(execution.cell.kind == "eval" for execution in life.executions):
        yield "    grading: once, before the load"


def _load_words(cells: list[Cell], load: Load) -> Iterator[str]:
    """What is asked of each context length, one line for each kind of load."""
    streams = sorted({cell.concurrency for cell in cells if cell.concurrency and not cell.is_search_step})
    if streams:
        yield f"concurrency {_list(streams)}"
    if any(cell.is_search_step for cell in cells):
        bounds = load.saturate
        yield (
            f"concurrency from {bounds.start} doubled up to {bounds.max} until output tok/s gains less than "
            f"{bounds.gain:.0%} (at most {most_steps(bounds)} steps)"
        )
    rates = sorted({cell.rate for cell in cells if cell.rate is not None})
    if rates:
        yield f"{load.arrivals.word} arrivals at {', '.join(f'{rate:g}' for rate in rates)} requests/s"
    elif load.has_open_loop:
        yield f"arrivals as in {load.arrivals.trace}"


def _estimate_lines(estimate: Estimate) -> Iterator[str]:
    yield f"requests at least: {estimate.requests:,}"
    yield f"tokens at least: {estimate.prompt_tokens:,} in prompts, {estimate.output_tokens:,} in outputs"
    yield f"disk about: {max(1, estimate.disk_bytes // 1_000_000):,} MB"
    yield (
        f"time: {_duration(estimate.shortest_s)} to {_duration(estimate.longest_s)} of the server's own time for the cells "
        f"(bounds from load.*), plus {_count(estimate.starts, 'server start')}"
    )


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _list(values: list[int]) -> str:
    return ", ".join(str(value) for value in values)
