"""`python -m bench.peers`: the same streams, one tool after the other; prints the table and writes it to a file."""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.host import SINK_PRIORITY, Host
from bench.peers.measure import folder, measure, version_of, why_missing
from bench.peers.report import peer_tables
from bench.peers.tools import TOOLS, Places, Tool
from bench.work import Work
from loadgen.errors import RunFailed
from loadgen.sink import Sink, running_sink

_HERE = Path(__file__).parent


def arguments(words: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    names = ", ".join(tool.name for tool in TOOLS)
    parser.add_argument("tools", nargs="*", metavar="TOOL", help=f"of {names}; default: all")
    parser.add_argument("--streams", type=int, nargs="+", default=[64, 256, 1024], help="held at once")
    parser.add_argument("--rounds", type=int, default=4, help="requests on each stream, one after the other")
    parser.add_argument("--chunks", type=int, default=100, help="of a request, 20 ms apart")
    parser.add_argument("--peers", type=Path, default=Path(".venv-peers"), help="what install.sh made")
    parser.add_argument("--sglang", type=Path, default=Path(".venv-sglang"), help="SGLang's environment")
    parser.add_argument("--out", type=Path, default=Path("build/peers.json"), help="file for the results")
    found = parser.parse_args(words)
    unknown = sorted(set(found.tools) - {tool.name for tool in TOOLS})
    if unknown:
        parser.error(f"no tool {', '.join(unknown)}; there are {names}")
    return found


def runs(options: argparse.Namespace, host: Host, scratch: Path) -> Iterator[dict[str, Any]]:
    """Each tool at each number of streams, as rows."""
    tools = [tool for tool in TOOLS if not options.tools or tool.name in options.tools]
    tokenizer = folder(scratch / "tokenizer")
    if any(tool.env_name for tool in tools) and options.sglang.is_dir():
        make = [options.sglang / "bin" / "python", _HERE / "make_tokenizer.py", tokenizer]
        subprocess.run(make, check=True, capture_output=True)
    for streams in options.streams:
        work = Work(streams, options.chunks, 20_000, ttft_us=200_000, requests=options.rounds * streams)
        for tool in tools:
            out = folder(scratch / f"{tool.name}-{streams}".replace(" ", "-"))
            places = Places(options.peers.resolve(), options.sglang.resolve(), tokenizer, out)
            with running_sink(prefix=host.pinned(host.sink_core, SINK_PRIORITY)) as sink:
                yield _row(tool, work, places, sink, host)


def _row(tool: Tool, work: Work, places: Places, sink: Sink, host: Host) -> dict[str, Any]:
    row: dict[str, Any] = {"peer": tool.name, "streams": work.streams, "error": None, "note": ""}
    if version_of(tool, places) is None:
        return {**row, "error": why_missing(tool, places)}
    try:
        row |= measure(tool, work, places, sink, host)
    except RunFailed as failure:
        return {**row, "error": str(failure)}
    if row["finished"] < work.requests:
        row["note"] = f"finished {row['finished']} of {work.requests} requests"
    elif tool.has_many_processes:
        row["note"] = "on both cores"
    return row


def main(words: Sequence[str]) -> int:
    """Runs it. Exit code 1 if a tool could not be measured."""
    options = arguments(words)
    host = Host.this()
    places = Places(options.peers.resolve(), options.sglang.resolve(), Path(), Path())
    result: dict[str, Any] = {
        "kind": "peers",
        "date": datetime.now(UTC).date().isoformat(),
        "host": host.facts(),
        "repeats": 1,
        "versions": {tool.name: version_of(tool, places) for tool in TOOLS if tool.env_name},
        "runs": [],
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        for row in runs(options, host, Path(scratch)):
            result["runs"].append(row)
            options.out.write_text(json.dumps(result, indent=1), encoding="utf-8")
            sys.stdout.write(f"{row['peer']}, {row['streams']} streams: {row['error'] or 'done'}\n")
            sys.stdout.flush()
    sys.stdout.write(f"\n{peer_tables(result)}\n\nwritten to {options.out}\n")
    return 1 if any(row["error"] for row in result["runs"]) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
