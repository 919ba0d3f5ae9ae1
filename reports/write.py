"""The report files of a run, written into its folder."""

from dataclasses import dataclass
from pathlib import Path

from loadgen.errors import RunFailed
from loadgen.store import Run
from reports.data import load
from reports.html import to_html
from reports.markdown import to_markdown


@dataclass(frozen=True, slots=True)
class ReportFiles:
    markdown: Path
    html: Path


def write_reports(run: Run) -> ReportFiles:
    """RUN/report.md and RUN/report.html, in place of earlier ones. Raises RunFailed when they cannot be written."""
    report = load(run)
    files = ReportFiles(run.path / "report.md", run.path / "report.html")
    for path, text in ((files.markdown, to_markdown(report)), (files.html, to_html(report))):
        try:
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise RunFailed(f"{path}: the report cannot be written ({error.strerror})") from error
    return files
