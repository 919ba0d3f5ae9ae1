"""`python -m bench`: runs the cases, prints their figures, writes them to a file. Exit code 1 if a goal was missed."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.cases import CASES
from bench.host import Host
from bench.report import bench_tables
from bench.stage import Stage
from loadgen.errors import RunFailed


def arguments(words: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"of {', '.join(CASES)}; default: all")
    parser.add_argument("--repeats", type=int, default=5, help="of each play; medians are given")
    parser.add_argument("--seconds", type=float, default=3.0, help="of a play at its full rate")
    parser.add_argument("--out", type=Path, default=Path("build/bench.json"), help="file for the results")
    found = parser.parse_args(words)
    unknown = sorted(set(found.cases) - set(CASES))
    if unknown:
        parser.error(f"no case {', '.join(unknown)}; there are {', '.join(CASES)}")
    return found


def run_case(name: str, stage: Stage) -> dict[str, Any]:
    """A case's figures and the results behind them; a case that could not be played says why."""
    stage.record = []
    title = (CASES[name].__doc__ or "").strip()
    stage.say(f"{name}: {title}")
    try:
        figures, error = CASES[name](stage), None
    except RunFailed as failure:
        figures, error = [], str(failure)
        stage.say(f"  not measured: {error}")
    described = [{**asdict(figure), "is_met": figure.is_met} for figure in figures]
    return {"name": name, "title": title, "error": error, "figures": described, "plays": stage.record}


def main(words: Sequence[str]) -> int:
    """Runs it."""
    options = arguments(words)
    host = Host.this()
    stage = Stage(host, options.repeats, options.seconds, lambda line: print(line, flush=True))  # noqa: T201
    result: dict[str, Any] = {
        "kind": "bench",
        "date": datetime.now(UTC).date().isoformat(),
        "host": host.facts(),
        "repeats": options.repeats,
        "seconds": options.seconds,
        "cases": [],
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    for name in options.cases or CASES:
        result["cases"].append(run_case(name, stage))
        options.out.write_text(json.dumps(result, indent=1), encoding="utf-8")
    sys.stdout.write(f"\n{bench_tables(result)}\n\nwritten to {options.out}\n")
    figures = [figure for case in result["cases"] for figure in case["figures"]]
    is_bad = any(figure["is_met"] is False for figure in figures) or any(c["error"] for c in result["cases"])
    return 1 if is_bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
