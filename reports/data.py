"""A run folder -> a Report. The only module here that reads tables; finished, interrupted and empty runs alike."""

from collections.abc import Mapping, Sequence
from typing import Any

from loadgen.store import Run
from reports import cells, trust
from reports.model import CellRef, GradeGroup, GradeLine, PlatformFacts, Report, RunFacts, ServerLife
from reports.text import known, pairs, plain

Row = Mapping[str, Any]
_ENDINGS = ("run_started", "run_resumed", "run_ended", "interrupted")


def load(run: Run) -> Report:
    """Everything that the renderers need of a run."""
    planned: list[Row] = run.plan.get("cells", [])
    rows = _in_plan_order(run.read("cells").to_pylist(), planned)
    servers = sorted(
        run.read("servers").to_pylist(), key=lambda row: (row["platform"], row["started_unix_ns"])
    )
    journal = sorted(run.read("journal").to_pylist(), key=lambda row: row["seq"])
    repeats = trust.repeats_of(planned, rows)
    platforms = _platforms(run.plan.get("platforms", {}), rows, servers)
    tables = cells.matrices(cells.summaries(planned, rows), _axes(planned, rows))
    return Report(
        run=_run_facts(run, planned, rows, journal),
        platforms=platforms,
        doubts=trust.doubts(rows, repeats),
        failed=trust.failed(rows, repeats),
        missing=trust.missing(planned, rows, journal, repeats),
        warnings=_warnings(journal),
        matrices=tables,
        ratios=cells.ratios(tables, [platform.name for platform in platforms]),
        grades=_grade_groups(rows, run.read("grades").to_pylist(), repeats),
        servers=tuple(map(_server_life, servers)),
    )


def _in_plan_order(rows: Sequence[Row], planned: Sequence[Row]) -> list[Row]:
    order = {(entry["cell_id"], entry["repeat"]): at for at, entry in enumerate(planned)}

    def place(row: Row) -> tuple[int, str, int]:
        return order.get((row["cell_id"], row["repeat"]), len(order)), row["cell_id"], row["repeat"]

    return sorted(rows, key=place)


def _run_facts(run: Run, planned: Sequence[Row], rows: Sequence[Row], journal: Sequence[Row]) -> RunFacts:
    planned_keys = {(entry["cell_id"], entry["repeat"]) for entry in planned}
    committed = {(row["cell_id"], row["repeat"]) for row in rows}
    endings = [event["event"] for event in journal if event["event"] in _ENDINGS]
    return RunFacts(
        run_id=plain(run.meta.get("run_id")),
        name=plain(run.plan.get("name")),
        created_unix_ns=run.meta.get("created_unix_ns"),
        versions=_scalars(run.environment.get("versions", {})),
        host=_scalars(run.environment),
        planned=len(planned_keys | committed),
        committed=len(committed),
        ending=endings[-1] if endings else None,
    )


def _scalars(section: Mapping[str, Any]) -> dict[str, str]:
    """The plain values of a section of environment.json."""
    values = {name: value for name, value in section.items() if not isinstance(value, dict | list)}
    if isinstance(size := values.pop("memory_bytes", None), int):
        values["memory"] = f"{size / 2**30:.1f} GiB"
    return {name: plain(value) for name, value in values.items()}


def _warnings(journal: Sequence[Row]) -> tuple[str, ...]:
    """The journal's warnings, each once, with the cell or platform that it is about."""
    said = (
        (event["cell_id"] or event["platform"], event["detail"] or trust.NO_REASON)
        for event in journal
        if event["event"] == "warning"
    )
    return tuple(dict.fromkeys(f"{about}: {text}" if about else text for about, text in said))


def _platforms(
    planned: Mapping[str, Row], rows: Sequence[Row], servers: Sequence[Row]
) -> tuple[PlatformFacts, ...]:
    names = dict.fromkeys((*planned, *(row["platform"] for row in (*rows, *servers))))
    return tuple(
        _platform(name, planned.get(name, {}), [row for row in servers if row["platform"] == name], rows)
        for name in names
    )


