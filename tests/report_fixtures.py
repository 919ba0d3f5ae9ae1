"""A small builder of run folders for the report tests: plans and rows with defaults, written through the store."""

import tempfile
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from loadgen import tables
from loadgen.store import CellResult, Run
from reports.data import load
from reports.model import Report

PLATFORMS = {
    "pcie": {
        "gpu_kind": "RTX PRO 6000",
        "gpu_count": 8,
        "interconnect": "PCIe 5",
        "hourly_price": None,
        "control": "process",
    },
    "nvlink": {
        "gpu_kind": "B200",
        "gpu_count": 8,
        "interconnect": "NVLink",
        "hourly_price": 31.2,
        "control": "process",
    },
}
AXES = {"budget": 8, "window": "full"}


def load_entry(platform: str, context: int, concurrency: int, repeat: int = 0, **more: Any) -> dict[str, Any]:
    config = more.get("config", "base")
    workload = more.get("workload", "chat")
    return {
        "cell_id": f"{platform}.{config}.{workload}.c{context}.n{concurrency}",
        "repeat": repeat,
        "platform": platform,
        "config": config,
        "axes": AXES,
        "workload": workload,
        "kind": "load",
        "context_tokens": context,
        "concurrency": concurrency,
    } | more


def eval_entry(platform: str, repeat: int = 0, **more: Any) -> dict[str, Any]:
    config = more.get("config", "base")
    return (
        load_entry(platform, 0, 1, repeat)
        | {
            "cell_id": f"{platform}.{config}.eval",
            "workload": "coding-5",
            "kind": "eval",
            "context_tokens": None,
        }
        | more
    )


