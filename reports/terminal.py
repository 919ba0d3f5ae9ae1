"""A report on a terminal: the same words, without the detail tables, long lists shortened."""

from rich.console import Console
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from reports.blocks import (
    Banner,
    Block,
    Bullets,
    Column,
    Document,
    Figures,
    Grid,
    Heading,
    Lines,
    Paragraph,
    Style,
    Words,
)
from reports.document import document
from reports.model import Report
from reports.text import clip

_STYLES: dict[Style, str] = {
    "": "",
    "strong": "bold",
    "code": "bold",
    "doubt": "yellow",
    "bad": "red",
    "good": "green",
    "faint": "dim",
}
_ROWS = 6
_CELL_CHARACTERS = 200


def print_report(report: Report, console: Console) -> None:
    """Writes the report to `console`. Text of servers and models is printed as it is: no markup, no control codes."""
    whole = document(report)
    _print_title(whole, console)
    for section in whole.sections:
        console.print()
        console.print(Text(section.title, style="bold underline"))
        for block in section.blocks:
            _print_block(block, console)


def _print_title(whole: Document, console: Console) -> None:
    console.print(Text(clip(whole.title, _CELL_CHARACTERS), style="bold"))


def _print_block(block: Block, console: Console) -> None:
    match block:
        case Banner(words=sentence):
            console.print(Panel(_text(sentence), style="bold", border_style="yellow", expand=False))
        case Heading(words=sentence):
            console.print(Text.assemble("\n", _text(sentence), style="bold"))
        case Paragraph(words=sentence):
            console.print(_text(sentence))
        case Bullets(items=items):
            for item in items:
                console.print(Padding(_text(item), (0, 0, 0, 2)))
        case Grid():
            _print_grid(block, console)
        case Lines(lines=lines):
            for line in lines:
                console.print(_text(line), soft_wrap=True)
        case Figures():
            pass


def _print_grid(grid: Grid, console: Console) -> None:
    if grid.terminal == "nothing":
        return
    rows = grid.rows if grid.terminal == "whole" else grid.rows[:_ROWS]
    console.print(Text(grid.caption))
    table = Table(box=None, pad_edge=False, show_edge=False)
    shown = [at for at, column in enumerate(grid.columns) if column.brief]
    for at in shown:
        _add_column(table, grid.columns[at])
    for row in rows:
        table.add_row(*(_cell(row[at]) for at in shown))
    console.print(table)
    if len(rows) < len(grid.rows):
        console.print(Text(f"... and {len(grid.rows) - len(rows)} more rows in report.md", style="dim"))


def _add_column(table: Table, column: Column) -> None:
    table.add_column(
        Text(column.title, style="bold"), justify="right" if column.numeric else "left", overflow="fold"
    )


def _cell(sentence: Words) -> Text:
    text = _text(sentence)
    text.truncate(_CELL_CHARACTERS, overflow="ellipsis")
    return text


def _text(sentence: Words) -> Text:
    return Text.assemble(*((span.text, _STYLES[span.style]) for span in sentence))
