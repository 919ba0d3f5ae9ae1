"""Doubts, failures, gaps and suspicions, as the report groups them."""

from pathlib import Path

import pytest
from report_fixtures import build_run, cell_row, eval_entry, grade_row, journal_row, load_entry

from reports.data import load
from reports.model import CellRef, Reason
from reports.trust import NO_REASON, NOT_RUN, suspicion


def doubted(repeat: int, checks: list[str], details: list[str], concurrency: int = 1) -> dict[str, object]:
    return cell_row(load_entry("pcie", 1000, concurrency, repeat), checks=checks, check_details=details)


def test_doubts_are_grouped_by_check_and_sentence_gravest_first_and_unknown_last(tmp_path: Path) -> None:
    cells = [
        doubted(0, ["zebra", "few_samples"], ["striped", "n is 3"]),
        doubted(1, ["few_samples", "config_mismatch"], ["n is 3", "budget 4, not 8"]),
        doubted(0, ["few_samples"], ["n is 5"], concurrency=2),
    ]
    report = load(build_run(tmp_path / "r", [], cells=cells))
    one, two = "pcie.base.chat.c1000.n1", "pcie.base.chat.c1000.n2"
    assert [doubt.check for doubt in report.doubts] == ["config_mismatch", "few_samples", "zebra"]
    assert report.doubts[1].reasons == (
        Reason("n is 3", (CellRef(one, (0, 1), 2),)),
        Reason("n is 5", (CellRef(two, (0,), 1),)),
    )


def test_a_check_without_its_sentence_is_still_a_doubt_and_a_sentence_alone_is_none(tmp_path: Path) -> None:
    cells = [doubted(0, ["errors"], []), doubted(1, [], ["a sentence"])]
    (doubt,) = load(build_run(tmp_path / "r", [], cells=cells)).doubts
    assert (doubt.check, doubt.reasons[0].text, doubt.reasons[0].executions) == ("errors", "", 1)


def test_failed_and_missing_executions_carry_their_reasons(tmp_path: Path) -> None:
    planned = [load_entry("pcie", 1000, 1, repeat) for repeat in range(5)]
    cells = [
        cell_row(planned[0], status="failed", failure="out of memory"),
        cell_row(planned[1], status="failed", failure=None),
    ]
    skipped = journal_row(
        1, "cell_skipped", cell_id=planned[2]["cell_id"], repeat=2, detail="its server did not start"
    )
    report = load(build_run(tmp_path / "r", planned, cells=cells, journal=[skipped]))
    cell_id = planned[0]["cell_id"]
    assert report.failed == (
        Reason("out of memory", (CellRef(cell_id, (0,), 5),)),
        Reason(NO_REASON, (CellRef(cell_id, (1,), 5),)),
    )
    assert report.missing == (
        Reason("its server did not start", (CellRef(cell_id, (2,), 5),)),
        Reason(NOT_RUN, (CellRef(cell_id, (3, 4), 5),)),
    )


@pytest.mark.parametrize(
    ("ref", "which"),
    [
        (CellRef("a", (0,), 1), ""),
        (CellRef("a", (0, 1), 2), " (all 2 repeats)"),
        (CellRef("a", (1,), 3), " (repeat 1)"),
        (CellRef("a", (0, 2), 3), " (repeats 0, 2)"),
    ],
)
def test_which_repeats(ref: CellRef, which: str) -> None:
    assert ref.which == which


CELL = CellRef("pcie.base.eval", (0,), 1)


def answers(*verdicts: str | None, tps: float | None = 160.0) -> list[dict[str, object]]:
    entry = eval_entry("pcie")
    return [
        grade_row(entry, at, "gcd", "FAIL", verdict=verdict, output_tps=tps)
        for at, verdict in enumerate(verdicts)
    ]


def test_programs_that_all_fail_to_compile_at_a_healthy_rate_point_at_the_extraction() -> None:
    sentence = suspicion(CELL, answers("compile_error", "compile_error", None))
    assert sentence == (
        "suspect the extraction: all 2 programs of pcie.base.eval fail with compile_error "
        "while the server answers at 160 tok/s"
    )


@pytest.mark.parametrize(
    "grades",
    [
        answers("compile_error", "pass"),
        answers("compile_error"),
        answers("compile_error", "compile_error", tps=None),
        answers("compile_error", "compile_error", tps=0.0),
        answers(None, None),
        [],
    ],
)
def test_nothing_is_suspected_without_all_of_that(grades: list[dict[str, object]]) -> None:
    assert suspicion(CELL, grades) is None
