"""What a table of a run is: its columns with units and null meanings, and its Arrow schema with a version."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

SCHEMA_VERSION = 2


@dataclass(frozen=True, slots=True)
class Column:
    """One column: `unit` is empty for names and counts; `null` says what a null means (empty: never null)."""

    name: str
    type: pa.DataType
    unit: str
    meaning: str
    null: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    name: str
    one_row: str
    columns: tuple[Column, ...]

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema, with the version of all schemas in its metadata."""
        fields = [pa.field(c.name, c.type, nullable=bool(c.null)) for c in self.columns]
        return pa.schema(fields, metadata={"loadgen_schema_version": str(SCHEMA_VERSION), "table": self.name})

    def from_rows(self, rows: Iterable[Mapping[str, Any]]) -> pa.Table:
        """Rows as an Arrow table of exactly this schema. A missing key is null; an unknown key is a KeyError."""
        known = {c.name for c in self.columns}
        listed = []
        for row in rows:
            if unknown := row.keys() - known:
                raise KeyError(f"table {self.name} has no column {', '.join(sorted(unknown))}")
            listed.append(dict(row))
        return pa.Table.from_pylist(listed, schema=self.schema)


# One column a line, to be read as a table.
# fmt: off
CELL_KEY = (
    Column("cell_id", pa.string(), "", "The cell: platform, server config, workload and load in one readable id."),
    Column("repeat", pa.int32(), "", "Which execution of the cell, from 0."),
)
# fmt: on
