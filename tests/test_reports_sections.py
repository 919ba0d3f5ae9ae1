"""The sections with numbers, word for word."""

from pathlib import Path
from typing import Any

import pytest
from report_fixtures import build_run, cell_row, eval_entry, full_report, grade_row, load_entry, server_row

from reports import sections
from reports.blocks import Block, Bullets, Grid, Heading, Lines, Paragraph, plain_text
from reports.data import load
from reports.model import GradeLine, Report


def grids(blocks: tuple[Block, ...]) -> list[list[list[str]]]:
    """Each table as its header and rows of text."""
    return [
        [
            [column.title for column in block.columns],
            *([plain_text(cell) for cell in row] for row in block.rows),
        ]
        for block in blocks
        if isinstance(block, Grid)
    ]


def texts(blocks: tuple[Block, ...]) -> list[str]:
    return [plain_text(block.words) for block in blocks if isinstance(block, Paragraph | Heading)]


def test_the_matrix_marks_doubtful_failed_and_missing_cells(tmp_path: Path) -> None:
    planned = [load_entry("pcie", context, n) for context in (1000, 50000) for n in (1, 4)]
    cells = [
        cell_row(planned[0], output_tps=1234.4),
        cell_row(planned[1], output_tps=98.76, checks=["errors"], check_details=["2 of 9 failed"]),
        cell_row(planned[2], status="failed", failure="gone"),
    ]
    blocks = sections.matrix_blocks(load(build_run(tmp_path / "r", planned, cells=cells)))
    matrix, *_ = grids(blocks)
    assert matrix == [
        ["context \\ concurrency", "1", "4"],
        ["1000", "1234", "98.8 !"],
        ["50000", "fail", "-"],
    ]


def test_the_detail_table_has_medians_ranges_and_what_is_unknown(tmp_path: Path) -> None:
    planned = [load_entry("pcie", 1000, 4, repeat) for repeat in range(3)]
    cells = [
        cell_row(planned[0], output_tps=100.0, stream_tps=None, ttft_p99_ms=1480.0, error_rate=0.125),
        cell_row(planned[1], output_tps=120.0, stream_tps=None, ttft_p99_ms=1520.0, error_rate=0.0),
    ]
    _, detail, _ = grids(sections.matrix_blocks(load(build_run(tmp_path / "r", planned, cells=cells))))
    assert dict(zip(*detail, strict=True)) == {
        "context": "1000",
        "concurrency": "4",
        "output tok/s": "110",
        "range": "100 - 120",
        "per-stream tok/s": "?",
        "TTFT p50 ms": "210",
        "TTFT p99 ms": "1500",
        "TPOT p50 ms": "12.5",
        "error rate": "12.5%",
        "n": "60",
        "repeats": "2 of 3",
        "doubts": "",
    }


def test_the_ratios() -> None:
    blocks = sections.ratio_blocks(full_report())
    assert [block.caption for block in blocks if isinstance(block, Grid)] == [
        "nvlink / pcie, config base, workload chat"
    ]
    assert grids(blocks)[0][1:] == [["1000", "2.20x", "2.20x", "2.20x"], ["50000", "2.20x", "-", "2.20x !"]]


def test_one_platform_has_no_ratio(tmp_path: Path) -> None:
    entry = load_entry("pcie", 1000, 1)
    one = build_run(tmp_path / "r", [entry], cells=[cell_row(entry)], platforms={"pcie": {}})
    assert texts(sections.ratio_blocks(load(one))) == ["None: a ratio needs two platforms."]


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (GradeLine("is_palindrome", "PASS", 422, 171.2, ""), "[PASS] is_palindrome  422 tokens  171 tok/s"),
        (GradeLine("fib", "TRUNC", 4096, 168.0, ""), "[TRUNC] fib  4096 tokens  168 tok/s"),
        (
            GradeLine("gcd", "FAIL", 300, 165.0, "wrong_answer: gave 1\nnot 2"),
            "[FAIL] gcd  300 tokens  165 tok/s  wrong_answer: gave 1 not 2",
        ),
        (GradeLine("gcd", "ERROR", None, None, "no_response"), "[ERROR] gcd  ? tokens  ? tok/s  no_response"),
    ],
)
def test_grade_lines(line: GradeLine, shown: str) -> None:
    assert plain_text(sections.grade_line(line)) == shown


def graded(path: Path, *marks: str, **more: Any) -> Report:
    entry = eval_entry("pcie")
    rates = (171.0, 168.0, 165.0, 159.5, 146.0)
    grades = [
        grade_row(entry, at, f"p{at}", mark, output_tps=rates[at]) | more for at, mark in enumerate(marks)
    ]
    return load(build_run(path, [entry], cells=[cell_row(entry, problems=len(marks))], grades=grades))


@pytest.mark.parametrize(
    ("marks", "summary"),
    [
        (("PASS", "PASS", "FAIL", "PASS", "PASS"), "4/5 passed, 161.9 tok/s average"),
        (
            ("PASS", "PASS", "TRUNC", "PASS", "PASS"),
            "4/5 passed, 1 truncated (not counted as wrong), 161.9 tok/s average",
        ),
        (
            ("PASS", "NONE", "UNGRADED", "ERROR", "FAIL"),
            (
                "1/5 passed, 1 without a program (not counted as wrong), 1 ungraded (not counted as wrong), "
                "1 request failed (not counted as wrong), 161.9 tok/s average"
            ),
        ),
    ],
)
def test_the_summary_of_an_evaluation(tmp_path: Path, marks: tuple[str, ...], summary: str) -> None:
    (group,) = graded(tmp_path / "r", *marks).grades
    assert sections.grade_summary(group) == summary


