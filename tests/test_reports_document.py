"""The order of the report, and what it says of a run as a whole."""

from pathlib import Path
from typing import Any

import pytest
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

from loadgen.store import Run
from reports.blocks import Banner, Bullets, Grid, Heading, Paragraph, plain_text
from reports.data import load
from reports.document import document
from reports.model import Report


def told(run: Run | Report, key: str) -> list[str]:
    """Every text of a section, in order; a table as caption and cells."""
    report = run if isinstance(run, Report) else load(run)
    (section,) = [section for section in document(report).sections if section.key == key]
    found: list[str] = []
    for block in section.blocks:
        match block:
            case Banner(words=words) | Heading(words=words) | Paragraph(words=words):
                found.append(plain_text(words))
            case Bullets(items=items):
                found += map(plain_text, items)
            case Grid():
                found += [block.caption, *(plain_text(cell) for row in block.rows for cell in row)]
    return found


def test_the_order_is_doubts_before_numbers() -> None:
    assert [section.title for section in document(full_report()).sections] == [
        "What was run",
        "What cannot be trusted",
        "Output tokens per second",
        "Platform ratios",
        "Grades",
        "Servers",
        "The client",
        "What other tools would print",
        "How to read this",
    ]


def test_a_simulated_run_says_so_first_and_a_real_one_does_not() -> None:
    assert told(full_report(), "run")[0] == (
        "SIMULATED: pcie, nvlink - durations and rates are in simulated time (clock x 20); no hardware was measured."
    )
    assert not any("SIMULATED" in text for text in told(full_report(simulated=False), "run"))


def test_clocks_that_differ_are_told_apart(tmp_path: Path) -> None:
    servers = [
        server_row("pcie-0", simulated=True, time_scale=20.0),
        server_row("nvlink-0", simulated=True, time_scale=2.5),
    ]
    banners = told(build_run(tmp_path / "r", [], servers=servers), "run")[:2]
    assert [("pcie" in banner, "clock x 20)" in banner, "clock x 2.5)" in banner) for banner in banners] == [
        (True, True, False),
        (False, False, True),
    ]


@pytest.mark.parametrize(
    ("done", "events", "state"),
    [
        (2, ["run_started", "run_ended"], "state: finished, 2 of 2 cell executions"),
        (
            1,
            ["run_started", "interrupted"],
            "state: interrupted, 1 of 2 cell executions; go on with --resume",
        ),
        (1, ["run_started", "run_ended"], "state: ended without all of its cells, 1 of 2 cell executions"),
        (
            1,
            ["interrupted", "run_resumed"],
            (
                "state: not finished, 1 of 2 cell executions; it is still running, or was stopped without a word "
                "(go on with --resume)"
            ),
        ),
    ],
)
def test_the_state_of_a_run(tmp_path: Path, done: int, events: list[str], state: str) -> None:
    planned = [load_entry("pcie", 1000, n) for n in (1, 2)]
    journal = [journal_row(seq, event) for seq, event in enumerate(events)]
    run = build_run(tmp_path / "r", planned, cells=map(cell_row, planned[:done]), journal=journal)
    assert state in told(run, "run")


def clean_run(path: Path, **more: Any) -> Run:
    entry = load_entry("pcie", 1000, 1)
    return build_run(path, [entry], cells=[cell_row(entry)], **more)


def test_nothing_to_doubt(tmp_path: Path) -> None:
    assert told(clean_run(tmp_path / "r"), "trust") == ["nothing: every cell passed its checks"]


def test_an_empty_run_is_not_called_trustworthy(tmp_path: Path) -> None:
    trust = told(build_run(tmp_path / "r", [load_entry("pcie", 1000, 1)]), "trust")
    assert trust[0] == "nothing has been measured yet"
    assert "nothing: every cell passed its checks" not in trust


def test_gaps_alone_do_not_taint_what_was_measured(tmp_path: Path) -> None:
    planned = [load_entry("pcie", 1000, n) for n in (1, 2)]
    assert told(build_run(tmp_path / "r", planned, cells=[cell_row(planned[0])]), "trust") == [
        "Missing: 1 execution planned and not in this run",
        "not run",
        "1",
        "pcie.base.chat.c1000.n2",
        "No other number raised a check.",
    ]


def test_doubts_have_their_meaning_and_unknown_ones_are_shown(tmp_path: Path) -> None:
    entry = load_entry("pcie", 1000, 1)
    row = cell_row(entry, checks=["queue_measured", "new_check"], check_details=["limit 9", ""])
    assert told(build_run(tmp_path / "r", [entry], cells=[row]), "trust") == [
        "queue_measured: 1 execution",
        "The server runs fewer requests at once than were in flight: its queue was measured.",
        "limit 9",
        "pcie.base.chat.c1000.n1",
        "new_check: 1 execution",
        "A check that this version of the report has no words for.",
        "?",
        "pcie.base.chat.c1000.n1",
    ]


def test_warnings_and_suspicions_stand_among_the_doubts(tmp_path: Path) -> None:
    entry = eval_entry("pcie")
    grades = [grade_row(entry, at, "gcd", "FAIL", verdict="compile_error") for at in range(5)]
    warning = journal_row(1, "warning", detail="workers run at niceness 5")
    run = build_run(tmp_path / "r", [entry], cells=[cell_row(entry)], grades=grades, journal=[warning])
    trust = told(run, "trust")
    assert trust[0] == (
        "Suspicion: suspect the extraction: all 5 programs of pcie.base.eval fail with compile_error while the "
        "server answers at 171 tok/s. Run loadgen probe to see how an answer is taken apart."
    )
    assert trust[1:3] == ["Warnings of the run", "workers run at niceness 5"]


def test_answers_that_the_harness_could_not_judge_stand_among_the_doubts(tmp_path: Path) -> None:
    judged, unjudged, ungraded = (eval_entry(platform) for platform in ("pcie", "nvlink", "tpu"))
    grades = [grade_row(judged, at, "gcd", "PASS") for at in range(2)]
    grades += [grade_row(unjudged, 0, "gcd", "PASS"), grade_row(unjudged, 1, "fib", "UNGRADED")]
    entries = [judged, unjudged, ungraded]
    run = build_run(tmp_path / "r", entries, cells=map(cell_row, entries), grades=grades)
    assert told(run, "trust")[:3] == [
        "Answers that were not judged",
        "nvlink.base.eval: 1 of 2 answers; the harness could not tell",
        "tpu.base.eval: not graded",
    ]


def test_a_doubt_about_every_execution_names_none(tmp_path: Path) -> None:
    planned = [load_entry("pcie", 1000, n) for n in (1, 2)]
    cells = [cell_row(entry, checks=["errors"], check_details=["why"]) for entry in planned]
    trust = told(build_run(tmp_path / "r", planned, cells=cells), "trust")
    assert (trust[0], trust[2:4]) == ("errors: 2 executions", ["why", "all 2"])
