"""A sweep carried out in this process: failures are outcomes, a cell is whole or not there, and resuming is starting."""

import asyncio
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from cluster_fixtures import living
from scripted_server import closed_port

from cluster import launch, rows
from cluster.coordinator import Coordinator, Staff
from cluster.journal import Journal
from cluster.local import LocalClients, LocalGraders
from cluster.roles import Clients, Graders, WorkerLost
from cluster.servers import PlatformServer
from loadgen.client import CellJob, CellRun
from loadgen.config import parse_sweep
from loadgen.plan import Execution, make_plan
from loadgen.store import Run

SIM = (
    '[loadgen, sim, --time-scale, "40", --sim-startup-s, "0", --port, "{{port}}", --reasoning-parser, kimi_k2,'
    " --speculative-draft-model-path, draft, --speculative-ddtree-budget, {budget}]"
)
SWEEP = """
name: small
platforms:
  - name: box
    server:
      control: process
      endpoint: http://127.0.0.1:{port}
      command: {command}
      ready_timeout_s: 30
      stop_timeout_s: 10
axes:
  algorithm: {{flag: --speculative-algorithm}}
server_configs: {configs}
workloads:
  - {{context_tokens: 60, output_tokens: 16}}
load: {{{load}, measure_min_s: {measure_s}, measure_min_requests: 2, drain_max_s: 20}}
limits: {{request_timeout_s: 20}}
{more}
"""
PLAIN = "[{name: plain}]"


class Watched:
    """A watcher that keeps what it was told, and may act on it."""

    def __init__(self, on_cell: Callable[[Execution], None] = lambda _: None) -> None:
        self.servers: list[str] = []
        self.cells: list[tuple[str, str]] = []
        self._on_cell = on_cell

    def server(self, platform: str, text: str) -> None:
        self.servers.append(text)

    def cell_started(self, execution: Execution) -> None:
        self._on_cell(execution)

    def cell_ended(self, execution: Execution, row: Mapping[str, Any]) -> None:
        self.cells.append((execution.cell.cell_id, row["status"]))


class Rig:
    """One run folder; each `conduct` is a session on it."""

    def __init__(
        self,
        folder: Path,
        configs: str = PLAIN,
        more: str = "",
        command: str | None = None,
        measure_s: float = 2,
        load: str = "concurrency: [1, 2]",
    ) -> None:
        text = SWEEP.format(
            port=closed_port(),
            command=command or SIM.format(budget='"8"'),
            configs=configs,
            more=more,
            measure_s=measure_s,
            load=load,
        )
        self.text = text
        self.sweep = parse_sweep(text, "sweep.yaml")
        self.plan = make_plan(self.sweep, None)
        self.run = Run.create(folder / "run", config_text=text, plan={}, environment={})
        self.server: PlatformServer | None = None

    def conduct(
        self,
        watched: Watched | None = None,
        clients: Clients | None = None,
        graders: Graders | None = None,
        cancel_on: Callable[["Rig"], bool] | None = None,
    ) -> Watched:
        """A session. `cancel_on`: cancelled, as by Ctrl-C, when that is true."""
        watched = watched or Watched()
        platform = self.sweep.platforms[0]
        self.server = PlatformServer(platform, self.sweep.axes, self.run)
        staff = Staff(clients or LocalClients(), graders or LocalGraders(), {platform.name: self.server})
        coordinator = Coordinator(self.sweep, self.plan, self.run, Journal(self.run), staff, watched)

        async def work() -> None:
            running = asyncio.create_task(coordinator.run())
            while cancel_on is not None and not cancel_on(self) and not running.done():
                await asyncio.sleep(0.02)
            if cancel_on is not None:
                running.cancel()
            await running

        asyncio.run(work())
        return watched

    def kill_server(self) -> None:
        assert self.server is not None
        assert self.server.live is not None
        assert self.server.live.pid is not None
        os.kill(self.server.live.pid, signal.SIGKILL)

    def cells(self) -> dict[str, dict[str, Any]]:
        return {row["cell_id"]: row for row in self.run.read("cells").to_pylist()}

    def states(self) -> list[str]:
        servers = sorted(self.run.read("servers").to_pylist(), key=lambda row: row["started_unix_ns"])
        return [row["state"] for row in servers]

    def events(self) -> list[str]:
        journal = sorted(self.run.read("journal").to_pylist(), key=lambda row: row["seq"])
        return [row["event"] for row in journal]

    def is_clean(self) -> bool:
        return not any(living(row["server_id"]) for row in self.run.read("servers").to_pylist())


