"""The plan in words, for `--dry-run`: cells, restarts with their command lines, bounds of time, size."""

import shlex
from collections.abc import Iterator

from cluster.commands import fill_in
from loadgen.plan import Estimate, Life, Plan
from loadgen.redact import mask_command, mask_env
from loadgen.spec import ExternalServer, Platform, Sweep


def plan_lines(sweep: Sweep, plan: Plan) -> Iterator[str]:
    """Lines of plain text."""
    platforms = {platform.name: platform for platform in sweep.platforms}
    yield f"sweep {plan.name}: {_count(plan.estimate.cells, 'cell execution')}, {_count(plan.estimate.starts, 'server start')}"
    for name, lives in plan.lives.items():
        yield ""
        yield f"platform {name} ({platforms[name].server.control}, {platforms[name].server.endpoint})"
        for life in lives:
            yield from _life_lines(platforms[name], life)
    yield ""
    yield from _estimate_lines(plan.estimate)


def _life_lines(platform: Platform, life: Life) -> Iterator[str]:
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
        streams = sorted({cell.concurrency for cell in loads if cell.workload == workload})
        yield f"    workload {workload}: context {_list(contexts)} x concurrency {_list(streams)}"
    if any(execution.cell.kind == "eval" for execution in life.executions):
        yield "    grading: once, before the load"


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
