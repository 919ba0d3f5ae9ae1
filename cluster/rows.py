"""What was measured -> rows of `cells`, `requests` and `server_samples`. The arithmetic itself is `loadgen`'s."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa

from cluster.commands import key_of
from cluster.proof import server_lag_p99_ms
from cluster.screen import harmless
from cluster.servers import LiveServer
from loadgen.calibration import BYTES_PER_TOKEN, TYPICAL_STREAMS, Calibration, Shape
from loadgen.checks import Doubt, Evidence, find_doubts
from loadgen.clock import unix_ns
from loadgen.endpoint import open_endpoint
from loadgen.errors import RunFailed
from loadgen.job import CellRun
from loadgen.metrics import CHUNK_LISTS, Window, accounting_faults, summarize
from loadgen.metrics.client import chunk_rates, client_figures
from loadgen.plan import Execution, Life
from loadgen.records import phase_of
from loadgen.saturation import Step, Verdict
from loadgen.store import CellKey, CellResult, Run
from loadgen.tables import REQUESTS, SERVER_SAMPLES, WORKERS

_COUNTERS = {
    "prompt_tokens_total": "sglang:prompt_tokens_total",
    "output_tokens_total": "sglang:generation_tokens_total",
    "cached_tokens_total": "sglang:cached_tokens_total",
    "spec_verify_steps_total": "sglang:spec_verify_calls_total",
}


@dataclass(frozen=True, slots=True)
class Measured:
    """One execution as it came back from the workers."""

    life: Life
    execution: Execution
    live: LiveServer
    runs: Sequence[CellRun]
    started_unix_ns: int
    samples: Sequence[dict[str, Any]]
    was_restarted: bool
    shares_cores: bool = False
    least_window_s: float = 0.0
    max_in_flight: int | None = None
    calibration: Calibration | None = None


def cell_result(measured: Measured) -> CellResult:
    """The workers' parts as one cell: window, phases, figures and doubts."""
    window = _common_window(measured.runs, measured.live.time_scale)
    requests = _with_phases(pa.concat_tables([run.requests for run in measured.runs]), window)
    cell = {
        **_cell_identity(measured.life, measured.execution, measured.live),
        "status": "done",
        "started_unix_ns": measured.started_unix_ns,
        **summarize(
            requests,
            window,
            is_open_loop=measured.execution.cell.is_open_loop,
            samples=measured.samples,
        ),
        **client_figures(requests, window, [run.evidence for run in measured.runs]),
        "client_load_share": _load_share(measured, chunk_rates(requests, window)),
        "workers": len(measured.runs),
        "prompt_length_source": measured.runs[0].prompt_length_source,
        "server_lag_p99_ms": measured.samples[-1].get("server_lag_p99_ms"),
    }
    doubts = _doubts(measured, cell, requests)
    cell |= {"checks": [doubt.check for doubt in doubts], "check_details": [doubt.detail for doubt in doubts]}
    samples = [{k: v for k, v in sample.items() if k != "server_lag_p99_ms"} for sample in measured.samples]
    return CellResult(
        cell=cell,
        requests=requests,
        responses=pa.concat_tables([run.responses for run in measured.runs]),
        samples=SERVER_SAMPLES.from_rows(samples),
        workers=WORKERS.from_rows([_worker_row(measured.execution, run) for run in measured.runs]),
    )


def _doubts(measured: Measured, cell: dict[str, Any], requests: pa.Table) -> list[Doubt]:
    planned = measured.execution.cell
    return find_doubts(
        Evidence(
            cell=cell,
            requests=requests.drop_columns(CHUNK_LISTS).to_pylist(),
            max_running_requests=measured.live.max_running_requests,
            proof=measured.live.proof,
            is_window_complete=all(run.complete for run in measured.runs),
            server_lag_ms=cell["server_lag_p99_ms"],
            server_restarted=measured.was_restarted,
            is_output_length_fixed=planned.ignore_eos,
            shared_prompt=planned.prompts.shared_prompt(planned.context_tokens),
            accounting=accounting_faults(requests, cell["sent"]),
            is_stationary=all(run.is_stationary for run in measured.runs),
            shares_cores=measured.shares_cores,
            least_window_s=measured.least_window_s,
            max_in_flight=measured.max_in_flight,
            is_tls=any(target.endpoint.startswith("https:") for target in measured.live.targets),
        )
    )


