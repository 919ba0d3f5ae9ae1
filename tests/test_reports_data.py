"""Run folders, whole and not, as reports."""

from pathlib import Path

from report_fixtures import (
    build_run,
    cell_row,
    eval_entry,
    full_report,
    grade_row,
    journal_row,
    load_entry,
    server_row,
)

from reports.data import load


def test_a_whole_run() -> None:
    report = full_report()
    assert report.run.finished
    assert (report.run.planned, report.run.committed, report.run.ending) == (38, 38, "run_ended")
    assert report.run.versions == {"loadgen": "0.1.0", "ray": "2.60.0"}
    assert report.run.host == {"host": "head-1", "python": "3.11.9", "cpus": "2", "memory": "8.0 GiB"}
    assert [matrix.platform for matrix in report.matrices] == ["pcie", "nvlink"]
    assert len(report.servers) == 3
    pcie = report.platforms[0]
    assert (pcie.simulated, pcie.time_scales, pcie.models) == (True, (20.0,), ("kimi-k2.6",))


def test_an_empty_run_knows_what_was_planned(tmp_path: Path) -> None:
    planned = [load_entry("pcie", 1000, 1), eval_entry("pcie")]
    report = load(build_run(tmp_path / "r", planned))
    assert not report.run.finished
    assert (report.run.planned, report.run.committed, report.run.ending) == (2, 0, None)
    assert report.missing[0].executions == 2
    assert report.matrices[0].cells[1000, 1].state == "missing"
    assert report.platforms[0].simulated is None
    assert report.grades == ()


def test_the_ending_is_the_last_word_of_the_journal(tmp_path: Path) -> None:
    events = [journal_row(1, "run_started"), journal_row(3, "interrupted"), journal_row(2, "cell_committed")]
    assert load(build_run(tmp_path / "r", [], journal=events)).run.ending == "interrupted"


def test_cells_outside_the_plan_are_counted_and_shown(tmp_path: Path) -> None:
    report = load(build_run(tmp_path / "r", [], cells=[cell_row(load_entry("old", 1000, 1))], platforms={}))
    assert (report.run.planned, report.run.committed) == (1, 1)
    assert [platform.name for platform in report.platforms] == ["old"]
    assert report.matrices[0].axes == "budget=8, window=full"


def test_a_platform_is_simulated_only_by_its_own_word(tmp_path: Path) -> None:
    servers = [
        server_row("pcie-0", simulated=True, time_scale=20.0),
        server_row("pcie-1", simulated=None, time_scale=None, state="failed"),
        server_row("nvlink-0", simulated=False, time_scale=1.0),
    ]
    pcie, nvlink = load(build_run(tmp_path / "r", [], servers=servers)).platforms
    assert (pcie.simulated, pcie.time_scales) == (True, (20.0,))
    assert (nvlink.simulated, nvlink.time_scales) == (False, ())


def test_grades_keep_the_order_of_asking_and_say_nothing_of_half_a_program(tmp_path: Path) -> None:
    entry = eval_entry("pcie")
    grades = [
        grade_row(entry, 2, "gcd", "FAIL", message="gave 1"),
        grade_row(entry, 0, "fib", "TRUNC", message="SyntaxError", verdict=None),
        grade_row(entry, 1, "flatten", "NONE", extraction_kind="no_code", verdict=None),
    ]
    (group,) = load(build_run(tmp_path / "r", [entry], cells=[cell_row(entry)], grades=grades)).grades
    assert [(line.problem, line.reason) for line in group.lines] == [
        ("fib", ""),
        ("flatten", "no_code"),
        ("gcd", "wrong_answer: gave 1"),
    ]


def test_a_failed_evaluation_has_its_reason(tmp_path: Path) -> None:
    entry = eval_entry("pcie")
    row = cell_row(entry, status="failed", failure="server died")
    (group,) = load(build_run(tmp_path / "r", [entry], cells=[row])).grades
    assert (group.failure, group.lines) == ("server died", ())


def test_a_figure_that_is_no_number_is_unknown(tmp_path: Path) -> None:
    entry, nan = eval_entry("pcie"), float("nan")
    grades = [
        grade_row(entry, 0, "fib", "PASS", output_tps=nan),
        grade_row(entry, 1, "gcd", "PASS", output_tps=100.0),
    ]
    servers = [server_row("pcie-0", ready_s=nan)]
    report = load(build_run(tmp_path / "r", [entry], cells=[cell_row(entry)], grades=grades, servers=servers))
    assert report.grades[0].lines[0].output_tps is None
    assert report.grades[0].average_tps == 100.0
    assert report.servers[0].ready_s is None


def test_each_warning_is_told_once_with_what_it_is_about(tmp_path: Path) -> None:
    events = [journal_row(at, "warning", detail="not graded", cell_id="pcie.eval") for at in range(2)]
    events.append(journal_row(5, "warning", detail="niceness 5"))
    assert load(build_run(tmp_path / "r", [], journal=events)).warnings == (
        "pcie.eval: not graded",
        "niceness 5",
    )
