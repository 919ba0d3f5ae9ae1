"""What was measured -> rows: several workers as one cell, failed cells, grades, and counters of a server that talks nonsense."""

import asyncio
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from cluster_fixtures import a_life, new_run
from scripted_server import Peer, Request, closed_port, scripted

from cluster import rows
from cluster.servers import LiveServer
from loadgen.calibration import Calibration, Ceiling, Shape
from loadgen.job import CellRun, Target
from loadgen.load.evidence import WorkerEvidence
from loadgen.load.place import Place
from loadgen.plan import Cell, Execution
from loadgen.records import ChunkKind, Outcome, Phase, RequestRecord
from loadgen.saturation import Limit, Step, Verdict
from loadgen.tables import GRADES, RESPONSES, RequestContext, requests_table

S = 1_000_000_000
LOAD = Execution(Cell("box.plain.c2", "load", "box", "plain", "text", 60, 16, 0.0, 2), 1)
EVAL = Execution(Cell("box.plain.eval", "eval", "box", "plain", "classic", None, 512, 0.0, 1), 0)


def live_at(url: str, **more: Any) -> LiveServer:
    facts = {
        "server_id": "box.plain.1", "endpoint": url, "api_key_env": None, "model": "m", "simulated": False,
        "time_scale": 1.0, "max_running_requests": None, "proof": {}, "pid": None, "ready_s": 1.0,
    }  # fmt: skip
    return LiveServer(**{**facts, **more})


def worker_evidence(loop_lag_p99_ms: float | None, cpu: float) -> WorkerEvidence:
    known = {"wall_s": 1.0, "cpu_s": cpu, "loop_lag_p99_ms": loop_lag_p99_ms}
    whole = {field.name: None if "None" in str(field.type) else 0 for field in fields(WorkerEvidence)}
    return WorkerEvidence(**{**whole, **known})


def part(worker: str, sent_s: dict[int, float], window_s: tuple[float, float], **more: Any) -> CellRun:
    """What a worker brings back: requests by index and when each was sent; each takes a second."""
    records = [
        RequestRecord(
            index, Phase.MEASURE, round(at * S), 16, sent_ns=round(at * S), done_ns=round((at + 1) * S),
            outcome=Outcome.OK, output_tokens=16,
        )
        for index, at in sent_s.items()
    ]  # fmt: skip
    context = RequestContext(LOAD.cell.cell_id, 1, "box", "box.plain.1", worker, 1.0)
    lag_ms, cpu = more.pop("loop_lag_p99_ms", 1.0), more.pop("cpu", 0.1)
    place = Place("here", 4711, (1,), is_pinned=True)
    own = {"worker": worker, "streams": 1, "place": place, "transport": "raw"}
    facts = {"complete": True, "evidence": worker_evidence(lag_ms, cpu), **own, **more}
    empty = RESPONSES.schema.empty_table()
    return CellRun(requests_table(records, context), empty, *(round(at * S) for at in window_s), **facts)


def measured(*runs: CellRun, **more: Any) -> rows.Measured:
    sample = {
        "cell_id": LOAD.cell.cell_id, "repeat": 1, "server_id": "box.plain.1", "moment": "after", "unix_ns": 1,
        "server_lag_p99_ms": None,
    }  # fmt: skip
    facts = {"samples": [sample], "was_restarted": False, **more}
    return rows.Measured(a_life(), LOAD, live_at("http://127.0.0.1:1"), runs, 7, **facts)


def test_the_window_is_the_span_in_which_every_worker_measured_and_phases_follow_it():
    first = part("w0", {0: 9.0, 2: 10.5, 4: 19.5}, (10, 20), loop_lag_p99_ms=3.0, cpu=0.2)
    second = part("w1", {1: 10.5, 3: 11.5, 5: 18.0}, (11, 19), loop_lag_p99_ms=None, cpu=0.7)
    result = rows.cell_result(measured(first, second))
    cell = result.cell
    assert (cell["window_start_ns"], cell["window_end_ns"], cell["window_s"]) == (11 * S, 19 * S, 8.0)
    phases = dict(
        zip(result.requests["request_index"].to_pylist(), result.requests["phase"].to_pylist(), strict=True)
    )
    assert list(phases.items()) == [
        (0, "warmup"), (1, "warmup"), (2, "warmup"), (3, "measure"), (4, "drain"), (5, "measure"),
    ]  # fmt: skip
    assert (cell["sent"], cell["ok"], cell["n"]) == (6, 6, 2)
    assert (cell["loop_lag_p99_ms"], cell["worker_cpu"]) == (3.0, 0.7)
    assert set(result.requests["worker"].to_pylist()) == {"w0", "w1"}
    said = [(row["worker"], row["cpu_s"], row["cores"]) for row in result.workers.to_pylist()]
    assert said == [("w0", 0.2, [1]), ("w1", 0.7, [1])]
    assert (cell["repeat"], cell["started_unix_ns"], cell["status"]) == (1, 7, "done")