def _load_share(measured: Measured, rates: Mapping[str, float]) -> float | None:
    """Of the worker that is nearest to its calibrated ceiling; None where none is known."""
    if measured.calibration is None:
        return None
    cell = measured.execution.cell
    streams = -(-(cell.concurrency or measured.max_in_flight or TYPICAL_STREAMS) // len(measured.runs))
    context_bytes = (cell.context_tokens or 0) * BYTES_PER_TOKEN
    shares = [
        measured.calibration.load_share(Shape(streams, event_bytes, context_bytes), rates[run.worker])
        for run in measured.runs
        if run.worker in rates and (event_bytes := run.evidence.event_bytes)
    ]
    return max((share for share in shares if share is not None), default=None)


def _worker_row(execution: Execution, run: CellRun) -> dict[str, Any]:
    """What a worker says of itself, as a row of `workers`."""
    return {
        "cell_id": execution.cell.cell_id,
        "repeat": execution.repeat,
        "worker": run.worker,
        **asdict(run.place),
        "transport": run.transport,
        "streams": run.streams or None,
        **asdict(run.evidence),
    }


def failed_cell(life: Life, execution: Execution, reason: str, live: LiveServer | None) -> dict[str, Any]:
    """The row of an execution that has no figures."""
    return {
        **_cell_identity(life, execution, live),
        "status": "failed",
        "failure": harmless(reason),
        "started_unix_ns": unix_ns(),
        **dict.fromkeys(("sent", "ok", "cut", "errors", "n"), 0),
        "outcomes": "{}",
        "checks": [],
        "check_details": [],
    }


def graded(run: Run, key: CellKey, grades: list[dict[str, Any]]) -> dict[str, Any]:
    """Writes an evaluation's grades, and its `cells` row with their counts; returns the row."""
    run.write_grades(key, grades)
    row: dict[str, Any] = run.read_cell("cells", key).to_pylist()[0]
    marks = [grade["mark"] for grade in grades]
    row |= {
        "passed": marks.count("PASS"),
        "graded": marks.count("PASS") + marks.count("FAIL"),
        "truncated": marks.count("TRUNC"),
        "problems": len(marks),
    }
    run.write_cell(row)
    return row


def statuses(run: Run) -> dict[CellKey, str]:
    """Done or failed, for each committed execution."""
    cells = run.read("cells").select(["cell_id", "repeat", "status"]).to_pylist()
    return {(row["cell_id"], row["repeat"]): row["status"] for row in cells}


def ungraded(run: Run) -> set[CellKey]:
    """Evaluations that were measured, and whose programs have not been run."""
    cells = run.read("cells").select(["cell_id", "repeat", "kind", "status", "passed"]).to_pylist()
    return {
        (row["cell_id"], row["repeat"])
        for row in cells
        if row["kind"] == "eval" and row["status"] == "done" and row["passed"] is None
    }


def search_steps(run: Run) -> dict[CellKey, Step]:
    """What finished executions measured, as steps of a search for saturation."""
    slots = {row["server_id"]: row["max_running_requests"] for row in run.read("servers").to_pylist()}
    return {
        (row["cell_id"], row["repeat"]): as_step(row, slots.get(row["server_id"]))
        for row in run.read("cells").to_pylist()
        if row["status"] == "done" and row["kind"] == "load" and row["concurrency"] is not None
    }


def as_step(row: dict[str, Any], slots: int | None) -> Step:
    """A row of `cells`, of a closed loop, as a step of a search."""
    return Step(row["concurrency"], row.get("output_tps"), "client_limited" in row["checks"], slots)


def write_verdict(run: Run, key: CellKey, verdict: Verdict) -> bool:
    """Writes a search's verdict into its row of `cells`; False when it stands there already."""
    row: dict[str, Any] = run.read_cell("cells", key).to_pylist()[0]
    said = {"saturation": str(verdict.limit), "saturation_detail": verdict.detail}
    if all(row.get(name) == text for name, text in said.items()):
        return False
    run.write_cell(row | said)
    return True


def mark_lost_servers(run: Run) -> None:
    """Lives that an earlier session left as ready ended with it, without a record of how."""
    for row in run.read("servers").to_pylist():
        if row["state"] == "ready" and row["control"] == "process":
            run.write_server({**row, "state": "lost", "failure": "its head node ended without stopping it"})


async def read_sample(execution: Execution, live: LiveServer, moment: str) -> dict[str, Any]:
    """The server's own counters now, as a row of `server_samples` (and its lag, if it is a simulator); of several
    servers the sums, and the worst lag.
    """
    readings = [await _read(target.endpoint, live) for target in live.targets]
    lags = [lag for _, lag in readings if lag is not None]
    read = _summed([metrics for metrics, _ in readings])
    return {
        "cell_id": execution.cell.cell_id,
        "repeat": execution.repeat,
        "server_id": live.server_id,
        "moment": moment,
        "simulated": live.simulated,
        "unix_ns": unix_ns(),
        "running_requests": _whole(read.get("sglang:num_running_reqs")),
        "queued_requests": _whole(read.get("sglang:num_queue_reqs")),
        **{column: read.get(name) for column, name in _COUNTERS.items()},
        "server_lag_p99_ms": max(lags, default=None),
    }


async def _read(url: str, live: LiveServer) -> tuple[dict[str, float], float | None]:
    async with open_endpoint(url, key_of(live)) as endpoint:
        try:
            metrics = await endpoint.metrics()
            info = await endpoint.server_info() if live.simulated else None
        except RunFailed:
            return (
                {},
                None,
            )  # a server that is gone has no counters; its death is recorded where it is noticed
    return metrics or {}, server_lag_p99_ms(info)


def _summed(readings: Sequence[dict[str, float]]) -> dict[str, float]:
    """Counters that every server gives, added up; a sum over some of them would be a guess."""
    shared = set.intersection(*(set(reading) for reading in readings))
    return {name: sum(reading[name] for reading in readings) for name in shared}


def _cell_identity(life: Life, execution: Execution, live: LiveServer | None) -> dict[str, Any]:
    cell = execution.cell
    return {
        "cell_id": cell.cell_id,
        "repeat": execution.repeat,
        "kind": cell.kind,
        "platform": cell.platform,
        "config": cell.config,
        "axes": json.dumps(dict(life.axes)),
        "workload": cell.workload,
        "context_tokens": cell.context_tokens,
        "max_tokens": cell.max_tokens,
        "temperature": cell.temperature,
        "concurrency": cell.concurrency,
        "rate": cell.rate,
        "arrivals": cell.arrivals,
        "server_id": live.server_id if live else None,
        "simulated": live.simulated if live else None,
        "time_scale": live.time_scale if live else None,
    }


def _common_window(runs: Sequence[CellRun], time_scale: float) -> Window:
    """The span in which every worker measured; workers of one host share its monotonic clock."""
    start_ns = max(run.window_start_ns for run in runs)
    end_ns = min(run.window_end_ns for run in runs)
    return Window(start_ns, max(start_ns, end_ns), time_scale)


def _with_phases(requests: pa.Table, window: Window) -> pa.Table:
    phases = [
        str(phase_of(sent_ns, window.start_ns, window.end_ns)) for sent_ns in requests["sent_ns"].to_pylist()
    ]
    place = requests.schema.get_field_index("phase")
    return requests.set_column(place, REQUESTS.schema.field("phase"), pa.array(phases, pa.string())).sort_by(
        "request_index"
    )


def _whole(value: float | None) -> int | None:
    """A gauge as a count. A metrics page may well say NaN."""
    return int(value) if value is not None and abs(value) < 2**63 else None