def test_the_average_of_nothing_known_is_unknown(tmp_path: Path) -> None:
    (group,) = graded(tmp_path / "r", "PASS", output_tps=None).grades
    assert sections.grade_summary(group) == "1/1 passed, ? tok/s average"


def test_an_evaluation_that_failed_or_was_not_graded_says_so(tmp_path: Path) -> None:
    entries = [eval_entry("pcie"), eval_entry("nvlink"), eval_entry("nvlink", 1)]
    cells = [cell_row(entries[0], status="failed", failure="server died"), *map(cell_row, entries[1:])]
    assert texts(sections.grade_blocks(load(build_run(tmp_path / "r", entries, cells=cells)))) == [
        "pcie / base, coding-5",
        "failed: server died",
        "nvlink / base, coding-5, repeat 0",
        "not graded yet",
        "nvlink / base, coding-5, repeat 1",
        "not graded yet",
    ]


def test_servers_show_what_is_known_and_the_log_of_those_that_fell(tmp_path: Path) -> None:
    log = "\n".join(f"line {number}" for number in range(30))
    fallen = server_row(
        "pcie-1",
        state="failed",
        failure="no answer in 60 s",
        pid=None,
        ready_s=None,
        version=None,
        log_tail=log,
    )
    fallen |= {"max_running_requests": None}
    probed = {"end_marks": "finish_reason, [DONE]", "token_counts": "usage"}
    blocks = sections.server_blocks(
        load(build_run(tmp_path / "r", [], servers=[server_row("pcie-0", **probed), fallen]))
    )
    assert grids(blocks)[0][1:] == [
        [
            *("pcie-0", "pcie", "base", "budget=8", "4321", "83.4", "0.5.6", "48"),
            *("finish_reason, [DONE]", "usage", "budget=verified", "stopped"),
        ],
        [
            "pcie-1",
            "pcie",
            "base",
            "budget=8",
            *(["?"] * 6),
            "budget=verified",
            "failed: no answer in 60 s",
        ],
    ]
    (lines,) = [block for block in blocks if isinstance(block, Lines)]
    assert [plain_text(line) for line in lines.lines] == [f"line {number}" for number in range(10, 30)]


def open_entry(rate: float | None, arrivals: str, repeat: int = 0) -> dict[str, Any]:
    entry = load_entry("pcie", 1000, 1, repeat) | {"concurrency": None, "rate": rate, "arrivals": arrivals}
    return entry | {"cell_id": f"pcie.base.chat.c1000.{arrivals}{rate}"}


def test_an_open_loop_has_a_matrix_of_its_own_with_rates_as_columns(tmp_path: Path) -> None:
    planned = [
        load_entry("pcie", 1000, 4),
        *(open_entry(rate, "poisson") for rate in (0.5, 12.0)),
        open_entry(None, "trace-mooncake"),
    ]
    cells = [cell_row(entry, output_tps=10.0 * (at + 1)) for at, entry in enumerate(planned)]
    blocks = sections.matrix_blocks(load(build_run(tmp_path / "r", planned, cells=cells)))
    squares = [grid for grid in grids(blocks) if "\\" in grid[0][0]]
    assert squares == [
        [["context \\ concurrency", "4"], ["1000", "10.0"]],
        [["context \\ requests/s", "0.5", "12"], ["1000", "20.0", "30.0"]],
        [["context \\ requests/s", "trace"], ["1000", "40.0"]],
    ]
    details = [grid[0][:2] for grid in grids(blocks) if grid[0][0] == "context"]
    assert details == [["context", "concurrency"]] * 2 + [["context", "requests/s"]] * 4
    assert "pcie / base, workload chat, open loop, poisson arrivals" in texts(blocks)


def test_platforms_are_compared_at_the_same_rate_of_the_same_process(tmp_path: Path) -> None:
    planned = [open_entry(2.0, "poisson"), open_entry(2.0, "constant")]
    other = planned[0] | {"platform": "nvlink", "cell_id": "other"}
    cells = [cell_row(planned[0]), cell_row(planned[1]), cell_row(other, output_tps=300.0)]
    (table,) = grids(sections.ratio_blocks(load(build_run(tmp_path / "r", [*planned, other], cells=cells))))
    assert table == [["context \\ requests/s", "2"], ["1000", "3.00x"]]


def test_the_verdict_of_a_search_stands_under_its_matrix(tmp_path: Path) -> None:
    planned = [load_entry("pcie", 1000, 1)]
    knee = load_entry("pcie", 1000, 40)
    cells = [cell_row(planned[0]), cell_row(knee, saturation="queue", saturation_detail="from 40 on")]
    blocks = sections.matrix_blocks(load(build_run(tmp_path / "r", planned, cells=cells)))
    said = [plain_text(line) for block in blocks if isinstance(block, Bullets) for line in block.items]
    assert said == ["saturation at context 1000: 40 streams, limited by the server's queue: from 40 on"]
