"""The files of a report."""

from pathlib import Path

import pytest
from report_fixtures import build_run, full_run, load_entry

from loadgen.errors import RunFailed
from reports.write import write_reports


def test_both_files_are_written_into_the_run_and_written_again(tmp_path: Path) -> None:
    run = full_run(tmp_path / "r")
    files = write_reports(run)
    assert (files.markdown, files.html) == (run.path / "report.md", run.path / "report.html")
    before = files.markdown.read_text(encoding="utf-8"), files.html.read_text(encoding="utf-8")
    write_reports(run)
    assert (files.markdown.read_text(encoding="utf-8"), files.html.read_text(encoding="utf-8")) == before
    assert before[0].startswith("# Load report: kimi sweep\n")
    assert before[1].startswith("<!DOCTYPE html>\n")


def test_what_cannot_be_written_is_a_failure_with_its_path(tmp_path: Path) -> None:
    run = build_run(tmp_path / "r", [load_entry("pcie", 1000, 1)])
    (run.path / "report.md").mkdir()
    with pytest.raises(RunFailed, match=r"report\.md: the report cannot be written \(Is a directory\)"):
        write_reports(run)
