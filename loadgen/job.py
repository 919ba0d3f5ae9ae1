"""What a worker is given for its part of a cell, and what it brings back. Plain data; goes over process borders."""

from dataclasses import dataclass, field

import pyarrow as pa

from loadgen.decode.record import EndMarks
from loadgen.load.evidence import WorkerEvidence
from loadgen.load.place import Place
from loadgen.plan import Cell
from loadgen.prompts.sources import Source
from loadgen.schedule import Offsets, Shard, arrival_seed, arrivals_ns, ramp_ns, to_real_ns
from loadgen.spec import Limits, Load


@dataclass(frozen=True, slots=True)
class Target:
    """One endpoint of a platform; requests go to its endpoints in proportion to their weights."""

    endpoint: str
    weight: int = 1


@dataclass(frozen=True, slots=True)
class CellJob:
    """Everything one worker needs for its part of one execution. `api_key_env` names a variable of its environment.

    `targets` holds all endpoints, `endpoint` first; `trace_ns` the whole trace, where arrivals come from one; `core`
    the core of its host that is reserved for this worker.
    """

    cell: Cell
    repeat: int
    run_id: str
    seed: int
    shard: Shard
    worker: str
    endpoint: str
    api_key_env: str | None
    model: str
    server_id: str
    time_scale: float
    load: Load
    limits: Limits
    corpus: Source
    simulated: bool | None = None
    targets: tuple[Target, ...] = ()
    trace_ns: Offsets | None = None
    transport: str = "raw"
    end_marks: EndMarks = field(default_factory=EndMarks)
    core: int | None = None

    def __post_init__(self) -> None:
        if not self.targets:
            object.__setattr__(self, "targets", (Target(self.endpoint),))

    @property
    def meets(self) -> bool:
        """Whether its worker starts, and opens and closes its window, together with others."""
        return self.shard.of > 1 and self.cell.kind == "load"

    @property
    def weights(self) -> tuple[int, ...]:
        """Of the targets, for `schedule.target_of`."""
        return tuple(target.weight for target in self.targets)

    def arrivals_ns(self) -> Offsets:
        """Open loop: when this worker's requests are due, in real ns from the cell's start; the i-th is of the i-th
        of its shard's indexes. It ends with the cell's longest warm-up and window, or with the trace.
        """
        load, cell = self.load, self.cell
        if self.trace_ns is not None:
            whole = self.trace_ns
        else:
            assert cell.rate is not None
            whole = arrivals_ns(
                load.arrivals.process,
                cell.rate,
                arrival_seed(self.seed, load.arrivals.word, cell.rate, self.repeat),
                burstiness=load.arrivals.burstiness or 1.0,
                duration_s=load.warmup_max_s + load.measure_max_s,
            )
        return to_real_ns(self.shard.part(whole), self.time_scale)

    def starts_ns(self) -> Offsets:
        """Closed loop: when each of this worker's streams starts, in real ns from the cell's start."""
        assert self.cell.concurrency is not None
        ramp_s = 0.0 if self.cell.kind == "eval" else min(self.load.ramp_s, self.load.warmup_max_s)
        return to_real_ns(ramp_ns(self.shard, self.cell.concurrency, ramp_s), self.time_scale)


@dataclass(frozen=True, slots=True)
class CellRun:
    """What one worker brings back. The window is in monotonic ns of its host; `complete` says that the counts asked
    for were reached before the time was over, `is_stationary` that the warm-up ended by itself and not by its bound.
    `streams`: its part of a closed loop's; `transport`: what carried the requests, raw or aiohttp.
    """

    requests: pa.Table
    responses: pa.Table
    window_start_ns: int
    window_end_ns: int
    complete: bool
    evidence: WorkerEvidence
    worker: str
    streams: int
    place: Place
    transport: str
    is_stationary: bool = True
    prompt_length_source: str | None = None
