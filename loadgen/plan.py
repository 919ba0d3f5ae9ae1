"""Sweep -> Plan: which server is started how, and which cells run on it in which order. Pure; prints before it runs.

A restart costs most, so server configs are outermost: one server life measures all its cells. Within a life the
repeats go round (all cells, then all cells again), so that a drift of the machine falls on all cells alike.
"""

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from loadgen.errors import BadInput
from loadgen.grading.problems import problem_set
from loadgen.prompts.settings import PromptSettings
from loadgen.saturation import most_steps
from loadgen.spec import AxisValue, Load, ProcessServer, ServerConfig, Sweep

_ID_BYTES = 220  # of a file name's 255; repeat, ending and the mark of an unfinished file are added


@dataclass(frozen=True, slots=True)
class Cell:
    """The unit that gets a number. `kind` is load or eval; an eval has no context length and asks the problems.

    A closed loop has a concurrency; an open loop has arrivals, and a rate unless they come from a trace.
    """

    cell_id: str
    kind: str
    platform: str
    config: str
    workload: str
    context_tokens: int | None
    max_tokens: int
    temperature: float
    concurrency: int | None
    ignore_eos: bool = False
    thinking: bool | None = None
    prompts: PromptSettings = field(default_factory=PromptSettings)
    rate: float | None = None
    arrivals: str | None = None
    is_search_step: bool = False

    @property
    def is_open_loop(self) -> bool:
        return self.arrivals is not None


@dataclass(frozen=True, slots=True)
class Execution:
    """One repeat of one cell."""

    cell: Cell
    repeat: int

    @property
    def key(self) -> tuple[str, int]:
        return self.cell.cell_id, self.repeat


