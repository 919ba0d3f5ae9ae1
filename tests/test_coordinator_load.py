"""Loads that decide their cells as they go: the search for saturation, and a client that was itself the limit."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from test_coordinator import Rig, Watched

from cluster import rows
from cluster.rows import Measured
from loadgen.plan import Execution
from loadgen.store import CellResult

SEARCH = "concurrency: saturate, saturate: {max: 4, gain: 0.05}, warmup_requests_per_stream: 1"


def of_the_load(rig: Rig) -> dict[str, dict[str, object]]:
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
    assert knee["saturation"] in ("max", "server")
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
        if len(measured.runs) < 2 and measured.execution.cell.concurrency == 2:
            doubt = {"checks": ["client_limited"], "check_details": ["the client woke 50 ms late"]}
            return replace(result, cell=result.cell | doubt)
        return result

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
