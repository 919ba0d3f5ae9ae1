"""Loads that decide their cells as they go: the search for saturation, and a client that was itself the limit."""

import asyncio
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from sim_fixtures import SimServer
from test_coordinator import Rig, Watched

from cluster import rows
from cluster.rows import Measured
from loadgen.config import parse_sweep
from loadgen.plan import Execution, make_plan
from loadgen.schedule import arrival_seed, arrivals_ns, target_of
from loadgen.store import CellResult

MOMENTS = ("scheduled_ns", "sent_ns", "done_ns", "phase", "worker", "outcome")
FAST = ("--time-scale", "40", "--enable-metrics")
SEARCH = "concurrency: saturate, saturate: {max: 4, gain: 0.05}, warmup_requests_per_stream: 1"


def requests_of(rig: Rig, ending: str) -> list[dict[str, Any]]:
    rows_of = rig.run.read("requests").select(["cell_id", "request_index", *MOMENTS]).to_pylist()
    found = [row for row in rows_of if row["cell_id"].endswith(f".{ending}")]
    return sorted(found, key=lambda row: row["request_index"])


def in_flight_at_sends(requests: list[dict[str, Any]]) -> list[int]:
    """How many requests were in flight at each send, that one included, in order of time."""
    sends = sorted(row["sent_ns"] for row in requests)
    return [sum(row["sent_ns"] <= at < row["done_ns"] for row in requests) for at in sends]


def of_the_load(rig: Rig) -> dict[str, dict[str, Any]]:
    return {cell_id.rpartition(".")[2]: row for cell_id, row in rig.cells().items()}


def journal(rig: Rig, event: str) -> list[str]:
    return [row["detail"] for row in rig.run.read("journal").to_pylist() if row["event"] == event]


def test_a_search_runs_to_its_verdict_which_is_stored_told_and_not_searched_for_again(tmp_path: Path) -> None:
    rig = Rig(tmp_path, load=SEARCH, measure_s=0.5)
    watched = rig.conduct()
    cells = of_the_load(rig)
    assert next(iter(cells)) == "c1"
    assert {"c1", "c2", "c4"} >= set(cells) >= {"c1", "c2"}
    (knee,) = [row for row in cells.values() if row["saturation"]]
    assert knee["saturation"] in ("max", "server", "client")
    (said,) = journal(rig, "saturation")
    assert said == f"{knee['saturation']}: {knee['saturation_detail']}"
    assert any(said in line for line in watched.servers)

    assert rig.conduct().servers == [], "the steps are facts and the verdict stands"
    assert len(journal(rig, "saturation")) == 1


def test_a_search_that_was_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    rig = Rig(tmp_path, load=SEARCH, measure_s=0.5)
    stopped = False

    def stop_in_the_second(execution: Execution) -> None:
        nonlocal stopped
        stopped = execution.cell.concurrency == 2

    with pytest.raises(asyncio.CancelledError):
        rig.conduct(Watched(stop_in_the_second), cancel_on=lambda _: stopped)
    first = rig.cells()["box.plain.text.ctx60.c1"]
    assert len(rig.cells()) == 1

    rig.conduct()
    assert rig.cells()["box.plain.text.ctx60.c1"] == first | {
        name: rig.cells()["box.plain.text.ctx60.c1"][name] for name in ("saturation", "saturation_detail")
    }
    assert len(rig.cells()) >= 2


def test_a_cell_that_measured_the_client_is_run_again_with_more_workers_and_the_journal_keeps_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = rows.cell_result

    def limited(measured: Measured) -> CellResult:
        result = whole(measured)
        is_limited = len(measured.runs) < 2 and measured.execution.cell.concurrency == 2
        checks = ["client_limited"] * is_limited  # and not where this machine is busy with other things
        doubts = {"checks": checks, "check_details": ["the client woke 50 ms late"] * is_limited}
        return replace(result, cell=result.cell | doubts)

    monkeypatch.setattr(rows, "cell_result", limited)
    rig = Rig(tmp_path, more="clients: {max_workers_per_platform: 4}", measure_s=0.5)
    rig.conduct()
    cells = of_the_load(rig)
    assert (cells["c1"]["workers"], cells["c2"]["workers"]) == (1, 2)
    assert "client_limited" not in cells["c2"]["checks"]
    (said,) = journal(rig, "cell_client_limited")
    assert said.startswith("the client woke 50 ms late; with 1 worker(s) ")
    assert said.endswith(" output tok/s; it is run again with more")
    assert rig.events().count("cell_started") == 3
    assert rig.events().count("cell_committed") == 2


