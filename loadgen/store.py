"""A run folder: written atomically, one cell execution at a time, and read back.

A file appears under its final name only when it is whole (written under a dot-name, then renamed; Arrow's
datasets ignore dot-names). The row in `cells` is written last and is the mark of the commit: request rows whose
cell execution has no such row were left by a crash, are filtered out by `read`, and are removed on resume.
"""

import fcntl
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from loadgen import tables
from loadgen.clock import unix_ns
from loadgen.errors import BadInput
from loadgen.tables import SCHEMA_VERSION, Table

_MARKER = "run.json"
_LOCK = ".lock"
_LOGS = "logs"
_PER_CELL = (tables.REQUESTS, tables.RESPONSES, tables.SERVER_SAMPLES, tables.WORKERS)
_BY_NAME = {table.name: table for table in tables.TABLES}

CellKey = tuple[str, int]


@dataclass(frozen=True, slots=True)
class CellResult:
    """What one execution of a cell leaves, ready to be committed together."""

    cell: Mapping[str, Any]
    requests: pa.Table
    responses: pa.Table
    samples: pa.Table
    workers: pa.Table


class Run:
    """One run folder. Only the process that holds its lock may write (`create` and `resume` take it)."""

    def __init__(self, path: Path, meta: Mapping[str, Any]) -> None:
        self.path = path
        self.meta = meta
        self._lock: int | None = None

    @classmethod
    def create(
        cls, path: Path, *, config_text: str, plan: Mapping[str, Any], environment: Mapping[str, Any]
    ) -> "Run":
        """A new run folder with its frozen config, plan and environment, and an empty file of each table.

        A folder whose making was broken off is made anew. Raises BadInput when `path` is anything else than that or
        an empty folder, or cannot be written.
        """
        try:
            path.mkdir(parents=True, exist_ok=True)
            if not _is_free(path):
                raise BadInput(
                    f"{path}: the folder is not empty; name a new one with --out, or go on with --resume {path}"
                )
            meta = {
                "loadgen_run": SCHEMA_VERSION,
                "run_id": path.resolve().name,
                "created_unix_ns": unix_ns(),
            }
            run = cls(path, meta)
            run._take_lock()  # first of all: a folder that has nothing but our files and a lock was being made
            for table in tables.TABLES:
                (path / table.name).mkdir(exist_ok=True)
                _write_parquet(table.schema.empty_table(), path / table.name / "schema.parquet")
            (path / _LOGS).mkdir(exist_ok=True)
            _write_text(path / "config.yaml", config_text)
            _write_json(path / "plan.json", plan)
            _write_json(path / "environment.json", environment)
            _write_json(path / _MARKER, meta)
        except OSError as error:
            raise BadInput(
                f"{path}: cannot be written ({error.strerror}); name another folder with --out"
            ) from error
        return run

    @classmethod
    def open(cls, path: Path) -> "Run":
        """An existing run, for reading. Raises BadInput when `path` is not a run folder of this version."""
        try:
            meta = json.loads((path / _MARKER).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            why = "it does not exist" if not path.exists() else f"it has no readable {_MARKER}"
            raise BadInput(
                f"{path}: not a run folder ({why}); name a folder that `loadgen run` made"
            ) from error
        version = meta.get("loadgen_run") if isinstance(meta, dict) else None
        if version != SCHEMA_VERSION:
            raise BadInput(f"{path}: its tables have version {version}, this loadgen reads {SCHEMA_VERSION}")
        if missing := [table.name for table in tables.TABLES if not (path / table.name).is_dir()]:
            raise BadInput(
                f"{path}: the run folder is damaged: it has no {missing[0]}; restore it from a copy"
            )
        return cls(path, meta)

    @classmethod
    def resume(cls, path: Path) -> "Run":
        """An existing run, for writing; what a crash left uncommitted is removed. Raises BadInput as `open`."""
        run = cls.open(path)
        run._take_lock()
        run._remove_uncommitted()
        return run

    def close(self) -> None:
        """Gives the lock back."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @property
    def config_text(self) -> str:
        return (self.path / "config.yaml").read_text(encoding="utf-8")

    @property
    def plan(self) -> dict[str, Any]:
        return _read_json(self.path / "plan.json")

    @property
    def environment(self) -> dict[str, Any]:
        return _read_json(self.path / "environment.json")

    def read(self, name: str) -> pa.Table:
        """A whole table; of the tables that belong to cells, committed rows only."""
        table = _BY_NAME[name]
        rows = pads.dataset(self.path / name, schema=table.schema, format="parquet").to_table()
        if table not in (*_PER_CELL, tables.GRADES):
            return rows
        done = self.committed()
        keys = zip(rows["cell_id"].to_pylist(), rows["repeat"].to_pylist(), strict=True)
        return rows.filter(pa.array([key in done for key in keys], pa.bool_()))

    def read_cell(self, name: str, key: CellKey) -> pa.Table:
        """The rows that one committed cell execution has in a table."""
        path = self.path / name / _part(key)
        return pq.read_table(path) if path.exists() else _BY_NAME[name].schema.empty_table()

    def committed(self) -> set[CellKey]:
        """The cell executions that are whole, failed ones included."""
        cells = pads.dataset(self.path / "cells", schema=tables.CELLS.schema, format="parquet")
        rows = cells.to_table(columns=["cell_id", "repeat"])
        return set(zip(rows["cell_id"].to_pylist(), rows["repeat"].to_pylist(), strict=True))

    def commit_cell(self, result: CellResult) -> None:
        """All of one cell execution, its `cells` row last."""
        key = (str(result.cell["cell_id"]), int(result.cell["repeat"]))
        parts = (result.requests, result.responses, result.samples, result.workers)
        for table, rows in zip(_PER_CELL, parts, strict=True):
            _write_parquet(rows, self.path / table.name / _part(key))
        self.write_cell(result.cell)

    def write_cell(self, row: Mapping[str, Any]) -> None:
        """The `cells` row of one execution, new or again (grading adds to it)."""
        key = (str(row["cell_id"]), int(row["repeat"]))
        _write_parquet(tables.CELLS.from_rows([row]), self.path / "cells" / _part(key))

    def write_grades(self, key: CellKey, rows: list[dict[str, Any]]) -> None:
        """The grades of one evaluation, in place of earlier ones."""
        _write_parquet(tables.GRADES.from_rows(rows), self.path / "grades" / _part(key))

    def write_server(self, row: Mapping[str, Any]) -> None:
        """One server life, new or again (its end adds to it)."""
        _write_parquet(tables.SERVERS.from_rows([row]), self.path / "servers" / f"{row['server_id']}.parquet")

    def write_rows(self, table: Table, name: str, rows: list[dict[str, Any]]) -> None:
        """A file of rows of a table that belongs to no cell (hosts, gpus, journal)."""
        _write_parquet(table.from_rows(rows), self.path / table.name / f"{name}.parquet")

    def _take_lock(self) -> None:
        lock = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise BadInput(
                f"{self.path}: another loadgen is writing this run; wait for its end or stop it"
            ) from None
        self._lock = lock

    def _remove_uncommitted(self) -> None:
        committed = {_part(key) for key in self.committed()} | {"schema.parquet"}
        for table in tables.TABLES:
            is_per_cell = table in (*_PER_CELL, tables.GRADES)
            for part in (self.path / table.name).iterdir():
                if part.name.startswith(".") or (is_per_cell and part.name not in committed):
                    part.unlink()


def _is_free(path: Path) -> bool:
    """Whether a run may be made there: nothing is there, or only what a `create` that was broken off leaves."""
    names = {part.name for part in path.iterdir()}
    texts = {"config.yaml", "plan.json", "environment.json"}
    begun = {_LOCK, _LOGS, *texts, *(table.name for table in tables.TABLES)}
    halves = {f".{name}.tmp" for name in (*texts, _MARKER)}
    return not names or (_LOCK in names and names <= begun | halves)


def _part(key: CellKey) -> str:
    return f"{key[0]}.r{key[1]}.parquet"


def _write_parquet(rows: pa.Table, path: Path) -> None:
    with _whole(path) as temporary:
        pq.write_table(rows, temporary, compression="zstd")


def _write_text(path: Path, text: str) -> None:
    with _whole(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    _write_text(path, json.dumps(value, indent=2, default=str) + "\n")


def _read_json(path: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return value


class _whole:  # noqa: N801 - reads as a verb in `with`
    """A temporary path beside `path`; renamed onto it, and on disk, when the block ends well."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._temporary = path.with_name(f".{path.name}.tmp")

    def __enter__(self) -> Path:
        return self._temporary

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self._temporary.unlink(missing_ok=True)
            return
        with self._temporary.open("rb") as file:
            os.fsync(file.fileno())
        self._temporary.replace(self._path)
        folder = os.open(
            self._path.parent, os.O_RDONLY
        )  # a power cut must not undo renames out of their order
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
