"""Executions -> one summary for each load cell, their matrices, and the platform ratios. Plain rows in, values out."""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any, TypeVar

from reports import client_table, compat_table, latency_table
from reports.model import CellSummary, Matrix, Place, Ratio, RatioTable, Spread
from reports.text import known, pairs

Row = Mapping[str, Any]
_Number = TypeVar("_Number", int, float)
_MORE = (*latency_table.COLUMNS, *compat_table.COLUMNS, *client_table.COLUMNS)
_LIMITS = {
    "server": "limited by the server",
    "queue": "limited by the server's queue",
    "client": "limited by the client, not by the server",
    "max": "not reached",
    "unknown": "unknown",
}


def spread(values: Iterable[float | None]) -> Spread | None:
    """The figure over those repeats that know it; None when none does."""
    usable = [shown for value in values if (shown := known(value)) is not None]
    return Spread(median(usable), min(usable), max(usable), len(usable)) if usable else None


def summaries(planned: Sequence[Row], rows: Sequence[Row]) -> tuple[CellSummary, ...]:
    """One for each load cell that was planned or executed, in plan order."""
    first: dict[str, Row] = {}
    repeats: dict[str, set[int]] = {}
    for entry in (*planned, *rows):
        if entry["kind"] == "load":
            first.setdefault(entry["cell_id"], entry)
            repeats.setdefault(entry["cell_id"], set()).add(entry["repeat"])
    executions: dict[str, list[Row]] = {cell_id: [] for cell_id in first}
    for row in rows:
        if row["kind"] == "load":
            executions[row["cell_id"]].append(row)
    return tuple(
        _summary(entry, len(repeats[cell_id]), executions[cell_id]) for cell_id, entry in first.items()
    )


def _summary(entry: Row, planned: int, rows: Sequence[Row]) -> CellSummary:
    done = [row for row in rows if row["status"] == "done"]
    counts = [row["n"] for row in done if row["n"] is not None]
    rates = spread(row["error_rate"] for row in done)

    def over(name: str) -> Spread | None:
        return spread(row[name] for row in done)

    return CellSummary(
        cell_id=entry["cell_id"],
        platform=entry["platform"],
        config=entry["config"],
        workload=entry["workload"],
        context_tokens=entry["context_tokens"],
        concurrency=entry["concurrency"],
        asked=frozenset((row["max_tokens"], row["temperature"]) for row in done),
        planned=planned,
        done=len(done),
        failed=len(rows) - len(done),
        checks=tuple(sorted({check for row in done for check in row["checks"]})),
        simulated=done[0]["simulated"] if done else None,
        output_tps=over("output_tps"),
        stream_tps=over("stream_tps"),
        ttft_p50_ms=over("ttft_p50_ms"),
        ttft_p99_ms=over("ttft_p99_ms"),
        tpot_p50_ms=over("tpot_p50_ms"),
        error_rate=rates.high if rates else None,
        requests=sum(counts) if counts else None,
        rate=known(entry.get("rate")),
        arrivals=entry.get("arrivals"),
        saturation=tuple(_verdict(row) for row in done if row.get("saturation")),
        stamp_sources=tuple(sorted({row["stamp_source"] for row in done if row["stamp_source"]})),
        more={name: over(name) for name in _MORE},
    )


def _verdict(row: Row) -> str:
    return f"{_LIMITS.get(row['saturation'], row['saturation'])}: {row['saturation_detail']}"


def matrices(cells: Sequence[CellSummary], axes: Mapping[tuple[str, str], Any]) -> tuple[Matrix, ...]:
    """One for each platform, config, workload and arrival process; `axes` by platform and config."""
    groups: dict[tuple[str, str, str, str | None], dict[Place, CellSummary]] = {}
    for cell in cells:
        place = (cell.context_tokens, cell.concurrency if cell.arrivals is None else cell.rate)
        groups.setdefault((cell.platform, cell.config, cell.workload, cell.arrivals), {})[place] = cell
    return tuple(
        Matrix(
            platform,
            config,
            workload,
            arrivals,
            pairs(axes.get((platform, config), {})),
            _sorted(context for context, _ in places),
            _sorted(load for _, load in places),
            places,
        )
        for (platform, config, workload, arrivals), places in groups.items()
    )


def _sorted(values: Iterable[_Number | None]) -> tuple[_Number | None, ...]:
    return tuple(sorted(set(values), key=lambda value: (value is None, value or 0)))


def ratios(tables: Sequence[Matrix], platforms: Sequence[str]) -> tuple[RatioTable, ...]:
    """Every other platform over the first, for each config and workload that both ran and that share a cell."""
    by_key = {(table.platform, table.config, table.workload, table.arrivals): table for table in tables}
    found = []
    for over in platforms[1:]:
        for base in tables:
            other = by_key.get((over, base.config, base.workload, base.arrivals))
            if base.platform == platforms[0] and other is not None:
                found.append(_ratio_table(other, base))
    return tuple(table for table in found if table.cells)


def _ratio_table(over: Matrix, under: Matrix) -> RatioTable:
    shared = [place for place in under.cells if place in over.cells]
    values = {place: _ratio(over.cells[place], under.cells[place]) for place in shared}
    return RatioTable(
        over.platform,
        under.platform,
        under.config,
        under.workload,
        under.arrivals,
        _sorted(context for context, _ in shared),
        _sorted(load for _, load in shared),
        {place: value for place, value in values.items() if value is not None},
    )


def _ratio(over: CellSummary, under: CellSummary) -> Ratio | None:
    """None when the two are not comparable: one is missing or failed, or they asked for different output."""
    if over.state != "done" or under.state != "done" or len(over.asked | under.asked) != 1:
        return None
    doubtful = over.doubtful or under.doubtful or over.simulated != under.simulated
    if over.output_tps is None or under.output_tps is None or under.output_tps.median == 0:
        return Ratio(None, doubtful)
    return Ratio(over.output_tps.median / under.output_tps.median, doubtful)
