"""What a report knows about a run, as plain values: no table, no file, no markup.

Text in here is as the servers, models and configs gave it; the blocks and plots clean it, the renderers escape it.
Unknown is None.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Place = tuple[int | None, float | None]  # (context_tokens, concurrency, or the rate of an open loop)


@dataclass(frozen=True, slots=True)
class PlatformFacts:
    name: str
    gpu_kind: str | None
    gpu_count: int | None
    interconnect: str | None
    hourly_price: float | None
    control: str | None
    simulated: bool | None
    time_scales: tuple[float, ...]
    models: tuple[str, ...]
    server_versions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RunFacts:
    """`planned` and `committed` count cell executions; `ending` is the last word of the journal on the run."""

    run_id: str
    name: str
    created_unix_ns: int | None
    versions: Mapping[str, str]
    host: Mapping[str, str]
    planned: int
    committed: int
    ending: str | None

    @property
    def finished(self) -> bool:
        return self.committed >= self.planned > 0


@dataclass(frozen=True, slots=True)
class Spread:
    """A figure over repeats; `n` is the number of repeats that know it."""

    median: float
    low: float
    high: float
    n: int


@dataclass(frozen=True, slots=True)
class CellSummary:
    """A load cell over its repeats. Figures are medians over the done ones, `error_rate` is the worst repeat's,
    `requests` the sum of their n. `checks`: names that any done repeat raised.
    """

    cell_id: str
    platform: str
    config: str
    workload: str
    context_tokens: int | None
    concurrency: int | None
    asked: frozenset[tuple[int | None, float | None]]  # (max_tokens, temperature) of the done repeats
    planned: int
    done: int
    failed: int
    checks: tuple[str, ...]
    simulated: bool | None
    output_tps: Spread | None
    stream_tps: Spread | None
    ttft_p50_ms: Spread | None
    ttft_p99_ms: Spread | None
    tpot_p50_ms: Spread | None
    error_rate: float | None
    requests: int | None
    rate: float | None
    arrivals: str | None  # of an open loop; a closed one has none
    saturation: tuple[str, ...]  # verdicts of searches that this cell is the knee of
    stamp_sources: tuple[str, ...]  # whose stamps its arrivals are
    more: Mapping[
        str, Spread | None
    ]  # by column of `cells`: of the latency table, of other tools, of the client

    @property
    def state(self) -> Literal["done", "failed", "missing"]:
        if self.done:
            return "done"
        return "failed" if self.failed else "missing"

    @property
    def doubtful(self) -> bool:
        return bool(self.checks) or (self.done > 0 and self.failed > 0)


@dataclass(frozen=True, slots=True)
class Matrix:
    """One platform, config and workload: context x concurrency, or context x rate where there are `arrivals`."""

    platform: str
    config: str
    workload: str
    arrivals: str | None
    axes: str
    contexts: tuple[int | None, ...]
    loads: tuple[float | None, ...]
    cells: Mapping[Place, CellSummary]

    @property
    def simulated(self) -> bool:
        return any(cell.simulated for cell in self.cells.values())


@dataclass(frozen=True, slots=True)
class Ratio:
    """Output tok/s of one platform over another's, in one cell; `value` is None when a side is unknown."""

    value: float | None
    doubtful: bool


@dataclass(frozen=True, slots=True)
class RatioTable:
    """`over` / `under`; a place without a Ratio is not comparable."""

    over: str
    under: str
    config: str
    workload: str
    arrivals: str | None
    contexts: tuple[int | None, ...]
    loads: tuple[float | None, ...]
    cells: Mapping[Place, Ratio]


@dataclass(frozen=True, slots=True)
class CellRef:
    """Some repeats of a cell; `planned` is how many repeats it has."""

    cell_id: str
    repeats: tuple[int, ...]
    planned: int

    @property
    def which(self) -> str:
        """Which repeats, as a suffix of the id; empty when the cell has one only."""
        if self.planned <= 1:
            return ""
        if len(self.repeats) == self.planned:
            return f" (all {self.planned} repeats)"
        noun = "repeat" if len(self.repeats) == 1 else "repeats"
        return f" ({noun} {', '.join(map(str, self.repeats))})"


@dataclass(frozen=True, slots=True)
class Reason:
    """One sentence and the cells that it is about."""

    text: str
    cells: tuple[CellRef, ...]

    @property
    def executions(self) -> int:
        return sum(len(cell.repeats) for cell in self.cells)


@dataclass(frozen=True, slots=True)
class Doubt:
    check: str
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True)
class GradeLine:
    problem: str
    mark: str
    output_tokens: int | None
    output_tps: float | None
    reason: str


@dataclass(frozen=True, slots=True)
class GradeGroup:
    """One evaluation: `failure` when its execution failed; no lines when it has not been graded.
    `suspicion` is a sentence when the answers look like the harness's own fault.
    """

    cell: CellRef
    platform: str
    config: str
    workload: str
    failure: str | None
    problems: int
    lines: tuple[GradeLine, ...]
    suspicion: str | None

    def count(self, mark: str) -> int:
        return sum(line.mark == mark for line in self.lines)

    @property
    def average_tps(self) -> float | None:
        """Mean of the known rates of the answers."""
        rates = [line.output_tps for line in self.lines if line.output_tps is not None]
        return sum(rates) / len(rates) if rates else None


@dataclass(frozen=True, slots=True)
class ServerLife:
    server_id: str
    platform: str
    config: str
    axes: str
    state: str
    failure: str | None
    pid: int | None
    ready_s: float | None
    version: str | None
    max_running_requests: int | None
    end_marks: str | None
    token_counts: str | None
    proof: str
    log_tail: str | None


@dataclass(frozen=True, slots=True)
class Report:
    run: RunFacts
    platforms: tuple[PlatformFacts, ...]
    doubts: tuple[Doubt, ...]
    failed: tuple[Reason, ...]
    missing: tuple[Reason, ...]
    warnings: tuple[str, ...]
    matrices: tuple[Matrix, ...]
    ratios: tuple[RatioTable, ...]
    grades: tuple[GradeGroup, ...]
    servers: tuple[ServerLife, ...]

    @property
    def suspicions(self) -> tuple[str, ...]:
        return tuple(group.suspicion for group in self.grades if group.suspicion)
