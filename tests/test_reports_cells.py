"""Medians over repeats and platform ratios, against figures worked out by hand."""

from pathlib import Path
from typing import Any

import pytest
from report_fixtures import build_run, cell_row, load_entry

from reports.cells import spread
from reports.data import load
from reports.model import CellSummary, Report, Spread


def report_of(path: Path, cells: list[dict[str, Any]], planned: list[dict[str, Any]] | None = None) -> Report:
    entries = planned if planned is not None else [entry_of(cell) for cell in cells]
    return load(build_run(path, entries, cells=cells))


def entry_of(cell: dict[str, Any]) -> dict[str, Any]:
    return load_entry(cell["platform"], cell["context_tokens"], cell["concurrency"], cell["repeat"]) | {
        name: cell[name] for name in ("cell_id", "config", "workload")
    }


def done(platform: str, tps: float | None, repeat: int = 0, **more: Any) -> dict[str, Any]:
    return cell_row(load_entry(platform, 1000, 4, repeat), output_tps=tps, **more)


def only_cell(report: Report) -> CellSummary:
    (matrix,) = report.matrices
    (cell,) = matrix.cells.values()
    return cell


def test_spread_leaves_out_what_is_unknown() -> None:
    assert spread([3.0, None, 1.0, float("nan")]) == Spread(2.0, 1.0, 3.0, 2)
    assert spread([None, float("nan")]) is None


def test_a_cell_is_the_median_of_its_done_repeats(tmp_path: Path) -> None:
    cells = [
        done("pcie", 100.0, 0, ttft_p50_ms=10.0, error_rate=0.0, n=30),
        done("pcie", 140.0, 1, ttft_p50_ms=30.0, error_rate=0.5, n=10),
        done("pcie", 110.0, 2, ttft_p50_ms=None, error_rate=None, n=20),
        done("pcie", None, 3, status="failed", failure="gone"),
    ]
    cell = only_cell(report_of(tmp_path / "r", cells))
    assert (cell.planned, cell.done, cell.failed, cell.state) == (4, 3, 1, "done")
    assert cell.output_tps == Spread(110.0, 100.0, 140.0, 3)
    assert cell.ttft_p50_ms == Spread(20.0, 10.0, 30.0, 2)
    assert cell.error_rate == 0.5
    assert cell.requests == 60
    assert cell.doubtful


def test_a_cell_without_a_done_repeat_is_failed_and_one_without_a_row_is_missing(tmp_path: Path) -> None:
    failed = done("pcie", None, status="failed", failure="gone")
    planned = [entry_of(failed), load_entry("pcie", 1000, 16)]
    (matrix,) = report_of(tmp_path / "r", [failed], planned).matrices
    assert [matrix.cells[1000, concurrency].state for concurrency in (4, 16)] == ["failed", "missing"]
    assert not matrix.cells[1000, 4].doubtful


def test_doubts_of_any_done_repeat_mark_the_cell(tmp_path: Path) -> None:
    cells = [
        done("pcie", 1.0, 0),
        done("pcie", 1.0, 1, checks=["few_samples", "errors"], check_details=["", ""]),
    ]
    cell = only_cell(report_of(tmp_path / "r", cells))
    assert cell.checks == ("errors", "few_samples")
    assert cell.doubtful


def test_contexts_and_concurrencies_are_sorted_as_numbers(tmp_path: Path) -> None:
    cells = [cell_row(load_entry("pcie", context, n)) for context, n in ((50000, 16), (1000, 2), (8000, 4))]
    (matrix,) = report_of(tmp_path / "r", cells).matrices
    assert matrix.contexts == (1000, 8000, 50000)
    assert matrix.loads == (2, 4, 16)


def test_the_ratio_is_the_other_platform_over_the_first_of_medians(tmp_path: Path) -> None:
    cells = [done("pcie", tps, repeat) for repeat, tps in enumerate((90.0, 100.0, 130.0))]
    cells += [done("nvlink", tps, repeat) for repeat, tps in enumerate((200.0, 231.0, 240.0))]
    (table,) = report_of(tmp_path / "r", cells).ratios
    assert (table.over, table.under) == ("nvlink", "pcie")
    assert table.cells[1000, 4].value == pytest.approx(2.31)
    assert not table.cells[1000, 4].doubtful


def test_every_platform_is_set_against_the_first_one(tmp_path: Path) -> None:
    cells = [done("pcie", 100.0), done("nvlink", 200.0), done("tpu", 50.0)]
    tables = report_of(tmp_path / "r", cells).ratios
    assert [(table.over, table.under, table.cells[1000, 4].value) for table in tables] == [
        ("nvlink", "pcie", 2.0),
        ("tpu", "pcie", 0.5),
    ]


@pytest.mark.parametrize(
    "other",
    [
        {"status": "failed", "failure": "gone"},
        {"max_tokens": 512},
        {"temperature": 1.0},
        {"context_tokens": 2000},
        {"config": "other"},
        {"workload": "other"},
    ],
)
def test_there_is_no_ratio_of_what_is_not_comparable(tmp_path: Path, other: dict[str, Any]) -> None:
    assert report_of(tmp_path / "r", [done("pcie", 100.0), done("nvlink", 200.0, **other)]).ratios == ()


@pytest.mark.parametrize(("over", "under"), [(None, 100.0), (100.0, None), (100.0, 0.0)])
def test_a_ratio_of_an_unknown_rate_is_unknown(
    tmp_path: Path, over: float | None, under: float | None
) -> None:
    (table,) = report_of(tmp_path / "r", [done("pcie", under), done("nvlink", over)]).ratios
    assert table.cells[1000, 4].value is None


@pytest.mark.parametrize("doubt", [{"checks": ["errors"], "check_details": ["x"]}, {"simulated": True}])
def test_a_ratio_with_a_doubtful_or_a_simulated_side_is_doubtful(
    tmp_path: Path, doubt: dict[str, Any]
) -> None:
    (table,) = report_of(tmp_path / "r", [done("pcie", 100.0), done("nvlink", 200.0, **doubt)]).ratios
    assert table.cells[1000, 4].doubtful
