"""The peers' table."""

from collections.abc import Mapping
from typing import Any

from bench.report import facts_line, number, table

_HEAD = (
    "tool",
    "streams",
    "held",
    "chunks/s",
    "CPU us/chunk",
    "mean TTFT true -> reported",
    "error ms",
    "gap p99 true -> reported, ms",
    "notes",
)


def peer_tables(result: Mapping[str, Any]) -> str:
    """The table of a run of `python -m bench.peers`."""
    rows = [_row(run) for run in result["runs"]]
    versions = ", ".join(
        f"{name} {version or 'not installed'}" for name, version in result["versions"].items()
    )
    return f"{facts_line(result)} {versions}.\n\n{table(_HEAD, rows)}"


def _row(run: Mapping[str, Any]) -> tuple[str, ...]:
    name, streams = str(run["peer"]), f"{run['streams']:,}"
    if run["error"]:
        return (name, streams, *["-"] * 6, str(run["error"]).replace("|", "/"))
    held = f"{run['held']:,}"
    return (
        name,
        streams,
        held if run["held"] >= run["streams"] else f"**{held}**",
        number(run["chunks_per_s"]),
        number(run["cpu_us"]),
        f"{number(run['true_ttft_ms'])} -> {number(run['ttft_ms'])}",
        number(run["ttft_error_ms"]),
        f"{number(run['true_gap_p99_ms'])} -> {number(run['gap_p99_ms'])}",
        str(run["note"]),
    )
