"""The run folder: whole cells or none, one writer, and tables that anybody can open."""

import json
import os
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest

from loadgen import tables
from loadgen.errors import BadInput
from loadgen.records import Outcome, Phase, RequestRecord
from loadgen.store import CellResult, Run
from loadgen.tables import RequestContext, requests_table


def create(path: Path) -> Run:
    return Run.create(path, config_text="name: t\n", plan={"cells": [1]}, environment={"cpus": 2})


def cell_row(cell_id: str = "c", repeat: int = 0, **fields: Any) -> dict[str, Any]:
    """A `cells` row in which everything that may be unknown is."""
    filled: dict[str, Any] = {}
    for column in tables.CELLS.columns:
        if not column.null:
            plain = {pa.string(): "x", pa.bool_(): False, pa.float64(): 0.0}
            filled[column.name] = [] if pa.types.is_list(column.type) else plain.get(column.type, 0)
    return {**filled, "cell_id": cell_id, "repeat": repeat, **fields}


def result(cell_id: str = "c", repeat: int = 0, requests: int = 2) -> CellResult:
    records = [
        RequestRecord(n, Phase.MEASURE, 0, 8, sent_ns=1, outcome=Outcome.OK, chunk_ns=[2, 3])
        for n in range(requests)
    ]
    response = {
        "cell_id": cell_id,
        "repeat": repeat,
        "request_index": 0,
        "prompt": "p",
        "reasoning": "",
        "content": "a",
    }
    sample = {"cell_id": cell_id, "repeat": repeat, "server_id": "s", "moment": "before", "unix_ns": 1}
    return CellResult(
        cell_row(cell_id, repeat),
        requests_table(records, RequestContext(cell_id, repeat, "p", "s", "w", 1.0)),
        tables.RESPONSES.from_rows([response]),
        tables.SERVER_SAMPLES.from_rows([sample]),
        tables.WORKERS.from_rows([worker_row(cell_id, repeat)]),
    )


def worker_row(cell_id: str, repeat: int) -> dict[str, Any]:
    plain = {pa.string(): "x", pa.bool_(): False, pa.float64(): 0.0}
    filled = {c.name: plain.get(c.type, 0) for c in tables.WORKERS.columns if not c.null}
    return {**filled, "cores": [1], "cell_id": cell_id, "repeat": repeat}


def bad_input(work: Any, *arguments: Any) -> str:
    with pytest.raises(BadInput) as caught:
        work(*arguments)
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


def test_a_new_run_keeps_what_it_was_made_of(tmp_path: Path) -> None:
    create(tmp_path / "runs" / "a").close()
    run = Run.open(tmp_path / "runs" / "a")
    assert run.config_text == "name: t\n"
    assert run.plan == {"cells": [1]}
    assert run.environment == {"cpus": 2}
    assert run.meta["run_id"] == "a"
    assert run.meta["loadgen_run"] == tables.SCHEMA_VERSION


def test_a_run_in_the_current_folder_has_a_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with_dot = create(Path())
    with_dot.close()
    assert with_dot.meta["run_id"] == tmp_path.name


@pytest.mark.parametrize("name", [table.name for table in tables.TABLES])
def test_any_dataset_reader_opens_each_table_even_an_empty_one(tmp_path: Path, name: str) -> None:
    run = create(tmp_path / "r")
    table = {table.name: table for table in tables.TABLES}[name]
    dataset = pads.dataset(str(run.path / name))
    assert dataset.to_table().num_rows == 0
    assert dataset.schema.equals(table.schema)
    assert dataset.schema.metadata[b"loadgen_schema_version"] == b"%d" % tables.SCHEMA_VERSION
    assert run.read(name).schema.equals(table.schema)


