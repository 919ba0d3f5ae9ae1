"""The data dictionary is what the code writes, and the schemas keep their own rules."""

import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from loadgen import tables
from loadgen.records import ChunkKind, Outcome, Phase, RequestRecord, TokenSource
from loadgen.tables import RequestContext, Table, markdown, requests_table

CONTEXT = RequestContext("cell", 2, "pcie", "life", "w1", 10.0)
EACH = pytest.mark.parametrize("table", tables.TABLES, ids=lambda table: table.name)


def test_the_data_dictionary_is_up_to_date() -> None:
    written = (Path(__file__).parents[1] / "docs" / "data.md").read_text(encoding="utf-8")
    assert written == markdown(), "run: python -m loadgen.tables > docs/data.md"


@EACH
def test_columns_have_one_name_each_and_a_meaning(table: Table) -> None:
    names = [column.name for column in table.columns]
    assert len(set(names)) == len(names)
    assert all(re.fullmatch(r"[a-z][a-z0-9_]*", name) for name in names)
    assert all(column.meaning.endswith(".") and "|" not in column.meaning for column in table.columns)


@EACH
def test_units_stand_in_names_and_in_the_dictionary(table: Table) -> None:
    units = {
        "_ns": "ns",
        "_ms": "ms",
        "_s": "s",
        "_bytes": "bytes",
        "_w": "W",
        "_tps": "tokens/s",
        "_tokens": "tokens",
    }
    for column in table.columns:
        for ending, unit in units.items():
            if column.name.endswith(ending) and pa.types.is_primitive(column.type):
                assert column.unit.split(",")[0].split(" ")[0] == unit, column.name


@EACH
def test_nulls_are_allowed_exactly_where_they_mean_something(table: Table) -> None:
    for column, field in zip(table.columns, table.schema, strict=True):
        assert field.nullable == bool(column.null)
        assert field.name == column.name
    assert table.schema.metadata[b"table"] == table.name.encode()


@EACH
def test_the_dictionary_has_a_line_for_each_column(table: Table) -> None:
    section = markdown().split(f"## {table.name}\n")[1].split("\n## ")[0]
    listed = re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)
    assert listed == [column.name for column in table.columns]


def full_record() -> RequestRecord:
    return RequestRecord(
        index=5,
        phase=Phase.MEASURE,
        scheduled_ns=90,
        max_tokens=32,
        sent_ns=100,
        first_token_ns=150,
        last_token_ns=170,
        done_ns=180,
        outcome=Outcome.OK,
        token_source=TokenSource.CONTINUOUS_USAGE,
        output_tokens=7,
        chunk_ns=[150, 170],
        chunk_tokens=[3, 7],
        chunk_kind=[ChunkKind.REASONING, ChunkKind.ANSWER],
        reasoning="secret thought",
        content="an answer",
    )


def test_records_become_rows_with_chunks_counted_from_sending() -> None:
    (row,) = requests_table([full_record()], CONTEXT).to_pylist()
    assert row["chunk_ns"] == [50, 70]
    assert (row["chunk_tokens"], row["chunk_kind"]) == ([3, 7], ["reasoning", "answer"])
    assert (row["cell_id"], row["repeat"], row["request_index"], row["worker"]) == ("cell", 2, 5, "w1")
    assert (row["phase"], row["outcome"], row["token_source"]) == ("measure", "ok", "continuous_usage")
    assert row["prompt_tokens"] is None


def test_texts_are_kept_out_of_requests() -> None:
    values = str(requests_table([full_record()], CONTEXT).to_pylist())
    assert "secret thought" not in values
    assert "an answer" not in values


def test_every_field_of_a_record_has_its_column() -> None:
    texts = {"reasoning", "content"}
    fields = {
        name: "request_index" if name == "index" else name
        for name in RequestRecord.__slots__
        if name not in texts
    }
    assert set(fields.values()) <= {column.name for column in tables.REQUESTS.columns}


def test_a_request_that_was_never_sent_is_a_row() -> None:
    record = RequestRecord(0, Phase.WARMUP, 5, 8, outcome=Outcome.CONNECT_ERROR)
    table = requests_table([record], CONTEXT)
    table.validate(full=True)
    assert table["sent_ns"].to_pylist() == [None]


def test_no_record_at_all_is_an_empty_table_of_the_schema() -> None:
    table = requests_table([], CONTEXT)
    assert table.num_rows == 0
    assert table.schema.equals(tables.REQUESTS.schema, check_metadata=True)


def test_a_null_where_none_is_allowed_does_not_reach_a_file(tmp_path: Path) -> None:
    row: dict[str, Any] = {"platform": None, "unix_ns": 1, "gpu": 0}
    with pytest.raises(pa.ArrowInvalid, match="non-nullable"):
        pq.write_table(tables.GPUS.from_rows([row]), tmp_path / "x.parquet")
