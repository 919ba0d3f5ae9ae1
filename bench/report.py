"""Results to Markdown: `python -m bench.report FILE...` puts the tables of result files between the markers of docs/performance.md."""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

PAGE = Path(__file__).resolve().parents[1] / "docs" / "performance.md"


def bench_tables(result: Mapping[str, Any]) -> str:
    """The tables of a run of `python -m bench`."""
    parts = [facts_line(result)]
    for case in result["cases"]:
        rows = [
            (_name(figure), _value(figure), _goal(figure), _verdict(figure)) for figure in case["figures"]
        ]
        parts.append(f"**{case['title']}** (`{case['name']}`)")
        if case.get("error"):
            parts.append(f"Not measured: {case['error']}")
        else:
            parts.append(table(("figure", "median", "goal", ""), rows))
    return "\n\n".join(parts)


def facts_line(result: Mapping[str, Any]) -> str:
    """Where and when."""
    host = result["host"]
    line = (
        f"{result['date']}, {host['cpu']}, {host['cores']} cores, Linux {host['kernel']}, Python {host['python']}, "
        f"load average at the start {host['load_average']:.2f}, {result['repeats']} repeats."
    )
    return " ".join([line, *(f"Note: {note}." for note in host["notes"])])


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    return "\n".join(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))


def put_between(page: str, name: str, text: str) -> str:
    """`page` with `text` between its markers `<!-- NAME -->` and `<!-- /NAME -->`. Raises ValueError without them."""
    start, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    before, found, rest = page.partition(start)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"no {start} ... {end}")
    return f"{before}{start}\n\n{text}\n\n{end}{after}"


def number(value: float | None) -> str:
    """Three significant digits, thousands apart; a dash for what is not known."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _name(figure: Mapping[str, Any]) -> str:
    return str(figure["name"])


def _value(figure: Mapping[str, Any]) -> str:
    return f"{number(figure['value'])} {figure['unit']}".strip()


def _goal(figure: Mapping[str, Any]) -> str:
    if figure["at_most"] is not None:
        return f"<= {figure['at_most']:g}"
    return "" if figure["at_least"] is None else f">= {figure['at_least']:g}"


def _verdict(figure: Mapping[str, Any]) -> str:
    return {None: "", True: "met", False: "**missed**"}[figure["is_met"]]


def main(files: Sequence[str]) -> None:
    """Renders each result file into its place of the page."""
    from bench.peers.report import peer_tables  # noqa: PLC0415 - it uses this module's tables

    page = PAGE.read_text(encoding="utf-8")
    for file in files:
        result = json.loads(Path(file).read_text(encoding="utf-8"))
        render = {"bench": bench_tables, "peers": peer_tables}[result["kind"]]
        page = put_between(page, result["kind"], render(result))
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
