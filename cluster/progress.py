"""Shows a run as it goes: bars on a terminal, plain lines elsewhere. Only talks; never on the timed path."""

from collections.abc import Mapping
from typing import Any, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from cluster.screen import harmless
from loadgen.plan import Cell, Execution, Plan


class ConsoleWatcher:
    """The coordinator's watcher on a rich console. Use it as a context manager."""

    def __init__(self, plan: Plan, console: Console, done: int = 0) -> None:
        self._console = console
        self._progress = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.fields[doing]}"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._bars = {name: self._bar(name, plan) for name in plan.lives}
        if done:
            self._line(f"{done} executions were finished earlier and are not run again")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def server(self, platform: str, text: str) -> None:
        self._line(f"{platform}: {text}")
        self._progress.update(self._bars[platform], doing=escape(harmless(text)[:60]))

    def cell_started(self, execution: Execution) -> None:
        cell = execution.cell
        self._progress.update(self._bars[cell.platform], doing=escape(_title(execution)))

    def cell_ended(self, execution: Execution, row: Mapping[str, Any]) -> None:
        self._progress.advance(self._bars[execution.cell.platform])
        self._line(f"{execution.cell.platform}: {_title(execution)}: {_figure(row)}")

    def _bar(self, name: str, plan: Plan) -> TaskID:
        total = sum(len(life.executions) for life in plan.lives[name])
        return self._progress.add_task(escape(name), total=total, doing="")

    def _line(self, text: str) -> None:
        self._console.print(harmless(text), markup=False, highlight=False)


def _title(execution: Execution) -> str:
    cell = execution.cell
    repeat = f" #{execution.repeat + 1}" if execution.repeat else ""
    if cell.kind == "eval":
        return f"{cell.config} grading{repeat}"
    return f"{cell.config} {cell.workload} context {cell.context_tokens} {_load(cell)}{repeat}"


def _load(cell: Cell) -> str:
    if cell.concurrency is not None:
        return f"concurrency {cell.concurrency}"
    return f"rate {cell.rate:g}/s" if cell.rate is not None else str(cell.arrivals)


def _figure(row: Mapping[str, Any]) -> str:
    if row["status"] == "failed":
        return f"FAILED: {row['failure']}"
    if row["kind"] == "eval":
        return f"{row.get('passed', '?')}/{row.get('problems', '?')} passed"
    tps = row["output_tps"]
    doubts = f"  (! {', '.join(row['checks'])})" if row["checks"] else ""
    return f"{'?' if tps is None else format(tps, '.0f')} tok/s{doubts}"
