"""Records one by one -> Arrow columns, so that no more than a batch of them is held as Python objects.

Lists of numbers are packed as they come; what remains in memory is what the table needs (17 bytes a chunk with a
running count and a kernel stamp).
"""

from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from loadgen.records import ChunkKind, RequestRecord

_KINDS = tuple(ChunkKind)
# The columns of lists, and the type code (of `array`) of their values.
_LISTS = {"chunk_ns": "q", "chunk_tokens": "i", "chunk_kind": "b", "read_lag_us": "i"}
_FIELDS = {"request_index": "index"}  # columns that are named otherwise than their field
_KIND_CODES = {kind: code for code, kind in enumerate(_KINDS)}


class ListColumn:
    """A column of lists of integers; a row may be null. `typecode` is that of `array`."""

    def __init__(self, typecode: str) -> None:
        self.values = array(typecode)
        self._ends = array("i", [0])
        self._is_null = bytearray()

    def add(self, row: Sequence[int] | None) -> None:
        self._is_null.append(row is None)
        if row is not None:
            self.values.extend(row)
        self._ends.append(len(self.values))

    def arrow(self, type_: pa.ListType, words: Sequence[str] = ()) -> pa.Array:
        """As an Arrow array of `type_`; with `words`, the integers are their places in it."""
        values = pa.array(np.frombuffer(self.values, np.dtype(self.values.typecode)))
        if words:
            values = pa.DictionaryArray.from_arrays(values, pa.array(words))
        ends = pa.array(np.frombuffer(self._ends, np.int32))
        nulls = pa.array(np.frombuffer(self._is_null, np.bool_))
        return pa.ListArray.from_arrays(ends, values, type_, mask=nulls)


class _Batch:
    """The rows since the last batch was given out."""

    def __init__(self, scalars: Sequence[str]) -> None:
        self.scalars: dict[str, list[Any]] = {name: [] for name in scalars}
        self.lists = {name: ListColumn(typecode) for name, typecode in _LISTS.items()}
        self.rows = 0

    @property
    def entries(self) -> int:
        return max(len(column.values) for column in self.lists.values())

    def add(self, record: RequestRecord) -> None:
        origin_ns = record.sent_ns or 0
        self.rows += 1
        self.lists["chunk_ns"].add([at_ns - origin_ns for at_ns in record.chunk_ns])
        self.lists["chunk_tokens"].add(record.chunk_tokens)
        self.lists["chunk_kind"].add([_KIND_CODES[kind] for kind in record.chunk_kind])
        self.lists["read_lag_us"].add(record.read_lag_us)
        for name, values in self.scalars.items():
            values.append(getattr(record, _FIELDS.get(name, name)))

    def arrow(self, schema: pa.Schema, shared: dict[str, Any]) -> pa.RecordBatch:
        columns = []
        for field in schema:
            if (column := self.lists.get(field.name)) is not None:
                columns.append(column.arrow(field.type, _KINDS if field.name == "chunk_kind" else ()))
            elif field.name in self.scalars:
                columns.append(pa.array(self.scalars[field.name], field.type))
            else:
                columns.append(pa.array([shared[field.name]] * self.rows, field.type))
        return pa.RecordBatch.from_arrays(columns, schema=schema)


def record_batches(
    records: Iterable[RequestRecord], schema: pa.Schema, shared: dict[str, Any], max_entries: int
) -> Iterator[pa.RecordBatch]:
    """Batches of `schema`: columns named as fields of a record from the records, the others from `shared`.

    A batch ends when one of its list columns holds `max_entries` values. `records` is read one at a time.
    """
    scalars = [name for name in schema.names if name not in shared and name not in _LISTS]
    batch = _Batch(scalars)
    for record in records:
        batch.add(record)
        if batch.entries >= max_entries:
            yield batch.arrow(schema, shared)
            batch = _Batch(scalars)
    if batch.rows:
        yield batch.arrow(schema, shared)
