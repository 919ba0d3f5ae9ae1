"""One invocation: what fails a run beside its cells is one line and an exit code."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from scripted_server import closed_port
from sim_fixtures import SimServer

from cluster import launch
from cluster.coordinator import Coordinator
from loadgen.calibration import Calibration, Ceiling, Shape, host_key, read_calibration, write_calibration
from loadgen.errors import BadInput, RunFailed
from loadgen.store import Run

SWEEP = """
name: small
platforms:
  - name: box
    server: {{control: external, endpoint: "http://127.0.0.1:{port}"}}
workloads:
  - {{context_tokens: 60, output_tokens: 16}}
load: {{concurrency: 1, measure_min_s: 1, measure_min_requests: 2}}
"""


def order_of(folder: Path, port: int) -> launch.Order:
    (folder / "sweep.yaml").write_text(SWEEP.format(port=port), encoding="utf-8")
    return launch.new_order(folder / "sweep.yaml", folder / "run", None)


def test_a_run_that_cannot_write_is_one_line_that_says_how_to_go_on(tmp_path, monkeypatch):
    """The disk fails when the cell has been measured; with space again, the run goes on."""
    whole = Run.commit_cell

    def full(self: Run, result: object) -> None:
        raise OSError(28, "No space left on device", str(self.path / "requests"))

    with SimServer("--time-scale", "40") as sim:
        order = order_of(tmp_path, sim.port)
        monkeypatch.setattr(Run, "commit_cell", full)
        with pytest.raises(RunFailed) as failure:
            launch.execute(order, Console(quiet=True), local=True, address=None)
        assert "No space left on device" in str(failure.value)
        assert f"--resume {tmp_path / 'run'}" in str(failure.value)

        monkeypatch.setattr(Run, "commit_cell", whole)
        resumed = launch.resumed_order(tmp_path / "run")
        run, code = launch.execute(resumed, Console(quiet=True), local=True, address=None)
    assert code == 0
    assert run.read("cells")["status"].to_pylist() == ["done"]
    events = run.read("journal")["event"].to_pylist()
    assert events.count("run_started") == events.count("run_resumed") == events.count("run_ended") == 1


def test_an_external_server_that_goes_away_fails_its_cells_and_the_run(tmp_path, monkeypatch):
    sims = [SimServer("--time-scale", "40")]
    begin = Coordinator.run

    async def after_the_preflight(self: Coordinator) -> None:
        sims.pop().__exit__()
        await begin(self)

    monkeypatch.setattr(Coordinator, "run", after_the_preflight)
    order = order_of(tmp_path, sims[0].port)
    run, code = launch.execute(order, Console(quiet=True), local=True, address=None)
    assert code == 1
    (cell,) = run.read("cells").to_pylist()
    assert cell["status"] == "failed"
    assert "cannot be reached" in cell["failure"]
    assert run.read("journal")["detail"].to_pylist()[-1] == "1 executions failed"


def test_nothing_is_made_when_the_server_is_not_there(tmp_path):
    order = order_of(tmp_path, closed_port())
    with pytest.raises(RunFailed, match="cannot be reached"):
        launch.execute(order, Console(quiet=True), local=True, address=None)
    assert not (tmp_path / "run").exists()


def test_a_host_without_a_core_for_each_load_worker_is_refused_before_anything_is_written(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    order = order_of(tmp_path, closed_port())
    with pytest.raises(RunFailed, match=r"1 load worker.* need 2 cores, this host has 1: lower clients"):
        launch.execute(order, Console(), local=False, address=None)
    assert not (tmp_path / "run").exists()


def test_a_trace_that_cannot_be_read_is_bad_input_before_anything_starts(tmp_path):
    (tmp_path / "t.csv").write_text("timestamp\n2\n1\n", encoding="utf-8")
    text = SWEEP.format(port=closed_port()).replace(
        "concurrency: 1", f"arrivals: {{trace: {tmp_path}/t.csv}}"
    )
    (tmp_path / "sweep.yaml").write_text(text, encoding="utf-8")
    with pytest.raises(
        BadInput, match=r"load.arrivals.trace: .*t.csv:3: 1 comes after 2; sort the trace by time"
    ):
        launch.new_order(tmp_path / "sweep.yaml", tmp_path / "run", None)


def test_the_host_and_its_calibration_go_into_the_run(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    ceiling = Ceiling(Shape(1, 480, 240), 50_000.0, "cpu", 0.2, 0.9, is_lower_bound=False)
    write_calibration(Calibration(host_key(), (ceiling,)))
    monkeypatch.setattr(launch, "host_warnings", lambda *_: ["the clock source is a sundial"])
    with SimServer("--time-scale", "40") as sim:
        order = order_of(tmp_path, sim.port)
        run, _ = launch.execute(order, Console(quiet=True), local=True, address=None)
    assert read_calibration(run.path / "calibration.json") == Calibration(host_key(), (ceiling,))
    (host,) = run.read("hosts").to_pylist()
    assert (host["calibrated_shapes"], host["kernel_stamps"]) == (1, True)
    assert host["disk_free_bytes"] > 0
    (cell,) = run.read("cells").to_pylist()
    assert 0 < cell["client_load_share"] < 1
    (worker,) = run.read("workers").to_pylist()
    assert (worker["transport"], worker["is_pinned"], worker["streams"]) == ("raw", False, 1)
    (server,) = run.read("servers").to_pylist()
    assert (server["end_marks"], server["token_counts"]) == ("finish_reason, [DONE]", "continuous_usage")
    warnings = [row["detail"] for row in run.read("journal").to_pylist() if row["event"] == "warning"]
    assert "the clock source is a sundial" in warnings


def test_a_host_that_cannot_carry_the_plan_is_refused_before_a_folder_is_made(tmp_path, monkeypatch):
    facts = launch.host_facts(tmp_path)
    monkeypatch.setattr(launch, "host_facts", lambda _: replace(facts, ephemeral_ports=0))
    order = order_of(tmp_path, closed_port())
    with pytest.raises(RunFailed, match="need as many ports"):
        launch.execute(order, Console(quiet=True), local=True, address=None)
    assert not (tmp_path / "run").exists()
