"""What a terminal gets: the words, no markup, no codes but colours."""

import io
import re
from pathlib import Path

from report_fixtures import HOSTILE, build_run, cell_row, full_report, hostile_report, load_entry
from rich.console import Console

from reports.data import load
from reports.model import Report
from reports.terminal import print_report
from reports.text import clean

COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def printed(report: Report, *, width: int = 110) -> str:
    output = io.StringIO()
    print_report(report, Console(file=output, force_terminal=True, color_system="standard", width=width))
    return output.getvalue()


def test_the_matrix_the_ratio_and_the_grades_are_there() -> None:
    text = COLOURS.sub("", printed(full_report()))
    lines = [line.strip() for line in text.splitlines()]
    assert "50000  44.0  fail  404 !" in lines
    assert "50000  2.20x      -  2.20x !" in lines
    assert "[FAIL] gcd  300 tokens  165 tok/s  wrong_answer: gcd(4, 6) gave 1, expected 2" in lines
    assert "3/5 passed, 1 truncated (not counted as wrong), 161.9 tok/s average" in lines
    assert "TTFT p99 ms" not in text


def test_long_lists_are_shortened_and_say_so(tmp_path: Path) -> None:
    planned = [load_entry("pcie", 1000, n) for n in range(1, 41)]
    cells = [
        cell_row(entry, checks=["errors"], check_details=[f"{entry['concurrency']} of 90 failed"])
        for entry in planned
    ]
    text = COLOURS.sub("", printed(load(build_run(tmp_path / "r", planned, cells=cells))))
    assert "6 of 90 failed" in text
    assert "7 of 90 failed" not in text
    assert "... and 34 more rows in report.md" in text


def test_hostile_text_is_printed_and_does_nothing() -> None:
    text = printed(hostile_report(), width=4000)
    plain = COLOURS.sub("", text)
    assert clean(HOSTILE) in plain
    assert not [character for character in plain if character != "\n" and clean(character) != character]


def test_a_narrow_terminal_loses_no_number() -> None:
    text = COLOURS.sub("", printed(full_report(), width=44))
    assert "404 !" in text
    assert max(map(len, re.findall(r"^ *(?:1000|50000) .*$", text, re.MULTILINE))) <= 44
