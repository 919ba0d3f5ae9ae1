"""Servers that misbehave under load, as a user meets them: by `loadgen run`, its tables and its report."""

import json
from typing import Any

from fault_fixtures import fault_server

from loadgen.metrics import accounting_faults
from loadgen.store import Run

_STREAMS = 1024
_S = 1_000_000_000

STALL = """
name: stall
platforms:
  - name: box
    server: {{control: external, endpoint: "http://127.0.0.1:{port}"}}
workloads:
  - {{context_tokens: 60, output_tokens: 16}}
load:
  arrivals: {{trace: trace.txt}}
  warmup_requests_per_stream: 0
  warmup_until_stationary: false
  measure_min_s: 0
  drain_max_s: 60
limits: {{idle_timeout_s: 4}}
clients: {{allow_shared_cores: true}}
"""
FREEZE = """
name: freeze
platforms:
  - name: box
    server: {{control: external, endpoint: "http://127.0.0.1:{port}"}}
workloads:
  - {{context_tokens: 60, output_tokens: 8}}
load:
  concurrency: 1
  rate: 50
  arrivals: constant
  max_in_flight: 2
  ramp_s: 0
  warmup_until_stationary: false
  measure_min_s: 12
  measure_max_s: 12
clients: {{allow_shared_cores: true}}
"""


def test_one_stalled_stream_of_1024_costs_itself_and_nothing_else(cli: Any) -> None:
    (cli.folder / "trace.txt").write_text("".join(f"{n / 2048:.4f}\n" for n in range(_STREAMS)))
    pace = ":first_s=1:gap_s=0.3"
    with fault_server(f"healthy{pace}*{_STREAMS - 1},stall:after=2{pace}") as server:
        (cli.folder / "sweep.yaml").write_text(STALL.format(port=server.port))
        code, output = cli.run("run", "sweep.yaml", "--out", "run", "--local")

    assert code == 0, output
    run = Run.open(cli.folder / "run")
    (cell,) = run.read("cells").to_pylist()
    assert cell["status"] == "done"
    counted = {outcome: n for outcome, n in json.loads(cell["outcomes"]).items() if n}
    assert counted == {"ok": _STREAMS - 1, "idle_timeout": 1}
    requests = run.read("requests")
    assert requests.num_rows == cell["sent"] == _STREAMS
    assert accounting_faults(requests, cell["sent"]) == []
    rows = requests.to_pylist()
    in_flight = [row for row in rows if row["sent_ns"] < min(other["done_ns"] for other in rows)]
    assert len(in_flight) == _STREAMS, "all were open at once"
    (stalled,) = (row for row in rows if row["outcome"] == "idle_timeout")
    assert len(stalled["chunk_ns"]) == 2
    waited_ns = stalled["done_ns"] - stalled["last_token_ns"]
    assert 4 * _S <= waited_ns < 8 * _S, "its own idle limit ended it"
    assert max(row["done_ns"] for row in rows) == stalled["done_ns"], "and that ended the cell"
    code, output = cli.run("report", "run")
    assert code == 0
    assert "idle_timeout" in output


def test_a_freeze_shows_from_the_plan_and_hides_from_sending_and_in_a_closed_loop(cli: Any) -> None:
    with fault_server("freeze:every_s=10:lasts_s=2,healthy:first_s=0.005:gap_s=0.002") as server:
        (cli.folder / "sweep.yaml").write_text(FREEZE.format(port=server.port))
        code, output = cli.run("run", "sweep.yaml", "--out", "run", "--local")

    assert code == 0, output
    run = Run.open(cli.folder / "run")
    cells = {row["arrivals"]: row for row in run.read("cells").to_pylist()}
    open_loop, closed_loop = cells["constant"], cells[None]
    for cell in cells.values():
        assert cell["status"] == "done"
        assert cell["errors"] == 0
        assert cell["n"] >= 200, "a freeze that holds one or two of them is below p99"
        assert cell["ttft_from_sent_max_ms"] > 1500, "it was frozen, and the largest value says so"
    assert open_loop["ttft_from_plan_p99_ms"] > 1500
    assert open_loop["ttft_from_sent_p99_ms"] < 500
    assert closed_loop["ttft_from_sent_p99_ms"] < 500
    assert open_loop["ttft_p99_ms"] == open_loop["ttft_from_plan_p99_ms"], "an open loop counts from the plan"
    assert closed_loop["ttft_p99_ms"] == closed_loop["ttft_from_sent_p99_ms"]
    assert "behind_schedule" in open_loop["checks"]
    page = (cli.folder / "run" / "report.md").read_text(encoding="utf-8")
    planned, sent = open_loop["ttft_from_plan_p99_ms"], open_loop["ttft_from_sent_p99_ms"]
    assert "TTFT from the plan p99 ms" in page
    assert "TTFT from sending p99 ms" in page
    assert any(f"| {planned:.0f} |" in line and f"| {sent:.1f} |" in line for line in page.splitlines())