def test_a_cell_knows_its_servers_counters_and_whether_its_sums_come_out():
    at_rest = {"cell_id": LOAD.cell.cell_id, "repeat": 1, "server_id": "box.plain.1", "unix_ns": 1,
               "running_requests": 0, "server_lag_p99_ms": None}  # fmt: skip
    samples = [
        {**at_rest, "moment": "before", "output_tokens_total": 900.0, "spec_verify_steps_total": 300.0},
        {**at_rest, "moment": "after", "output_tokens_total": 1300.0, "spec_verify_steps_total": 350.0},
    ]
    cell = rows.cell_result(measured(part("w0", {0: 10.5}, (10, 20)), samples=samples)).cell
    assert (cell["accept_length"], cell["accept_length_source"]) == (8.0, "counters")
    assert "accounting" not in cell["checks"]
    twice = measured(part("w0", {0: 10.5}, (10, 20)), part("w1", {0: 11.5}, (10, 20)))
    assert "accounting" in rows.cell_result(twice).cell["checks"]


def test_a_cell_takes_the_share_of_its_ceiling_that_its_busiest_worker_takes():
    def busy(worker: str, index: int, chunks: int) -> CellRun:
        run = part(worker, {index: 10.5}, (10, 20))
        arrivals = [10 * S + S // 2 + n * S // 1000 for n in range(chunks)]
        record = RequestRecord(
            index, Phase.MEASURE, arrivals[0], 16, sent_ns=arrivals[0], done_ns=12 * S, outcome=Outcome.OK,
            chunk_ns=arrivals, chunk_kind=[ChunkKind.ANSWER] * chunks,
        )  # fmt: skip
        context = RequestContext(LOAD.cell.cell_id, 1, "box", "box.plain.1", worker, 1.0)
        evidence = replace(run.evidence, read_bytes=480 * chunks, chunks=chunks)
        return replace(run, requests=requests_table([record], context), evidence=evidence)

    ceiling = Ceiling(Shape(1, 480, 240), 100.0, "cpu", 0.2, 0.9, is_lower_bound=False)
    two = (busy("w0", 0, 800), busy("w1", 1, 200))  # in a window of 10 s
    row = rows.cell_result(measured(*two, calibration=Calibration({}, (ceiling,)))).cell
    assert (row["worker_chunk_rate"], row["client_load_share"]) == (80.0, 0.8)
    assert "client_limited" in row["checks"]
    far = replace(ceiling, shape=Shape(64, 480, 240))
    assert (
        rows.cell_result(measured(*two, calibration=Calibration({}, (far,)))).cell["client_load_share"]
        is None
    )
    assert rows.cell_result(measured(*two)).cell["client_load_share"] is None


def test_workers_that_never_measured_together_give_no_figures():
    result = rows.cell_result(measured(part("w0", {0: 10.5}, (10, 12)), part("w1", {1: 15.5}, (15, 17))))
    assert result.cell["window_s"] == 0
    assert (result.cell["output_tps"], result.cell["request_rate"], result.cell["n"]) == (None, None, 0)


def test_one_incomplete_worker_and_a_restart_are_stated():
    whole, cut = part("w0", {0: 10.5}, (10, 12)), part("w1", {1: 10.5}, (10, 12), complete=False)
    checks = set(rows.cell_result(measured(whole, cut)).cell["checks"]) - set(
        rows.cell_result(measured(whole, whole)).cell["checks"]
    )
    assert len(checks) == 1
    assert "restarted" in rows.cell_result(measured(whole, was_restarted=True)).cell["checks"]
    assert "restarted" not in rows.cell_result(measured(whole)).cell["checks"]


def test_a_failed_cell_can_be_written_whatever_the_reason_holds(tmp_path: Path):
    run = new_run(tmp_path)
    run.write_cell(rows.failed_cell(a_life(axes={"budget": 8}), LOAD, "500: \ud800\x1b[31m no", None))
    (row,) = run.read("cells").to_pylist()
    assert (row["status"], row["failure"], row["sent"], row["server_id"]) == (
        "failed",
        "500: [31m no",
        0,
        None,
    )
    assert (row["axes"], row["output_tps"]) == ('{"budget": 8}', None)
    assert rows.statuses(run) == {("box.plain.c2", 1): "failed"}


def test_grades_are_counted_by_their_marks(tmp_path: Path):
    run = new_run(tmp_path)
    run.write_cell({**rows.failed_cell(a_life(), EVAL, "", None), "status": "done", "failure": None})
    assert rows.ungraded(run) == {EVAL.key}
    blank = {column.name: None for column in GRADES.columns}
    for column in GRADES.columns:
        if not column.null:
            blank[column.name] = (
                [] if "list" in str(column.type) else "" if "string" in str(column.type) else 0
            )
    marks = ["PASS", "FAIL", "PASS", "TRUNC", "NONE"]
    grades = [
        {**blank, "cell_id": EVAL.cell.cell_id, "repeat": 0, "request_index": n, "mark": mark}
        for n, mark in enumerate(marks)
    ]
    row = rows.graded(run, EVAL.key, grades)
    assert (row["passed"], row["graded"], row["truncated"], row["problems"]) == (2, 3, 1, 5)
    assert rows.ungraded(run) == set()
    assert run.read("grades").num_rows == 5


@pytest.mark.parametrize("gauge", ["NaN", "+Inf", "1e300", "seven"])
def test_counters_that_are_no_numbers_are_unknown(gauge):
    page = f"sglang:num_running_reqs {gauge}\nsglang:num_queue_reqs 3.0\nsglang:prompt_tokens_total 12\n"

    async def script(peer: Peer, request: Request) -> None:
        await peer.answer(page.encode() if request.path == "/metrics" else {"loadgen_sim": ["hostile"]})

    async def work() -> dict[str, Any]:
        async with scripted(script) as server:
            return await rows.read_sample(LOAD, live_at(server.url, simulated=True), "before")

    sample = asyncio.run(work())
    assert (sample["running_requests"], sample["queued_requests"]) == (None, 3)
    assert (sample["prompt_tokens_total"], sample["server_lag_p99_ms"]) == (12, None)


def test_a_server_that_is_gone_has_no_counters():
    live = live_at(f"http://127.0.0.1:{closed_port()}")
    sample = asyncio.run(rows.read_sample(LOAD, live, "after"))
    assert sample["running_requests"] is None
    assert sample["moment"] == "after"


def test_counters_of_several_servers_are_summed_and_one_that_not_all_give_is_unknown():
    async def script(peer: Peer, request: Request) -> None:
        page = "sglang:num_running_reqs 3\nsglang:prompt_tokens_total 12\n"
        await peer.answer(page.encode() if request.path == "/metrics" else {})

    async def other_script(peer: Peer, request: Request) -> None:
        page = "sglang:num_running_reqs 4\nsglang:generation_tokens_total 5\n"
        await peer.answer(page.encode() if request.path == "/metrics" else {})

    async def work() -> dict[str, Any]:
        async with scripted(script) as server, scripted(other_script) as other:
            live = live_at(server.url, targets=(Target(server.url), Target(other.url)))
            return await rows.read_sample(LOAD, live, "before")

    sample = asyncio.run(work())
    assert sample["running_requests"] == 7
    assert (sample["prompt_tokens_total"], sample["output_tokens_total"]) == (None, None)


def test_a_verdict_is_written_beside_its_cell_once(tmp_path: Path):
    run = new_run(tmp_path)
    run.write_cell(rows.failed_cell(a_life(), LOAD, "gone", None))
    verdict = Verdict(2, Limit.SERVER, "from 2 on")
    assert rows.write_verdict(run, LOAD.key, verdict)
    assert not rows.write_verdict(run, LOAD.key, verdict)
    (row,) = run.read("cells").to_pylist()
    assert (row["saturation"], row["saturation_detail"], row["failure"]) == ("server", "from 2 on", "gone")


def test_finished_closed_loops_are_steps_of_a_search(tmp_path: Path):
    run = new_run(tmp_path)
    run.write_cell({**rows.failed_cell(a_life(), LOAD, "gone", None), "repeat": 0})
    done = {**rows.failed_cell(a_life(), LOAD, "", None), "status": "done", "output_tps": 8.5}
    run.write_cell({**done, "checks": ["client_limited"], "check_details": ["late"]})
    assert rows.search_steps(run) == {LOAD.key: Step(2, 8.5, is_client_limited=True)}


def test_servers_that_an_earlier_session_left_are_marked_lost_and_external_ones_are_not(tmp_path: Path):
    run = new_run(tmp_path)
    common = {
        "platform": "box", "config": "plain", "axes": "{}", "command": [], "env": "{}", "endpoint": "e",
        "started_unix_ns": 1, "proof": "{}",
    }  # fmt: skip
    for name, control, state in (
        ("a", "process", "ready"),
        ("b", "external", "ready"),
        ("c", "process", "stopped"),
    ):
        run.write_server({**common, "server_id": name, "control": control, "state": state})
    rows.mark_lost_servers(run)
    states = {row["server_id"]: row["state"] for row in run.read("servers").to_pylist()}
    assert states == {"a": "lost", "b": "ready", "c": "stopped"}