@dataclass(frozen=True, slots=True)
class Life:
    """One server life: how it is started, and what is measured on it in order."""

    platform: str
    config: str
    axes: Mapping[str, AxisValue]
    flags: tuple[str, ...]
    env: Mapping[str, str]
    executions: tuple[Execution, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """All lives of a sweep, by platform; platforms run side by side, a platform's lives one after the other."""

    name: str
    lives: Mapping[str, tuple[Life, ...]]
    estimate: "Estimate" = field(repr=False)

    def executions(self) -> Iterator[tuple[Life, Execution]]:
        """Every planned execution with its life."""
        for lives in self.lives.values():
            for life in lives:
                for execution in life.executions:
                    yield life, execution


@dataclass(frozen=True, slots=True)
class Estimate:
    """Bounds of what the plan costs; `cells` counts a search for saturation as its first step. Times are in the
    server's time, without starts.
    """

    cells: int
    starts: int
    requests: int
    prompt_tokens: int
    output_tokens: int
    disk_bytes: int
    shortest_s: float
    longest_s: float


def make_plan(sweep: Sweep, only_platform: str | None = None) -> Plan:
    """The plan of a sweep, or of one of its platforms. Raises BadInput for what the schema alone cannot see."""
    names = [platform.name for platform in sweep.platforms]
    if only_platform is not None and only_platform not in names:
        raise BadInput(
            f"--platform {only_platform}: the config has no such platform; use one of: {', '.join(names)}"
        )
    _check_problems(sweep)
    lives = {
        platform.name: tuple(_lives(sweep, platform.name, isinstance(platform.server, ProcessServer)))
        for platform in sweep.platforms
        if only_platform in (None, platform.name)
    }
    _check_ids(lives)
    return Plan(sweep.name, lives, _estimate(sweep, lives))


def plan_document(sweep: Sweep, plan: Plan) -> dict[str, Any]:
    """The plan as JSON values: `plan.json` of a run, which reports read to say what is missing."""
    platforms = {platform.name: platform for platform in sweep.platforms if platform.name in plan.lives}
    return {
        "name": sweep.name,
        "seed": sweep.seed,
        "repeats": sweep.repeats,
        "platforms": {
            name: {
                "gpu_kind": platform.gpu.kind if platform.gpu else None,
                "gpu_count": platform.gpu.count if platform.gpu else None,
                "interconnect": platform.gpu.interconnect if platform.gpu else None,
                "hourly_price": platform.hourly_price,
                "control": platform.server.control,
                "endpoint": platform.server.endpoint,
                "endpoints": [target.url for target in platform.server.targets],
            }
            for name, platform in platforms.items()
        },
        "cells": [
            {**asdict(execution.cell), "repeat": execution.repeat, "axes": dict(life.axes)}
            for life, execution in plan.executions()
        ],
    }


def _check_problems(sweep: Sweep) -> None:
    if sweep.grading:
        try:
            problem_set(sweep.grading.problems)
        except ValueError as error:
            raise BadInput(f"grading.problems: {error}") from error


def _check_ids(lives: Mapping[str, tuple[Life, ...]]) -> None:
    """Ids become file names: two cells must not share one, and a file system takes 255 bytes."""
    for platform, group in lives.items():
        names = Counter(life.config for life in group)
        name, times = names.most_common(1)[0]
        if times > 1:
            raise BadInput(
                f"server_configs: {times} combinations would be called {name} on {platform}; rename a config, or change "
                "values that differ in signs only"
            )
        for execution in (execution for life in group for execution in life.executions):
            if len(execution.cell.cell_id.encode()) > _ID_BYTES:
                raise BadInput(
                    f"the cell id {execution.cell.cell_id} is too long for a file name; shorten names, or grid values "
                    "that are paths"
                )


def _lives(sweep: Sweep, platform: str, is_ours: bool) -> Iterator[Life]:
    configs = [combination for config in sweep.server_configs for combination in _grid(config)]
    if not is_ours and len(configs) > 1:
        raise BadInput(
            f"platform {platform}: its server is external and never restarted, but server_configs has {len(configs)} "
            "combinations; keep one for it, or use control: process"
        )
    for name, axes in configs:
        flags, env = _settings(sweep, axes)
        yield Life(platform, name, axes, flags, env, tuple(_executions(sweep, platform, name)))


def _grid(config: ServerConfig) -> Iterator[tuple[str, dict[str, AxisValue]]]:
    for values in itertools.product(*config.grid.values()):
        chosen = dict(zip(config.grid, values, strict=True))
        varied = [f"{axis}{_word(chosen[axis])}" for axis in config.grid if len(config.grid[axis]) > 1]
        yield "-".join([config.name, *varied]), {**config.fixed, **chosen}


def _word(value: AxisValue) -> str:
    words = {True: "On", False: "Off", None: "Unset"}
    text = words[value] if value is None or isinstance(value, bool) else str(value)
    return "".join(letter if letter.isalnum() else "_" for letter in text)


def _settings(sweep: Sweep, axes: Mapping[str, AxisValue]) -> tuple[tuple[str, ...], dict[str, str]]:
    """Axis values as command-line flags and environment. null: not given at all; true: the bare flag; false: left out."""
    flags: list[str] = []
    env: dict[str, str] = {}
    for name, value in axes.items():
        axis = sweep.axes[name]
        if value is None:
            continue
        if axis.flag and value is not False:
            flags += [axis.flag] if value is True else [axis.flag, str(value)]
        if axis.env:
            env[axis.env] = str(int(value)) if isinstance(value, bool) else str(value)
    return tuple(flags), env


def _executions(sweep: Sweep, platform: str, config: str) -> Iterator[Execution]:
    if sweep.grading:
        yield Execution(_eval_cell(sweep, platform, config), 0)
    cells = list(_load_cells(sweep, platform, config))
    for repeat in range(sweep.repeats):
        for cell in cells:
            yield Execution(cell, repeat)


def _eval_cell(sweep: Sweep, platform: str, config: str) -> Cell:
    grading = sweep.grading
    assert grading is not None
    return Cell(
        cell_id=f"{platform}.{config}.eval",
        kind="eval",
        platform=platform,
        config=config,
        workload=grading.problems,
        context_tokens=None,
        max_tokens=grading.max_tokens,
        temperature=0.0,
        concurrency=grading.concurrency,
    )


def _load_cells(sweep: Sweep, platform: str, config: str) -> Iterator[Cell]:
    for workload in sweep.workloads:
        for context, how in itertools.product(workload.contexts, _ways(sweep.load)):
            yield Cell(
                cell_id=f"{platform}.{config}.{workload.name}.ctx{context or 'Data'}.{how.word}",
                kind="load",
                platform=platform,
                config=config,
                workload=workload.name,
                context_tokens=context,
                max_tokens=workload.output_tokens,
                temperature=workload.temperature,
                concurrency=how.concurrency,
                ignore_eos=workload.ignore_eos,
                thinking=workload.thinking,
                prompts=workload.prompts,
                rate=how.rate,
                arrivals=how.arrivals,
                is_search_step=how.is_search_step,
            )


@dataclass(frozen=True, slots=True)
class _Way:
    """One load: the end of its cell's id, and what stands in the cell."""

    word: str
    concurrency: int | None = None
    rate: float | None = None
    arrivals: str | None = None
    is_search_step: bool = False


def _ways(load: Load) -> Iterator[_Way]:
    """Closed loops first: their streams, or the first step of a search; then open loops."""
    for streams in load.streams:
        yield _Way(f"c{streams}", concurrency=streams)
    if load.concurrency == "saturate":
        start = load.saturate.start
        yield _Way(f"c{start}", concurrency=start, is_search_step=True)
    for rate in load.rate or ():
        yield _Way(f"r{rate:g}", rate=rate, arrivals=load.arrivals.word)
    if load.arrivals.trace is not None:
        name = load.arrivals.word
        yield _Way(_word(name.replace("-", "_")).replace("trace_", "trace-", 1), arrivals=name)


def search_step(first: Execution, concurrency: int) -> Execution:
    """The execution of a search at another concurrency than its first one."""
    cell_id = f"{first.cell.cell_id.rpartition('.')[0]}.c{concurrency}"
    return replace(first, cell=replace(first.cell, cell_id=cell_id, concurrency=concurrency))


_ROW_BYTES = 200  # a request's row without its chunks, compressed
_CHUNK_BYTES = 8  # one chunk's arrival, count and kind, compressed


def _estimate(sweep: Sweep, lives: Mapping[str, tuple[Life, ...]]) -> Estimate:
    load = sweep.load
    cells = [execution.cell for group in lives.values() for life in group for execution in life.executions]
    asked = [(cell, _least_requests(load, cell)) for cell in cells if cell.kind == "load"]
    requests = sum(count for _, count in asked)
    outputs = sum(count * cell.max_tokens for cell, count in asked)
    ours = [platform.name for platform in sweep.platforms if isinstance(platform.server, ProcessServer)]
    longest_cell_s = load.warmup_max_s + load.measure_max_s + load.drain_max_s
    return Estimate(
        cells=len(cells),
        starts=sum(len(lives.get(name, ())) for name in ours),
        requests=requests,
        prompt_tokens=sum(count * (cell.context_tokens or 0) for cell, count in asked),
        output_tokens=outputs,
        disk_bytes=requests * _ROW_BYTES + outputs * _CHUNK_BYTES,
        shortest_s=_side_by_side(lives, 1) * load.measure_min_s,
        longest_s=_side_by_side(lives, most_steps(load.saturate)) * longest_cell_s,
    )


def _least_requests(load: Load, cell: Cell) -> int:
    if cell.concurrency is not None:
        waves = load.warmup_requests_per_stream + load.measure_requests_per_stream + 1
        return cell.concurrency * waves
    in_time = (cell.rate or 0) * load.measure_min_s
    return load.warmup_min_requests + max(load.measure_min_requests, round(in_time))


def _side_by_side(lives: Mapping[str, tuple[Life, ...]], steps: int) -> int:
    """Load executions of the platform that has most; a search counts as so many steps."""
    counts = [
        sum(
            steps if execution.cell.is_search_step else 1
            for life in group
            for execution in life.executions
            if execution.cell.kind == "load"
        )
        for group in lives.values()
    ]
    return max(counts, default=0)