def cell_row(entry: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A done execution of a planned cell, valid unless `more` says otherwise."""
    return {
        **entry,
        "axes": '{"budget": 8, "window": "full"}',
        "status": "done",
        "max_tokens": 256,
        "temperature": 0.6,
        "server_id": f"{entry['platform']}-0",
        "simulated": False,
        "time_scale": 1.0,
        "started_unix_ns": 1_760_000_000_000_000_000,
        "sent": 40,
        "ok": 40,
        "cut": 0,
        "errors": 0,
        "outcomes": '{"ok": 40}',
        "n": 30,
        "error_rate": 0.0,
        "output_tps": 100.0,
        "stream_tps": 50.0,
        "ttft_p50_ms": 210.0,
        "ttft_p99_ms": 480.0,
        "tpot_p50_ms": 12.5,
        "checks": [],
        "check_details": [],
    } | more


def server_row(server_id: str, **more: Any) -> dict[str, Any]:
    platform = server_id.split("-", maxsplit=1)[0]
    return {
        "server_id": server_id,
        "platform": platform,
        "config": "base",
        "axes": '{"budget": 8}',
        "control": "process",
        "state": "stopped",
        "pid": 4321,
        "command": ["sglang"],
        "env": "{}",
        "endpoint": "http://127.0.0.1:1",
        "model": "kimi-k2.6",
        "version": "0.5.6",
        "simulated": False,
        "time_scale": 1.0,
        "started_unix_ns": 1_760_000_000_000_000_000,
        "ready_s": 83.44,
        "max_running_requests": 48,
        "proof": '{"budget": "verified"}',
        "log_path": f"logs/{server_id}.log",
    } | more


def grade_row(entry: dict[str, Any], index: int, problem: str, mark: str, **more: Any) -> dict[str, Any]:
    verdict = {"PASS": "pass", "FAIL": "wrong_answer", "UNGRADED": "ungraded"}.get(mark)
    return {
        "cell_id": entry["cell_id"],
        "repeat": entry["repeat"],
        "request_index": index,
        "problem": problem,
        "extraction_kind": "truncated" if mark == "TRUNC" else "code",
        "flags": [],
        "verdict": verdict,
        "mark": mark,
        "tests_total": 8,
        "output_tokens": 422,
        "output_tps": 171.0,
    } | more


def journal_row(seq: int, event: str, **more: Any) -> dict[str, Any]:
    return {"seq": seq, "session": "s", "unix_ns": 1_760_000_000_000_000_000 + seq, "event": event} | more


def build_run(
    path: Path,
    planned: Iterable[dict[str, Any]],
    *,
    cells: Iterable[dict[str, Any]] = (),
    servers: Iterable[dict[str, Any]] = (),
    grades: Iterable[dict[str, Any]] = (),
    journal: Iterable[dict[str, Any]] = (),
    workers: Mapping[tuple[str, int], list[dict[str, Any]]] = MappingProxyType({}),
    platforms: dict[str, Any] | None = None,
    name: str = "kimi sweep",
) -> Run:
    plan = {
        "name": name,
        "platforms": PLATFORMS if platforms is None else platforms,
        "cells": list(planned),
    }
    environment = {
        "host": "head-1",
        "python": "3.11.9",
        "cpus": 2,
        "memory_bytes": 8 * 2**30,
        "versions": {"loadgen": "0.1.0", "ray": "2.60.0"},
    }
    run = Run.create(path, config_text="{}\n", plan=plan, environment=environment)
    for row in cells:
        run.commit_cell(
            CellResult(
                row,
                tables.REQUESTS.schema.empty_table(),
                tables.RESPONSES.schema.empty_table(),
                tables.SERVER_SAMPLES.schema.empty_table(),
                tables.WORKERS.from_rows(workers.get((row["cell_id"], row["repeat"]), [])),
            )
        )
    for row in servers:
        run.write_server(row)
    by_key: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in grades:
        by_key.setdefault((row["cell_id"], row["repeat"]), []).append(row)
    for key, rows in by_key.items():
        run.write_grades(key, rows)
    run.write_rows(tables.JOURNAL, "s", list(journal))
    run.close()
    return Run.open(path)


def full_run(path: Path, *, simulated: bool = True) -> Run:
    """Two platforms x two contexts x three concurrencies x three repeats, an evaluation of each, and some trouble."""
    planned, cells, grades = [], [], []
    scale = {"simulated": simulated, "time_scale": 20.0 if simulated else 1.0}
    for platform, speed in (("pcie", 1.0), ("nvlink", 2.2)):
        for repeat in range(3):
            for context, slow in ((1000, 1.0), (50000, 0.4)):
                for concurrency in (1, 4, 16):
                    entry = load_entry(platform, context, concurrency, repeat)
                    tps = 110 * speed * slow * concurrency**0.8 * (1 + 0.02 * (repeat - 1))
                    row = cell_row(entry, output_tps=tps, stream_tps=tps / concurrency, **scale)
                    if concurrency == 16 and context == 50000:
                        row |= {
                            "checks": ["queue_measured"],
                            "check_details": ["the server runs 9 requests at once, 16 were in flight"],
                        }
                    if platform == "pcie" and concurrency == 4 and context == 50000:
                        row |= {
                            "status": "failed",
                            "failure": "server died: CUDA out of memory",
                            "output_tps": None,
                        }
                    planned.append(entry)
                    cells.append(row)
        entry = eval_entry(platform)
        planned.append(entry)
        cells.append(
            cell_row(entry, passed=3, graded=4, truncated=1, problems=5, **scale)
            | {"checks": ["answers_truncated"], "check_details": ["1 of 5 answers hit max_tokens 4096"]}
        )
        grades += [
            grade_row(entry, 0, "is_palindrome", "PASS"),
            grade_row(
                entry, 1, "fib", "TRUNC", output_tokens=4096, output_tps=168.0, message="SyntaxError: x"
            ),
            grade_row(
                entry,
                2,
                "gcd",
                "FAIL",
                output_tokens=300,
                output_tps=165.0,
                message="gcd(4, 6) gave 1, expected 2",
            ),
            grade_row(entry, 3, "flatten", "PASS", output_tokens=512, output_tps=159.5),
            grade_row(entry, 4, "word_count", "PASS", output_tokens=701, output_tps=146.0),
        ]
    servers = [
        server_row(
            "pcie-0", state="died", failure="exit code -9", log_tail="INFO start\nRuntimeError: CUDA OOM"
        ),
        server_row("pcie-1", started_unix_ns=1_760_000_000_000_000_001),
        server_row("nvlink-0", proof='{"budget": "unverifiable"}'),
    ]
    return build_run(
        path,
        planned,
        cells=cells,
        servers=[row | scale for row in servers],
        grades=grades,
        journal=[journal_row(1, "run_started"), journal_row(2, "run_ended")],
    )


HOSTILE = (
    "[red]x[/red] <script>alert(1)</script> \x1b]8;;http://evil.example/\x07y\x1b[31m a|b `c` $x$ "
    "![i](http://evil.example/p.png) www.evil.example \u202e _u_ **v** ~~w~~\n# h\r- i"
)
# The same without a slash: ids are file names.
HOSTILE_NAME = "[red]<b>\x1b]8;;x\x07|`$y$ \u202e![z](q)_"


def hostile_run(path: Path) -> Run:
    """Every text that a server, a model or a config can set is hostile."""
    names = {"config": HOSTILE_NAME, "workload": HOSTILE_NAME, "axes": {HOSTILE: HOSTILE}}
    load = load_entry(HOSTILE_NAME, 1000, 1, **names) | {"cell_id": f"{HOSTILE_NAME}.load"}
    lost = load | {"cell_id": f"{HOSTILE_NAME}.lost", "concurrency": 2}
    gone = load | {"cell_id": f"{HOSTILE_NAME}.gone", "concurrency": 4}
    other = load | {"cell_id": f"{HOSTILE_NAME}.other", "platform": f"{HOSTILE_NAME}2"}
    graded = eval_entry(HOSTILE_NAME, **names) | {"cell_id": f"{HOSTILE_NAME}.eval"}
    axes = {"axes": '{"a": "' + HOSTILE_NAME.replace("\x1b", "\\u001b").replace("\x07", "\\u0007") + '"}'}
    life = server_row(
        "s-0",
        platform=HOSTILE_NAME,
        config=HOSTILE_NAME,
        axes=HOSTILE,
        proof=HOSTILE,
        model=HOSTILE,
        version=HOSTILE,
        state="failed",
        failure=HOSTILE,
        log_tail=f"{HOSTILE}\n```\n</pre>{HOSTILE}",
    )
    facts = {"gpu_kind": HOSTILE, "gpu_count": 8, "interconnect": HOSTILE}
    return build_run(
        path,
        [load, lost, gone, other, graded],
        cells=[
            cell_row(load, checks=[HOSTILE, "errors"], check_details=[HOSTILE, HOSTILE]) | axes,
            cell_row(lost, status="failed", failure=HOSTILE) | axes,
            cell_row(other) | axes,
            cell_row(graded) | axes,
        ],
        servers=[life],
        grades=[
            grade_row(graded, 0, HOSTILE, "FAIL", message=HOSTILE, verdict="compile_error"),
            grade_row(graded, 1, HOSTILE, "FAIL", message=HOSTILE, verdict="compile_error"),
        ],
        journal=[
            journal_row(1, "cell_skipped", cell_id=gone["cell_id"], repeat=0, detail=HOSTILE),
            journal_row(2, "warning", detail=HOSTILE),
        ],
        platforms={HOSTILE_NAME: facts, f"{HOSTILE_NAME}2": facts},
        name=HOSTILE,
    )


@cache
def full_report(*, simulated: bool = True) -> Report:
    return _report(lambda path: full_run(path, simulated=simulated))


@cache
def hostile_report() -> Report:
    return _report(hostile_run)


def _report(build: Callable[[Path], Run]) -> Report:
    """A report is a plain value: it outlives its folder, and tests can share it."""
    with tempfile.TemporaryDirectory() as folder:
        return load(build(Path(folder) / "r"))
