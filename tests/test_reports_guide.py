"""Every check has its words: in the report, in the documentation."""

import re
from pathlib import Path

from loadgen import checks
from reports.guide import CHECKS, READING

DOC = Path(__file__).parent.parent / "docs" / "reading-a-report.md"


def test_every_check_that_can_be_raised_is_explained() -> None:
    source = Path(checks.__file__).read_text(encoding="utf-8")
    raised = set(re.findall(r'Doubt\(\s*"(\w+)"', source))
    assert len(raised) > 10
    assert raised == set(CHECKS)


def test_the_documentation_has_a_row_for_each_check_and_no_other() -> None:
    section = DOC.read_text(encoding="utf-8").partition("## Checks")[2].partition("\n## ")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", section, re.MULTILINE)) == set(CHECKS)


def test_the_report_itself_says_how_to_read_it_in_few_lines() -> None:
    assert 6 <= len(READING) <= 8
