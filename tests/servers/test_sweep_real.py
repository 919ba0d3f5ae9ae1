"""`loadgen run`, as a user types it, on servers that we did not write: SGLang over an NGRAM axis, llama.cpp.

The SGLang sweep runs on the simulator too, with the same assertions.
"""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from live_server import free_port

from loadgen.store import Run

ROOT = Path(__file__).resolve().parents[2]

NGRAM_SWEEP = """
name: ngram
platforms:
  - name: cpu
    server:
      control: process
      endpoint: http://127.0.0.1:{port}
      command: [{program}, --port, "{{port}}", --served-model-name, scripted, --random-seed, "7", --reasoning-parser, kimi_k2,
                --max-running-requests, "8", --context-length, "8192", --enable-metrics, --enable-cache-report,
                --speculative-algorithm, NGRAM, --speculative-ngram-max-bfs-breadth, "1"]
      ready_timeout_s: 300
      stop_timeout_s: 30
axes:
  draft_tokens: {{flag: --speculative-num-draft-tokens}}
server_configs:
  - name: ngram
    grid: {{draft_tokens: [4, 8]}}
workloads:
  - {{context_tokens: 512, output_tokens: 48}}
load: {{concurrency: [1, 4], measure_min_s: 1}}
grading: {{max_tokens: 4096}}
"""


def loadgen(*words: str, timeout_s: float = 900) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "cluster.cli", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        env={**os.environ, "COLUMNS": "200"},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rows(run: Run, table: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = run.read(table).to_pylist()
    return found


@pytest.fixture(
    params=["sim", pytest.param("sglang", marks=[pytest.mark.real_sglang, pytest.mark.timeout(1200)])]
)
def program(request: pytest.FixtureRequest) -> str:
    """The server's program, as words of a YAML list."""
    if request.param == "sim":
        return 'loadgen, sim, --time-scale, "10"'
    venv = request.config.getoption("--real-sglang")
    if venv is None:
        pytest.skip("needs --real-sglang DIR (make test-sglang)")
    return f'"{{python}}", tests/servers/sglang/launch.py, {Path(venv).resolve()}'


def test_a_sweep_restarts_sglang_over_an_ngram_axis_reads_acceptance_and_grades(program, tmp_path):
    config = tmp_path / "ngram.yaml"
    config.write_text(NGRAM_SWEEP.format(port=free_port(), program=program), encoding="utf-8")

    output = loadgen("run", str(config), "--out", str(tmp_path / "run"))

    run = Run.open(tmp_path / "run")
    servers = rows(run, "servers")
    assert [server["state"] for server in servers] == ["stopped", "stopped"]
    assert len({server["pid"] for server in servers}) == 2
    assert all(server["version"] == "0.5.23" for server in servers)
    assert all(server["max_running_requests"] == 8 for server in servers)
    assert all(server["proof"] == '{"draft_tokens": "verified"}' for server in servers)

    requests = rows(run, "requests")
    assert {request["outcome"] for request in requests} <= {"ok", "cut"}
    answered = [request for request in requests if request["outcome"] == "ok"]
    loads = [request for request in answered if request["problem"] is None]
    assert all(request["spec_verify_steps"] > 0 for request in answered)
    for request in answered:
        exact = request["output_tokens"] / request["spec_verify_steps"]
        assert request["spec_accept_length"] == pytest.approx(exact, rel=0.01)
    assert all(request["token_source"] == "continuous_usage" for request in answered)
    assert all(request["chunk_tokens"][-1] <= request["output_tokens"] for request in answered)
    assert all(request["output_tokens"] == 48 for request in loads)
    assert all(abs(request["prompt_tokens"] - 512) <= 8 for request in loads)

    cells = [cell for cell in rows(run, "cells") if cell["kind"] == "load"]
    assert len(cells) == 4
    assert all(cell["accept_length"] > 1 and cell["output_tps"] > 0 for cell in cells)
    grades = rows(run, "grades")
    assert [grade["mark"] for grade in grades] == ["PASS"] * 10
    assert "5/5 passed" in output


@pytest.mark.smollm2
@pytest.mark.timeout(600)
def test_a_sweep_on_llama_cpp_counts_tokens_as_the_server_does(tmp_path):
    output = loadgen("run", "configs/smollm2.yaml", "--out", str(tmp_path / "run"))

    run = Run.open(tmp_path / "run")
    requests = rows(run, "requests")
    answered = [request for request in requests if request["outcome"] == "ok"]
    assert len(answered) == len(requests)
    for request in answered:
        assert request["token_source"] == "usage"
        assert request["chunk_tokens"] is None, "this server gives no running count: unknown, not guessed"
        # one chunk a token; the end token counts and has no chunk
        extra = 1 if request["finish_reason"] == "stop" else 0
        assert request["output_tokens"] == len(request["chunk_ns"]) + extra
        assert request["prompt_tokens"] > 0
    cells = {cell["cell_id"]: cell for cell in rows(run, "cells")}
    assert len(cells) == 6
    marked = cells["this-cpu.llamacpp-parallel2.prose.ctx64.c4"]
    assert "queue_measured" in marked["checks"], "two slots, four streams"
    assert "queue_measured" not in cells["this-cpu.llamacpp-parallel4.prose.ctx64.c4"]["checks"]
    grades = rows(run, "grades")
    assert len(grades) == 10
    assert {grade["mark"] for grade in grades} <= {"PASS", "FAIL", "TRUNC", "NONE"}
    assert "PASS" in {grade["mark"] for grade in grades}, "even this model writes merge_sorted"
    assert "tok/s average" in output