def _platform(name: str, facts: Row, servers: Sequence[Row], rows: Sequence[Row]) -> PlatformFacts:
    seen = (*servers, *(row for row in rows if row["platform"] == name))
    told = {row["simulated"] for row in seen if row["simulated"] is not None}
    scales = {row["time_scale"] for row in seen if row["simulated"] and row["time_scale"] is not None}
    return PlatformFacts(
        name=name,
        gpu_kind=facts.get("gpu_kind"),
        gpu_count=facts.get("gpu_count"),
        interconnect=facts.get("interconnect"),
        hourly_price=facts.get("hourly_price"),
        control=facts.get("control"),
        simulated=any(told) if told else None,
        time_scales=tuple(sorted(scales)),
        models=tuple(dict.fromkeys(row["model"] for row in servers if row["model"])),
        server_versions=tuple(dict.fromkeys(row["version"] for row in servers if row["version"])),
    )


def _axes(planned: Sequence[Row], rows: Sequence[Row]) -> dict[tuple[str, str], Any]:
    found: dict[tuple[str, str], Any] = {}
    for entry in (*planned, *rows):
        found.setdefault((entry["platform"], entry["config"]), entry.get("axes", {}))
    return found


def _grade_groups(
    rows: Sequence[Row], grades: Sequence[Row], repeats: Mapping[str, int]
) -> tuple[GradeGroup, ...]:
    by_key: dict[tuple[str, int], list[Row]] = {}
    for grade in sorted(grades, key=lambda grade: grade["request_index"]):
        by_key.setdefault((grade["cell_id"], grade["repeat"]), []).append(grade)
    return tuple(
        _grade_group(row, by_key.get((row["cell_id"], row["repeat"]), []), repeats)
        for row in rows
        if row["kind"] == "eval"
    )


def _grade_group(row: Row, grades: Sequence[Row], repeats: Mapping[str, int]) -> GradeGroup:
    cell = CellRef(row["cell_id"], (row["repeat"],), repeats[row["cell_id"]])
    return GradeGroup(
        cell=cell,
        platform=row["platform"],
        config=row["config"],
        workload=row["workload"],
        failure=(row["failure"] or trust.NO_REASON) if row["status"] != "done" else None,
        problems=max(row["problems"] or 0, len(grades)),
        lines=tuple(map(_grade_line, grades)),
        suspicion=trust.suspicion(cell, grades),
    )


def graded(grades: Sequence[Row]) -> GradeGroup:
    """Rows of `grades` that belong to no run, as one evaluation."""
    cell = CellRef("eval", (0,), 1)
    lines = tuple(map(_grade_line, grades))
    return GradeGroup(cell, "", "", "", None, len(grades), lines, trust.suspicion(cell, grades))


def _grade_line(grade: Row) -> GradeLine:
    return GradeLine(
        problem=grade["problem"],
        mark=grade["mark"],
        output_tokens=grade["output_tokens"],
        output_tps=known(grade["output_tps"]),
        reason=_why(grade),
    )


def _why(grade: Row) -> str:
    """Nothing for a pass, nor for a truncated answer: what its half program did says nothing of the model."""
    if grade["mark"] in ("PASS", "TRUNC"):
        return ""
    kind = grade["verdict"] or grade["extraction_kind"]
    return f"{kind}: {grade['message']}" if grade["message"] else str(kind)


def _server_life(row: Row) -> ServerLife:
    return ServerLife(
        server_id=row["server_id"],
        platform=row["platform"],
        config=row["config"],
        axes=pairs(row["axes"]),
        state=row["state"],
        failure=row["failure"],
        pid=row["pid"],
        ready_s=known(row["ready_s"]),
        version=row["version"],
        max_running_requests=row["max_running_requests"],
        end_marks=row["end_marks"],
        token_counts=row["token_counts"],
        proof=pairs(row["proof"]),
        log_tail=row["log_tail"],
    )
