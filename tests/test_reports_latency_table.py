"""The second table of details: chunks and tokens under their own names, and both starts of TTFT in open loop."""

from pathlib import Path
from typing import Any

from report_fixtures import build_run, cell_row, load_entry

from loadgen.tables import CELLS
from reports.blocks import Grid, plain_text
from reports.data import load
from reports.latency_table import COLUMNS, latency_grid

FIGURES: dict[str, Any] = {
    "ttft_from_plan_p99_ms": 2010.0,
    "ttft_from_sent_p99_ms": 10.0,
    "token_gap_p50_ms": 25.0,
    "token_gap_p99_ms": 50.0,
    "chunk_gap_p50_ms": 100.0,
    "peak_tps": 820.0,
    "accept_length": 4.0,
}


def shown(path: Path, concurrency: int | None) -> dict[str, str]:
    entry = load_entry("pcie", 1000, 1) | {"concurrency": concurrency}
    (matrix,) = load(build_run(path, [entry], cells=[cell_row(entry, **FIGURES)])).matrices
    grid = latency_grid("x", matrix)
    assert isinstance(grid, Grid)
    (row,) = grid.rows
    return dict(zip((column.title for column in grid.columns), map(plain_text, row), strict=True))


def test_gaps_of_chunks_and_of_tokens_have_names_of_their_own(tmp_path: Path) -> None:
    assert shown(tmp_path / "r", 4) == {
        "context": "1000",
        "concurrency": "4",
        "TTFA p50 ms": "?",
        "token gap p50 ms": "25.0",
        "token gap p99 ms": "50.0",
        "chunk gap p50 ms": "100",
        "chunk gap p99 ms": "?",
        "whole request p99 ms": "?",
        "peak tok/s": "820",
        "tokens per verify step": "4.0",
    }


def test_an_open_loop_shows_what_waiting_in_the_client_would_hide(tmp_path: Path) -> None:
    row = shown(tmp_path / "r", None)
    assert row["TTFT from the plan p99 ms"] == "2010"
    assert row["TTFT from sending p99 ms"] == "10.0"


def test_a_matrix_without_numbers_has_none(tmp_path: Path) -> None:
    entry = load_entry("pcie", 1000, 1)
    (matrix,) = load(build_run(tmp_path / "r", [entry])).matrices
    assert latency_grid("x", matrix) is None


def test_every_figure_has_its_column() -> None:
    assert set(COLUMNS) <= {column.name for column in CELLS.columns}
