"""A crash, a kill or Ctrl-C at any moment leaves a run that opens, reports and resumes."""

import contextlib
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from cluster.processes import LIFE_VARIABLE
from loadgen.store import Run

_PLANNED = 10


def test_kill_9_in_mid_sweep_then_resume_runs_only_what_is_missing(cli):
    sweep = cli.write_sweep(measure_s=20)
    process = cli.start("run", sweep.name, "--out", "run")
    run_folder = cli.folder / "run"
    _wait_for(lambda: len(_cells(run_folder)) >= 2, process)
    process.kill()
    process.wait()
    before = _cells(run_folder)

    code, output = cli.run("run", "--resume", "run")

    assert code == 0, output
    run = Run.open(run_folder)
    assert len(run.committed()) == _PLANNED
    after = _cells(run_folder)
    assert {name: after[name] for name in before} == before, "a finished cell was run again"
    assert "not run again" in output
    assert "10 of 10" in output
    states = sorted(run.read("servers")["state"].to_pylist())
    assert states == ["lost", "stopped", "stopped"]
    events = run.read("journal")["event"].to_pylist()
    assert "orphan_stopped" in events, "the first server outlived its head and was in the way"
    assert not _servers_of(run_folder)


def test_ctrl_c_ends_within_seconds_and_the_run_opens_and_resumes(cli):
    sweep = cli.write_sweep(measure_s=200)
    process = cli.start("run", sweep.name, "--out", "run")
    run_folder = cli.folder / "run"
    _wait_for(lambda: len(_cells(run_folder)) >= 1, process)
    time.sleep(1)
    began = time.monotonic()
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)

    assert process.returncode == 130, output
    assert time.monotonic() - began < 30
    assert "--resume run" in output
    assert "Traceback" not in output
    run = Run.open(run_folder)
    assert run.read("servers")["state"].to_pylist() == ["stopped"]
    assert run.read("journal")["event"].to_pylist()[-1] == "interrupted"
    assert (run_folder / "report.html").exists()
    assert not _servers_of(run_folder)
    code, output = cli.run("report", "run")
    assert code == 0
    assert f"{len(run.committed())} of {_PLANNED}" in output


def test_a_server_that_dies_in_a_cell_is_started_again_and_the_cell_says_so(cli):
    sweep = cli.write_sweep(measure_s=40)
    process = cli.start("run", sweep.name, "--out", "run", "--local")
    run_folder = cli.folder / "run"
    _wait_for(lambda: len(_cells(run_folder)) >= 1, process)
    time.sleep(0.3)
    (server,) = _servers_of(run_folder)
    server.kill()
    output, _ = process.communicate(timeout=120)

    assert process.returncode == 0, output
    run = Run.open(run_folder)
    assert len(run.committed()) == _PLANNED
    states = sorted(run.read("servers")["state"].to_pylist())
    assert states == ["died", "stopped", "stopped"]
    restarted = [row["cell_id"] for row in run.read("cells").to_pylist() if "restarted" in row["checks"]]
    assert len(restarted) == 1


def _cells(run_folder: Path) -> dict[str, int]:
    """Committed cell files and when they were written."""
    return {
        path.name: path.stat().st_mtime_ns
        for path in (run_folder / "cells").glob("*.parquet")
        if path.name != "schema.parquet"
    }


def _wait_for(condition: Callable[[], bool], process: subprocess.Popen[str], within_s: float = 120) -> None:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        assert process.poll() is None, process.communicate()[0]
        if condition():
            return
        time.sleep(0.05)
    raise AssertionError("it did not come that far in time")


def _servers_of(run_folder: Path) -> list[psutil.Process]:
    """Living server processes that belong to lives of the run."""
    lives = {row["server_id"] for row in Run.open(run_folder).read("servers").to_pylist()}
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(LIFE_VARIABLE) in lives and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found