class LosesFirst(LocalClients):
    """Workers that are lost in their first cell."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    async def run(self, platform: str, jobs: Sequence[CellJob], timeout_s: float) -> list[CellRun]:
        self.calls += 1
        if self.calls == 1:
            raise WorkerLost("box-w0 was killed")
        return await super().run(platform, jobs, timeout_s)


class BreaksFirst(LosesFirst):
    """Workers whose first cell meets a mistake of ours."""

    async def run(self, platform: str, jobs: Sequence[CellJob], timeout_s: float) -> list[CellRun]:
        self.calls += 1
        if self.calls == 1:
            raise ZeroDivisionError("division by zero")
        return await LocalClients.run(self, platform, jobs, timeout_s)


class BrokenGraders(LocalGraders):
    async def grade(self, *_: Any) -> list[dict[str, Any]]:
        raise KeyError("problem")


class LostGraders(LocalGraders):
    async def grade(self, *_: Any) -> list[dict[str, Any]]:
        raise WorkerLost("the grader was killed")


def test_a_sweep_to_its_end_with_grades_and_a_journal_in_order(tmp_path):
    rig = Rig(tmp_path, more="grading: {max_tokens: 4096}")
    watched = rig.conduct()
    cells = rig.cells()
    assert {row["status"] for row in cells.values()} == {"done"}
    graded = cells["box.plain.eval"]
    assert (graded["passed"], graded["graded"], graded["problems"]) == (5, 5, 5)
    assert rig.run.read("grades").num_rows == 5
    assert rig.events() == [
        "server_starting",
        "server_ready",
        "server_form",
        *("cell_started", "cell_committed", "graded"),
        *("cell_started", "cell_committed") * 2,
        "server_stopped",
    ]
    assert [status for _, status in watched.cells] == ["done"] * 3
    assert rig.states() == ["stopped"]
    samples = rig.run.read("server_samples")
    assert sorted(samples["moment"].to_pylist()) == ["after"] * 3 + ["before"] * 3
    assert rig.is_clean()


def test_a_start_that_fails_is_the_outcome_of_its_cells_and_the_next_config_runs(tmp_path):
    configs = "[{name: bad, fixed: {algorithm: NONSENSE}}, {name: good, fixed: {algorithm: DDTREE}}]"
    rig = Rig(tmp_path, configs)
    rig.conduct()
    cells = rig.cells()
    failed = [row for row in cells.values() if row["status"] == "failed"]
    assert {row["config"] for row in failed} == {"bad"}
    assert len(failed) == 2
    assert all(row["failure"] == "it ended before it was ready (exit code 1)" for row in failed)
    assert {row["status"] for row in cells.values() if row["config"] == "good"} == {"done"}
    assert rig.states() == ["failed", "stopped"]
    assert rig.events()[:5] == [
        "server_starting", "server_failed", "cell_failed", "cell_failed", "server_starting",
    ]  # fmt: skip
    assert rig.is_clean()


def test_a_death_in_a_cell_restarts_the_server_and_a_second_one_is_the_cells_outcome(tmp_path):
    rig = Rig(tmp_path)
    deaths = iter(["c1", "c1"])

    def kill(execution: Execution) -> None:
        if next(deaths, None):
            rig.kill_server()

    rig.conduct(Watched(kill))
    cells = rig.cells()
    assert cells["box.plain.text.ctx60.c1"]["status"] == "failed"
    assert cells["box.plain.text.ctx60.c1"]["failure"] == "the server died (killed by signal 9)"
    assert cells["box.plain.text.ctx60.c2"]["status"] == "done"
    assert "restarted" not in cells["box.plain.text.ctx60.c2"]["checks"]
    assert rig.states() == ["died", "died", "stopped"]
    assert rig.events().count("server_died") == 2


DYING = """
import http.server, json, os, sys, time

# As SGLang when a scheduler dies: connections are refused at once, and the process exits some time later.
class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.say({"data": [{"id": "m"}]}) if self.path == "/v1/models" else self.say({}, 404)

    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "stream" in asked and asked["stream"]:
            os._exit(1)
        self.say({"choices": [{}], "usage": {"prompt_tokens": 60}} if "messages" in asked else {}, 200 if "messages" in asked else 404)

    def say(self, value, status=200):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass

if os.fork():
    os.wait()
    time.sleep(1.5)
    sys.exit(137)
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Answers).serve_forever()
"""


def test_a_server_that_refuses_before_it_exits_has_died_and_its_cell_is_no_result(tmp_path):
    (tmp_path / "dying.py").write_text(DYING, encoding="utf-8")
    rig = Rig(tmp_path, command=f'["{{python}}", "{tmp_path}/dying.py", "{{port}}"]', measure_s=0.2)
    rig.conduct()
    assert {row["failure"] for row in rig.cells().values()} == {"the server died (exit code 137)"}
    assert rig.states() == ["died"] * 4
    assert rig.is_clean()


def test_lost_workers_fail_their_cell_and_resuming_runs_what_is_missing_alone(tmp_path):
    rig = Rig(tmp_path)
    rig.conduct(clients=LosesFirst())
    cells = rig.cells()
    assert cells["box.plain.text.ctx60.c1"]["failure"] == "box-w0 was killed"
    assert cells["box.plain.text.ctx60.c2"]["status"] == "done"
    assert rig.states() == ["stopped"]

    watched = rig.conduct()
    assert watched.cells == [("box.plain.text.ctx60.c1", "done")]
    assert {row["status"] for row in rig.cells().values()} == {"done"}
    assert rig.cells()["box.plain.text.ctx60.c2"] == cells["box.plain.text.ctx60.c2"]

    assert rig.conduct().servers == [], "with nothing left, no server is started"


def test_a_mistake_of_ours_fails_its_cell_with_its_words_and_the_sweep_goes_on(tmp_path):
    rig = Rig(tmp_path)
    rig.conduct(clients=BreaksFirst())
    cells = rig.cells()
    words = (
        "ZeroDivisionError: division by zero (not foreseen by loadgen; the traceback is in logs/faults.log)"
    )
    assert cells["box.plain.text.ctx60.c1"]["failure"] == words
    assert cells["box.plain.text.ctx60.c2"]["status"] == "done"
    assert words in rig.run.read("journal")["detail"].to_pylist()
    log = (rig.run.path / "logs" / "faults.log").read_text(encoding="utf-8")
    assert "Traceback (most recent call last)" in log
    assert 'raise ZeroDivisionError("division by zero")' in log
    assert launch._end(rig.run, Journal(rig.run), interrupted=False) == 1

    assert rig.conduct().cells == [("box.plain.text.ctx60.c1", "done")]
    assert launch._end(rig.run, Journal(rig.run), interrupted=False) == 0


def test_a_mistake_of_ours_in_grading_leaves_the_answers_to_be_graded(tmp_path):
    rig = Rig(tmp_path, more="grading: {max_tokens: 4096}")
    rig.conduct(graders=BrokenGraders())
    assert {row["status"] for row in rig.cells().values()} == {"done"}
    assert rows.ungraded(rig.run) == {("box.plain.eval", 0)}
    assert any(
        detail.startswith("not graded: KeyError: 'problem' (not foreseen")
        for detail in rig.run.read("journal")["detail"].to_pylist()
        if detail
    )
    rig.conduct()
    assert rig.cells()["box.plain.eval"]["passed"] == 5


def test_an_evaluation_that_was_not_graded_is_graded_by_the_next_session(tmp_path):
    rig = Rig(tmp_path, more="grading: {max_tokens: 4096}")
    rig.conduct(graders=LostGraders())
    assert rig.cells()["box.plain.eval"]["passed"] is None
    assert rows.ungraded(rig.run) == {("box.plain.eval", 0)}
    assert "not graded: the grader was killed" in rig.run.read("journal")["detail"].to_pylist()
    assert launch._end(rig.run, Journal(rig.run), interrupted=False) == 1

    watched = rig.conduct()
    assert rig.cells()["box.plain.eval"]["passed"] == 5
    assert watched.servers == [], "its answers are there; no server is needed"
    assert launch._end(rig.run, Journal(rig.run), interrupted=False) == 0


def test_ctrl_c_while_a_server_starts_and_in_mid_cell_leaves_nothing_behind(tmp_path):
    rig = Rig(tmp_path)
    for moment in (
        lambda rig: rig.server._process is not None,
        lambda rig: "cell_started" in rig.events(),
    ):
        with pytest.raises(asyncio.CancelledError):
            rig.conduct(cancel_on=moment)
        assert rig.is_clean()
        assert rig.cells() == {}
    assert rig.states() == ["failed", "stopped"]


def test_a_full_disk_ends_the_run_as_one_error_and_no_server_is_left(tmp_path):
    rig = Rig(tmp_path)

    def fill_disk(_: Execution) -> None:
        (tmp_path / "run" / "requests").rename(tmp_path / "gone")

    with pytest.raises(OSError, match="requests"):
        rig.conduct(Watched(fill_disk))
    assert rig.is_clean()
    assert rig.states() == ["stopped"]