def test_without_more_workers_a_limited_cell_is_kept_with_its_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = rows.cell_result

    def limited(measured: Measured) -> CellResult:
        result = whole(measured)
        return replace(result, cell=result.cell | {"checks": ["client_limited"], "check_details": ["late"]})

    monkeypatch.setattr(rows, "cell_result", limited)
    rig = Rig(tmp_path, measure_s=0.5)
    rig.conduct()
    assert all(row["checks"] == ["client_limited"] for row in rig.cells().values())
    assert journal(rig, "cell_client_limited") == []


@pytest.mark.parametrize("workers", [1, 2])
def test_an_open_loop_sends_the_plans_schedule_whatever_the_workers(tmp_path: Path, workers: int) -> None:
    load = "rate: 4, arrivals: poisson"
    rig = Rig(tmp_path, load=load, more=f"clients: {{workers_per_platform: {workers}}}", measure_s=3)
    rig.conduct()
    (cell,) = rig.cells().values()
    assert (cell["cell_id"], cell["rate"], cell["concurrency"]) == ("box.plain.text.ctx60.r4", 4.0, None)
    assert (cell["arrivals"], cell["workers"], cell["status"]) == ("poisson", workers, "done")

    requests = requests_of(rig, "r4")
    assert len({row["worker"] for row in requests}) == workers
    due = arrivals_ns(
        "poisson", 4.0, arrival_seed(1, "poisson", 4.0, 0), count=requests[-1]["request_index"] + 1
    )
    for name in {row["worker"] for row in requests}:  # each worker's clock starts at its own moment
        mine = [row for row in requests if row["worker"] == name]
        start_ns = mine[0]["scheduled_ns"] - due[mine[0]["request_index"]] / 40
        assert all(
            abs(row["scheduled_ns"] - start_ns - due[row["request_index"]] / 40) <= 2 for row in mine
        ), "simulated at 40 times the clock"
        assert [row["request_index"] for row in mine] == list(
            range(mine[0]["request_index"], mine[-1]["request_index"] + 1, workers)
        )


def test_a_bound_on_requests_in_flight_holds_in_every_phase_and_their_waiting_counts(tmp_path: Path) -> None:
    load = "rate: 20, arrivals: constant, max_in_flight: 3, warmup_max_s: 10"
    rig = Rig(tmp_path, load=load, measure_s=3)
    rig.conduct()
    requests = requests_of(rig, "r20")
    assert max(in_flight_at_sends(requests)) == 3
    gaps = {late["scheduled_ns"] - early["scheduled_ns"] for early, late in pairwise(requests)}
    assert max(gaps) - min(gaps) <= 1, "held requests keep the moment at which they were due"


def test_streams_are_refilled_at_once_and_never_exceed_the_target_not_even_in_warm_up(tmp_path: Path) -> None:
    rig = Rig(tmp_path, load="concurrency: 4, ramp_s: 2, warmup_requests_per_stream: 2", measure_s=3)
    rig.conduct()
    requests = requests_of(rig, "c4")
    in_flight = in_flight_at_sends(requests)
    assert max(in_flight) == 4
    first_ns = min(row["sent_ns"] for row in requests)
    sends_s = [(row["sent_ns"] - first_ns) / 1e9 for row in requests]
    ramp_s = 2 / 40
    refilled = [count for at_s, count in zip(sorted(sends_s), in_flight, strict=True) if at_s > ramp_s]
    assert refilled.count(4) >= 0.9 * len(refilled), "no waves: what ends is replaced at once"
    window_start_ns = rig.cells()["box.plain.text.ctx60.c4"]["window_start_ns"]
    assert window_start_ns > first_ns + 0.75 * ramp_s * 1e9, "the ramp is no part of the window"


def test_requests_go_to_each_endpoint_in_proportion_to_its_weight(tmp_path: Path) -> None:
    with SimServer(*FAST) as one, SimServer(*FAST) as other:
        rig = Rig(tmp_path, load="concurrency: 3", measure_s=2)
        endpoints = [
            f"{{url: 'http://127.0.0.1:{sim.port}', weight: {weight}}}"
            for sim, weight in ((one, 1), (other, 2))
        ]
        text = re.sub(
            r"control: process.*?axes:",
            f"control: external\n      endpoints: [{', '.join(endpoints)}]\naxes:",
            rig.text,
            flags=re.DOTALL,
        )
        rig.sweep = parse_sweep(text, "sweep.yaml")
        rig.plan = make_plan(rig.sweep)
        rig.conduct()
        (cell,) = rig.cells().values()
        assert cell["status"] == "done"
        page = other.call("GET", "/metrics")[1]
    (total,) = re.findall(r'sglang:num_requests_total{.*streaming="true".*} (.*)', page, re.IGNORECASE)
    indexes = [row["request_index"] for row in requests_of(rig, "c3")]
    its_own = sum(target_of(index, (1, 2)) == 1 for index in indexes)
    assert abs(3 * its_own - 2 * len(indexes)) <= 3
    assert float(total) == its_own + 1  # and the probe that learned how its streams end
