"""The figures of other tools beside ours: which stands where, and that every tool has its reason."""

from pathlib import Path

from report_fixtures import build_run, cell_row, full_report, load_entry

from loadgen.metrics.meanings import COMPAT
from loadgen.tables import CELLS
from reports.blocks import Grid, Paragraph, plain_text
from reports.compat_table import COLUMNS, WHY, compat_blocks
from reports.data import load


def test_ours_and_theirs_stand_side_by_side(tmp_path: Path) -> None:
    entries = [load_entry("pcie", 1000, 4, repeat) for repeat in range(2)]
    known = {
        "ttft_from_sent_mean_ms": 1000.0,
        "compat_vllm_ttft_ms": 100.0,
        "tpot_mean_ms": 25.0,
        "compat_sglang_tpot_ms": 320 / 15,
        "compat_guidellm_tpot_ms": 81.25,
    }
    cells = [cell_row(entries[0], **known), cell_row(entries[1], **known, compat_vllm_itl_ms=240.0)]
    paragraph, figures, _ = compat_blocks(load(build_run(tmp_path / "r", entries, cells=cells)).matrices)
    assert isinstance(paragraph, Paragraph)
    assert isinstance(figures, Grid)
    (row,) = figures.rows
    shown = dict(zip((column.title for column in figures.columns), map(plain_text, row), strict=True))
    assert shown == {
        "cell": "pcie.base.chat.c1000.n4",
        "TTFT mean ms": "1000",
        "vllm TTFT": "100",
        "inference-perf TTFT": "?",
        "TPOT mean ms": "25.0",
        "sglang TPOT": "21.3",
        "sglang TPOT, no usage": "?",
        "vllm TPOT": "?",
        "aiperf ITL": "?",
        "guidellm TPOT": "81.2",
        "guidellm ITL": "?",
        "inference-perf TPOT": "?",
        "mlcommons TPOT": "?",
        "chunk gap mean ms": "?",
        "vllm ITL": "240",
    }


def test_every_tool_has_a_reason_and_every_figure_a_column() -> None:
    assert WHY.keys() == COMPAT.keys()
    assert set(COLUMNS) <= {column.name for column in CELLS.columns}
    _, _, reasons = compat_blocks(full_report().matrices)
    assert isinstance(reasons, Grid)
    assert len(reasons.rows) == len(WHY)


def test_cells_without_numbers_are_left_out(tmp_path: Path) -> None:
    entry = load_entry("pcie", 1000, 4)
    run = build_run(tmp_path / "r", [entry], cells=[cell_row(entry, status="failed", failure="gone")])
    (only,) = compat_blocks(load(run).matrices)
    assert isinstance(only, Paragraph)
    assert plain_text(only.words) == "None: no load cell has been measured."
