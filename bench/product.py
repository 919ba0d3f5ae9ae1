"""The product's own tables against the sink's stamps: a cell run by `loadgen run`, its TTFT, TPOT and gaps beside the truth."""

import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench.figures import MS, quantiles
from bench.host import CLIENT_PRIORITY, SINK_PRIORITY
from bench.host import neighbour as another_program
from bench.stage import Figure, Result, Stage, last_line, median
from loadgen.errors import RunFailed
from loadgen.sink import Sink, running_sink, truth
from loadgen.sink.truth import SentRequest
from loadgen.store import Run

STREAMS = 1024
_TTFT_US = 200_000
_PATIENCE_S = 300.0
_GOAL_MS = 0.2
_CONFIG = """
name: bench
seed: 1
platforms:
  - name: sink
    server: {{control: external, endpoint: "{url}"}}
workloads:
  - {{name: prose, context_tokens: 256, output_tokens: {chunks}, temperature: 0}}
load:
  concurrency: [{streams}]
  warmup_requests_per_stream: 1
  warmup_until_stationary: false
  measure_requests_per_stream: 2
  measure_min_s: 1
  measure_max_s: 120
"""


def product(stage: Stage) -> list[Figure]:
    """A cell run by `loadgen run` at 20,000 chunks/s: its tables beside the sink's stamps"""
    return _figures(_cells(stage, rate=20_000))


def product_neighbour(stage: Stage) -> list[Figure]:
    """The same cell with the neighbour on the client's core"""
    return _figures(_cells(stage, rate=20_000, has_neighbour=True))


def product_overdriven(stage: Stage) -> list[Figure]:
    """A cell with more chunks/s than one core can read: it must say so itself"""
    results = _cells(stage, rate=250_000, repeats=1)
    is_said = median(results, "is_client_limited")
    return [Figure("cells marked client_limited", is_said, "", at_least=1)]


def _figures(results: Sequence[Result]) -> list[Figure]:
    names = {"ttft_ms": "TTFT", "tpot_ms": "TPOT", "gap_ms": "gap"}
    errors = [
        Figure(f"{said} {point}: error", _error(results, name, point), "ms", at_most=_GOAL_MS)
        for name, said in names.items()
        for point in ("p50", "p99")
    ]
    return [
        *errors,
        Figure("gap p99 as sent", median(results, "true", "gap_ms", "p99"), "ms"),
        Figure("share of events that shared a read", median(results, "shared_share"), ""),
        Figure("requests that are not ok", median(results, "failed"), "", at_most=0),
    ]


def _error(results: Sequence[Result], name: str, point: str) -> float | None:
    return median([{"error": _difference(result, name, point)} for result in results], "error")


def _difference(result: Result, name: str, point: str) -> float:
    return abs(float(result["tables"][name][point]) - float(result["true"][name][point]))


def _cells(
    stage: Stage, rate: int, *, has_neighbour: bool = False, repeats: int | None = None
) -> list[dict[str, Any]]:
    host = stage.host
    interval_us = round(STREAMS * 1e6 / rate)
    chunks = max(3, round(stage.seconds * 1e6 / interval_us))
    options = ["-i", str(interval_us), "-t", str(_TTFT_US), "-n", str(chunks)]
    results = []
    for number in range(repeats or stage.repeats):
        with (
            tempfile.TemporaryDirectory() as folder,
            running_sink(*options, prefix=host.pinned(host.sink_core, SINK_PRIORITY)) as sink,
            another_program(host) if has_neighbour else nullcontext(),
        ):
            run = _run(stage, sink, Path(folder), chunks)
            result = _compare(run, sink)
        stage.record.append({"repeat": number, "neighbour": has_neighbour, **result})
        stage.say(f"  {STREAMS} streams, {result['requests']} requests in the window")
        results.append(result)
    return results


def _run(stage: Stage, sink: Sink, folder: Path, chunks: int) -> Run:
    config = folder / "bench.yaml"
    config.write_text(_CONFIG.format(url=sink.url, chunks=chunks, streams=STREAMS), encoding="utf-8")
    program = Path(sys.executable).with_name("loadgen")
    command = [
        *stage.host.pinned(stage.host.client_core, CLIENT_PRIORITY),
        *(str(program), "run", str(config), "--local", "--out", str(folder / "run")),
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise RunFailed(f"no end within {_PATIENCE_S:.0f} s: {' '.join(command)}") from error
    if done.returncode != 0:
        raise RunFailed(f"loadgen run ended with {done.returncode}: {last_line(done.stderr or done.stdout)}")
    return Run.open(folder / "run")


def _compare(run: Run, sink: Sink) -> dict[str, Any]:
    requests = run.read("requests")
    window = requests.filter(pc.equal(requests["phase"], "measure"))
    checks = {name for names in run.read("cells")["checks"].to_pylist() for name in names}
    sent = sent_in(window, truth.requests(sink.url))
    return {
        "requests": len(window),
        "failed": pc.sum(pc.not_equal(window["outcome"], "ok")).as_py(),
        "shared_share": pc.sum(window["shared_events"]).as_py() / pc.sum(window["choice_events"]).as_py(),
        "is_client_limited": int("client_limited" in checks),
        "checks": sorted(checks),
        "tables": from_tables(window),
        "true": from_truth(sent, truth.stamps(sink.url)),
    }


def sent_in(window: pa.Table, sent: Sequence[SentRequest]) -> list[SentRequest]:
    """The sink's rows of the requests of the window: as many, from the first that it read after the window's first."""
    from_ns = pc.min(window["sent_ns"]).as_py()
    later = sorted((row for row in sent if row.read_ns >= from_ns), key=lambda row: row.read_ns)
    return later[: len(window)]


def from_tables(window: pa.Table) -> Mapping[str, Any]:
    """TTFT, TPOT and gaps as the product's rows have them."""
    ok = window.filter(pc.equal(window["outcome"], "ok"))
    arrivals = [
        np.array(row, np.int64) for row in ok["chunk_ns"].to_pylist()
    ]  # ns since the request was sent
    return {
        "ttft_ms": quantiles(np.array([times[0] for times in arrivals]), MS),
        "tpot_ms": quantiles(np.array([(times[-1] - times[0]) / (len(times) - 1) for times in arrivals]), MS),
        "gap_ms": quantiles(np.concatenate([np.diff(times) for times in arrivals]), MS),
    }


def from_truth(sent: Sequence[SentRequest], stamps: Any) -> Mapping[str, Any]:
    """The same of the sink's stamps."""
    kept = stamps[np.isin(stamps["request"], [row.request for row in sent])]
    kept = kept[np.lexsort((kept["chunk"], kept["request"]))]
    gaps = np.diff(kept["sent_ns"])[np.diff(kept["request"]) == 0]
    tpots = [(row.last_ns - row.first_ns) / (row.chunks - 1) for row in sent]
    return {
        "ttft_ms": quantiles(np.array([row.first_ns - row.read_ns for row in sent]), MS),
        "tpot_ms": quantiles(np.array(tpots), MS),
        "gap_ms": quantiles(gaps, MS),
    }
