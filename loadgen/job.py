"""What a worker is given for its part of a cell, and what it brings back. Plain data; goes over process borders."""

from dataclasses import dataclass

import pyarrow as pa

from loadgen.plan import Cell
from loadgen.schedule import Shard
from loadgen.spec import Limits, Load


@dataclass(frozen=True, slots=True)
class CellJob:
    """Everything one worker needs for its part of one execution. `api_key_env` names a variable of its environment."""

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
    corpus: tuple[str, ...]
    simulated: bool | None = None


@dataclass(frozen=True, slots=True)
class CellRun:
    """What one worker brings back. The window is in monotonic ns of its host; `complete` says that the counts asked
    for were reached before the time was over.
    """

    requests: pa.Table
    responses: pa.Table
    window_start_ns: int
    window_end_ns: int
    complete: bool
    loop_lag_p99_ms: float | None
    cpu: float