def test_a_committed_cell_is_read_back_whole(tmp_path: Path) -> None:
    run = create(tmp_path / "r")
    run.commit_cell(result("a"))
    run.commit_cell(result("a", 1, requests=3))
    run.commit_cell(result("b"))
    assert run.committed() == {("a", 0), ("a", 1), ("b", 0)}
    assert run.read("requests").num_rows == 7
    assert pads.dataset(str(run.path / "requests")).to_table().num_rows == 7
    assert run.read_cell("requests", ("a", 1)).to_pylist() == run.read("requests").to_pylist()[2:5]
    assert run.read_cell("responses", ("b", 0))["content"].to_pylist() == ["a"]
    assert run.read_cell("requests", ("none", 0)).num_rows == 0


class Crash(BaseException):
    pass


def commit_and_crash(run: Run, files: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Begins to commit a cell, and stops dead when `files` files are written and the next one half."""
    real, written = pq.write_table, []

    def write(rows: pa.Table, path: Path, **options: Any) -> None:
        if len(written) == files:
            Path(str(path).replace(".tmp", ".left.tmp")).write_bytes(
                b"PAR1 half"
            )  # as kill -9 would leave it
            raise Crash
        written.append(path)
        real(rows, path, **options)

    monkeypatch.setattr(pq, "write_table", write)
    with pytest.raises(Crash):
        run.commit_cell(result("new", requests=5))
    monkeypatch.undo()


@pytest.mark.parametrize("files", range(5))
def test_a_crash_between_files_leaves_a_run_that_opens_filters_and_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: int
) -> None:
    run = create(tmp_path / "r")
    run.commit_cell(result("old"))
    commit_and_crash(run, files, monkeypatch)
    run.close()

    read_only = Run.open(run.path)
    assert read_only.committed() == {("old", 0)}
    for table in ("requests", "responses", "server_samples", "workers"):
        assert set(read_only.read(table)["cell_id"].to_pylist()) == {"old"}

    again = Run.resume(run.path)
    assert not list(run.path.glob("*/.*"))
    for table in ("requests", "responses", "server_samples", "workers", "cells"):
        assert set(pads.dataset(str(run.path / table)).to_table()["cell_id"].to_pylist()) == {"old"}
    again.commit_cell(result("new", requests=1))
    assert again.committed() == {("old", 0), ("new", 0)}
    assert again.read("requests").num_rows == 3


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path) -> None:
    run = create(tmp_path / "r")
    broken = result("c")
    wrong = pa.table(
        {"cell_id": pa.array([None], pa.string())},
        schema=pa.schema([pa.field("cell_id", pa.string(), False)]),
    )
    with pytest.raises(pa.ArrowInvalid):
        run.commit_cell(CellResult(broken.cell, wrong, broken.responses, broken.samples, broken.workers))
    assert sorted(path.name for path in (run.path / "requests").iterdir()) == ["schema.parquet"]


def test_a_row_written_again_takes_the_place_of_the_first(tmp_path: Path) -> None:
    run = create(tmp_path / "r")
    run.commit_cell(result("a"))
    run.write_cell(cell_row("a", passed=3))
    assert run.read("cells")["passed"].to_pylist() == [3]
    grade = {
        "cell_id": "a",
        "repeat": 0,
        "request_index": 0,
        "problem": "fib",
        "extraction_kind": "code",
        "flags": [],
    }
    for mark in ("FAIL", "PASS"):
        run.write_grades(("a", 0), [{**grade, "mark": mark, "tests_total": 1}])
    assert run.read("grades")["mark"].to_pylist() == ["PASS"]


def test_grades_of_a_cell_that_was_not_committed_are_not_read(tmp_path: Path) -> None:
    run = create(tmp_path / "r")
    grade = {
        "cell_id": "x",
        "repeat": 0,
        "request_index": 0,
        "problem": "fib",
        "extraction_kind": "code",
        "flags": [],
    }
    run.write_grades(("x", 0), [{**grade, "mark": "PASS", "tests_total": 1}])
    assert run.read("grades").num_rows == 0


def test_tables_that_belong_to_no_cell(tmp_path: Path) -> None:
    run = create(tmp_path / "r")
    gpu = {"platform": "p", "unix_ns": 1, "gpu": 0}
    run.write_rows(tables.GPUS, "p.0", [gpu, {**gpu, "gpu": 1, "power_w": 300.0}])
    assert run.read("gpus")["power_w"].to_pylist() == [None, 300.0]


def test_an_unknown_column_is_a_mistake_of_ours(tmp_path: Path) -> None:
    run = create(tmp_path / "r")
    with pytest.raises(KeyError, match="table gpus has no column colour"):
        run.write_rows(tables.GPUS, "p", [{"colour": 1}])


def test_one_writer_at_a_time_and_any_number_of_readers(tmp_path: Path) -> None:
    run = create(tmp_path / "r")
    assert "another loadgen is writing this run" in bad_input(Run.resume, run.path)
    assert Run.open(run.path).read("cells").num_rows == 0
    run.close()
    run.close()
    second = Run.resume(run.path)
    assert "another loadgen is writing this run" in bad_input(Run.resume, run.path)
    second.close()


def test_folders_that_are_not_free(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    full = tmp_path / "full"
    full.mkdir()
    (full / "x").write_text("x")
    assert (
        f"{full}: the folder is not empty; name a new one with --out, or go on with --resume {full}"
        == bad_input(create, full)
    )
    assert "cannot be written (File exists)" in bad_input(create, tmp_path / "file")
    assert "cannot be written (Not a directory)" in bad_input(create, tmp_path / "file" / "r")
    assert [path.name for path in full.iterdir()] == ["x"]


@pytest.mark.parametrize("files", range(len(tables.TABLES) + 4))
def test_a_folder_whose_making_was_broken_off_is_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: int
) -> None:
    real, left = Path.replace, [files]

    def replace(path: Path, target: Path) -> Path:
        left[0] -= 1
        if left[0] < 0:
            os._exit(9)
        return real(path, target)

    if (child := os.fork()) == 0:
        monkeypatch.setattr(Path, "replace", replace)
        create(tmp_path / "r")
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    assert "not a run folder" in bad_input(Run.open, tmp_path / "r")

    create(tmp_path / "r").close()
    assert Run.open(tmp_path / "r").committed() == set()
    assert not list((tmp_path / "r").rglob(".*.tmp"))


def test_a_users_own_folder_is_never_taken_for_one_of_ours(tmp_path: Path) -> None:
    for name in ("config.yaml", "logs"):
        (tmp_path / name).write_text("mine")
    assert "the folder is not empty" in bad_input(create, tmp_path)
    (tmp_path / ".lock").write_text("")
    (tmp_path / "notes").write_text("mine")
    assert "the folder is not empty" in bad_input(create, tmp_path)
    assert (tmp_path / "config.yaml").read_text() == "mine"


def test_a_path_that_no_file_system_takes_is_bad_input(tmp_path: Path) -> None:
    long_name = "x" * 300
    assert "cannot be written (File name too long)" in bad_input(create, tmp_path / long_name)


@pytest.mark.parametrize("marker", [None, "", "{", "[]", "5", "\udcff"])
def test_folders_that_are_no_run(tmp_path: Path, marker: str | None) -> None:
    if marker is not None:
        (tmp_path / "run.json").write_bytes(marker.encode(errors="surrogateescape"))
    for work in (Run.open, Run.resume):
        assert bad_input(work, tmp_path).startswith(f"{tmp_path}: ")
    assert [path.name for path in tmp_path.iterdir()] == ([] if marker is None else ["run.json"])


def test_a_missing_folder_and_another_version_are_told_apart(tmp_path: Path) -> None:
    assert "not a run folder (it does not exist)" in bad_input(Run.open, tmp_path / "none")
    run = create(tmp_path / "r")
    run.close()
    (run.path / "run.json").write_text(json.dumps({**run.meta, "loadgen_run": 99}))
    assert "its tables have version 99, this loadgen reads" in bad_input(Run.open, run.path)


def test_a_run_that_lost_a_table_is_damaged(tmp_path: Path) -> None:
    run = create(tmp_path / "r")
    run.close()
    (run.path / "grades" / "schema.parquet").unlink()
    (run.path / "grades").rmdir()
    assert "the run folder is damaged: it has no grades" in bad_input(Run.open, run.path)
