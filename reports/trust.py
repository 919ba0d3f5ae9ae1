"""What cannot be trusted: checks raised, executions that failed or are missing, and answers that look like our fault."""

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from typing import Any

from reports.guide import CHECKS
from reports.model import CellRef, Doubt, Reason
from reports.text import figure, known

Row = Mapping[str, Any]
Key = tuple[str, int]

NOT_RUN = "not run"
NO_REASON = "no reason was recorded"


def repeats_of(planned: Sequence[Row], rows: Sequence[Row]) -> dict[str, int]:
    """How many repeats each cell has, planned or executed."""
    keys = {(entry["cell_id"], entry["repeat"]) for entry in (*planned, *rows)}
    counts: dict[str, int] = {}
    for cell_id, _ in keys:
        counts[cell_id] = counts.get(cell_id, 0) + 1
    return counts


def doubts(rows: Sequence[Row], repeats: Mapping[str, int]) -> tuple[Doubt, ...]:
    """The checks that executions raised, gravest first, unknown names last; each with its sentences."""
    raised: dict[str, dict[str, list[Key]]] = {}
    for row in rows:
        for check, detail in zip_longest(row["checks"], row["check_details"][: len(row["checks"])]):
            by_text = raised.setdefault(check, {})
            by_text.setdefault(detail or "", []).append((row["cell_id"], row["repeat"]))
    order = {check: at for at, check in enumerate(CHECKS)}
    names = sorted(raised, key=lambda check: (order.get(check, len(order)), check))
    return tuple(Doubt(check, _reasons(raised[check], repeats)) for check in names)


def failed(rows: Sequence[Row], repeats: Mapping[str, int]) -> tuple[Reason, ...]:
    """Failed executions by their reason."""
    by_text: dict[str, list[Key]] = {}
    for row in rows:
        if row["status"] != "done":
            by_text.setdefault(row["failure"] or NO_REASON, []).append((row["cell_id"], row["repeat"]))
    return _reasons(by_text, repeats)


def missing(
    planned: Sequence[Row], rows: Sequence[Row], journal: Sequence[Row], repeats: Mapping[str, int]
) -> tuple[Reason, ...]:
    """Planned executions that are not in the run, by the journal's reason where it gives one."""
    done = {(row["cell_id"], row["repeat"]) for row in rows}
    said = {
        (event["cell_id"], event["repeat"]): event["detail"]
        for event in journal
        if event["event"] in ("cell_skipped", "cell_failed")
    }
    by_text: dict[str, list[Key]] = {}
    for entry in planned:
        key = (entry["cell_id"], entry["repeat"])
        if key not in done:
            by_text.setdefault(said.get(key) or NOT_RUN, []).append(key)
    return _reasons(by_text, repeats)


def _reasons(by_text: Mapping[str, Sequence[Key]], repeats: Mapping[str, int]) -> tuple[Reason, ...]:
    return tuple(Reason(text, _refs(keys, repeats)) for text, keys in by_text.items())


def _refs(keys: Sequence[Key], repeats: Mapping[str, int]) -> tuple[CellRef, ...]:
    by_cell: dict[str, list[int]] = {}
    for cell_id, repeat in keys:
        by_cell.setdefault(cell_id, []).append(repeat)
    return tuple(
        CellRef(cell_id, tuple(sorted(numbers)), repeats[cell_id]) for cell_id, numbers in by_cell.items()
    )


def suspicion(cell: CellRef, grades: Sequence[Row]) -> str | None:
    """A sentence when every program of an evaluation fails to compile although the server answers at a rate.

    A model that answers fluently does not make the same syntax error everywhere; a broken extraction does.
    """
    programs = [grade for grade in grades if grade["verdict"] is not None]
    rates = [rate for grade in grades if (rate := known(grade["output_tps"])) is not None and rate > 0]
    if len(programs) < 2 or not rates or any(grade["verdict"] != "compile_error" for grade in programs):
        return None
    return (
        f"suspect the extraction: all {len(programs)} programs of {cell.cell_id}{cell.which} fail with compile_error "
        f"while the server answers at {figure(sum(rates) / len(rates))} tok/s"
    )
