"""Whether a run folder is whole: every file, every table, every sum. Raises AssertionError, or what reading raises."""

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from loadgen import tables
from loadgen.metrics import accounting_faults
from loadgen.store import Run

_PER_CELL = ("requests", "responses", "server_samples", "workers")
_OF_GRADES = ("passed", "graded", "truncated", "problems")

Key = tuple[str, int]


def check_whole(folder: Path) -> Run:
    """Every file of every table can be read and has the table's schema; every committed cell adds up."""
    run = Run.open(folder)
    for table in tables.TABLES:
        for path in (folder / table.name).glob("[!.]*"):
            assert pq.read_table(path).schema.equals(table.schema), path
    for row in cell_rows(run).values():
        _check_cell(run, row)
    numbers = run.read("journal")["seq"].to_pylist()
    assert sorted(numbers) == list(range(len(numbers)))
    return run


def cell_rows(run: Run) -> dict[Key, dict[str, Any]]:
    return {(row["cell_id"], row["repeat"]): row for row in run.read("cells").to_pylist()}


def _check_cell(run: Run, row: dict[str, Any]) -> None:
    key = (row["cell_id"], row["repeat"])
    requests = run.read_cell("requests", key)
    assert sum(json.loads(row["outcomes"]).values()) == row["sent"] == requests.num_rows, row
    assert accounting_faults(requests, row["sent"]) == []
    if row["status"] == "done":
        assert run.read_cell("workers", key).num_rows == row["workers"]
        assert sorted(run.read_cell("server_samples", key)["moment"].to_pylist()) == ["after", "before"]
    if row["passed"] is not None:
        assert run.read_cell("grades", key).num_rows == row["problems"]


def finished_parts(run: Run) -> dict[str, bytes]:
    """The files of each finished cell, by name, and the rows of those that need no grading any more."""
    parts: dict[str, bytes] = {}
    for key, row in cell_rows(run).items():
        if row["status"] == "done":
            name = f"{key[0]}.r{key[1]}.parquet"
            parts |= {f"{table}/{name}": (run.path / table / name).read_bytes() for table in _PER_CELL}
            if row["kind"] == "load" or row["passed"] is not None:
                parts[f"cells/{name}"] = (run.path / "cells" / name).read_bytes()
    return parts


def check_finished(run: Run, planned: int) -> None:
    """All cells are done and graded, nothing half is left beside them, and every server's end is known."""
    rows = cell_rows(run)
    assert len(rows) == planned
    assert {row["status"] for row in rows.values()} == {"done"}
    assert all(row["passed"] is not None for row in rows.values() if row["kind"] == "eval")
    assert list(run.path.glob("*/.*")) == []
    names = {f"{cell_id}.r{repeat}.parquet" for cell_id, repeat in rows} | {"schema.parquet"}
    for table in (*_PER_CELL, "grades", "cells"):
        assert {path.name for path in (run.path / table).iterdir()} <= names
    assert "ready" not in run.read("servers")["state"].to_pylist()
