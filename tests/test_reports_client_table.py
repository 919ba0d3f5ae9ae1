"""The client's own table: the worst repeat of each cell, whose stamps, and what is unknown as such."""

from pathlib import Path

from report_fixtures import build_run, cell_row, load_entry

from loadgen.tables import CELLS
from reports.blocks import Grid, Paragraph, plain_text
from reports.client_table import COLUMNS, client_blocks
from reports.data import load


def test_the_worst_repeat_stands_for_a_cell(tmp_path: Path) -> None:
    entries = [load_entry("pcie", 1000, 4, repeat) for repeat in range(2)]
    calm = {
        "stamp_source": "kernel", "client_lag_p99_ms": 0.2, "loop_lag_p99_ms": 0.5, "send_lag_p99_ms": 0.1,
        "shared_chunk_share": 0.0004, "worker_cpu": 0.31, "cpu_steal_share": 0.0, "client_load_share": 0.4, "workers": 2,
    }  # fmt: skip
    late = calm | {"stamp_source": "mixed", "client_lag_p99_ms": 12.3, "client_load_share": None}
    cells = [cell_row(entries[0], **calm), cell_row(entries[1], **late)]
    _, grid = client_blocks(load(build_run(tmp_path / "r", entries, cells=cells)).matrices)
    assert isinstance(grid, Grid)
    (row,) = grid.rows
    shown = dict(zip((column.title for column in grid.columns), map(plain_text, row), strict=True))
    assert shown == {
        "cell": "pcie.base.chat.c1000.n4",
        "stamps": "kernel, mixed",
        "read lag p99 ms": "12.3",
        "loop lag p99 ms": "0.5",
        "send lag p99 ms": "0.1",
        "shared reads": "<0.1%",
        "CPU of a core": "31%",
        "stolen": "0%",
        "of its ceiling": "40%",
        "workers": "2",
    }


def test_what_is_not_known_is_a_question_mark_and_every_figure_is_a_column(tmp_path: Path) -> None:
    entry = load_entry("pcie", 1000, 4)
    _, grid = client_blocks(load(build_run(tmp_path / "r", [entry], cells=[cell_row(entry)])).matrices)
    assert isinstance(grid, Grid)
    assert {plain_text(cell) for cell in grid.rows[0][1:]} == {"?"}
    assert set(COLUMNS) <= {column.name for column in CELLS.columns}


def test_cells_without_numbers_are_left_out(tmp_path: Path) -> None:
    entry = load_entry("pcie", 1000, 4)
    run = build_run(tmp_path / "r", [entry], cells=[cell_row(entry, status="failed", failure="gone")])
    (only,) = client_blocks(load(run).matrices)
    assert isinstance(only, Paragraph)
