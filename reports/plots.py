"""The plots of a report as inline SVG: output tok/s by concurrency, and single-stream tok/s by context.

Colours are CSS variables, so that the page decides between light and dark. Names stand in the page's own legend,
not in the drawing; nothing in a drawing came from a server or a model.
"""

import io
import math
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from reports.model import CellSummary, Matrix, Spread
from reports.text import clean, figure

_COLOURS = 8
_DASHES = ("", "6 3", "2 2", "8 3 2 3")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")
# Matplotlib wants real colours; each of these stands for a CSS variable until the SVG is written.
_INK, _GRID, _PAPER = "#010203", "#010204", "#010205"
_SERIES = tuple(f"#0102{0x10 + at:02x}" for at in range(_COLOURS))
_VARIABLES = {
    _INK: "var(--ink)",
    _GRID: "var(--rule)",
    _PAPER: "var(--paper)",
    **{colour: f"var(--series-{at})" for at, colour in enumerate(_SERIES)},
}
_NO_METADATA = dict.fromkeys(("Date", "Creator", "Format", "Type"))


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a plot and its key in the legend: colour number, SVG dash array and marker."""

    name: str
    colour: int
    dashes: str
    marker: str
    platform: str
    config: str


@dataclass(frozen=True, slots=True)
class Plot:
    title: str
    description: str
    svg: str


@dataclass(frozen=True, slots=True)
class PlotGroup:
    """The plots of one workload, and the legend that they share."""

    workload: str
    series: tuple[Series, ...]
    plots: tuple[Plot, ...]


@dataclass(frozen=True, slots=True)
class _Point:
    """A cell in a plot; without a figure it breaks the line."""

    x: int
    tps: Spread | None
    doubtful: bool


def plot_groups(matrices: Sequence[Matrix]) -> tuple[PlotGroup, ...]:
    """For each workload a plot for each context, and one of the single streams; none where nothing was measured."""
    series = _all_series(matrices)
    groups = []
    for at, workload in enumerate(dict.fromkeys(matrix.workload for matrix in matrices)):
        tables = [matrix for matrix in matrices if matrix.workload == workload]
        plots = tuple(_plots(tables, series, f"w{at}"))
        if plots:
            shown = {(table.platform, table.config) for table in tables}
            keys = tuple(line for line in series if (line.platform, line.config) in shown)
            groups.append(PlotGroup(clean(workload), keys, plots))
    return tuple(groups)


def _all_series(matrices: Sequence[Matrix]) -> tuple[Series, ...]:
    """Colour tells configs apart, dashes platforms; with one config colour tells platforms apart too."""
    platforms = list(dict.fromkeys(matrix.platform for matrix in matrices))
    configs = list(dict.fromkeys(matrix.config for matrix in matrices))
    found = []
    for platform, config in dict.fromkeys((matrix.platform, matrix.config) for matrix in matrices):
        p, c = platforms.index(platform), configs.index(config)
        colour, marker = (c, c) if len(configs) > 1 else (p, p)
        found.append(
            Series(
                clean(f"{platform} / {config}"),
                colour % _COLOURS,
                _DASHES[p % len(_DASHES)],
                _MARKERS[marker % len(_MARKERS)],
                platform,
                config,
            )
        )
    return tuple(found)


def _plots(tables: Sequence[Matrix], series: Sequence[Series], prefix: str) -> list[Plot]:
    time = ", simulated time" if any(table.simulated for table in tables) else ""
    contexts = sorted({context for table in tables for context in table.contexts if context is not None})
    plots = [
        _plot(
            f"context {context}{time}",
            "concurrency",
            "output tok/s",
            _lines(tables, series, partial(_by_concurrency, context)),
            f"{prefix}c{context}",
        )
        for context in contexts
    ]
    plots.append(
        _plot(
            f"single stream{time}",
            "context, tokens",
            "tok/s of one stream",
            _lines(tables, series, _single_stream),
            f"{prefix}s",
        )
    )
    return [plot for plot in plots if plot is not None]


def _by_concurrency(context: int, cell: CellSummary) -> _Point | None:
    if cell.context_tokens != context or cell.concurrency is None:
        return None
    return _Point(cell.concurrency, cell.output_tps, cell.doubtful)


def _single_stream(cell: CellSummary) -> _Point | None:
    if cell.concurrency != 1 or cell.context_tokens is None:
        return None
    return _Point(cell.context_tokens, cell.stream_tps, cell.doubtful)


_Lines = Sequence[tuple[Series, Sequence[_Point]]]


def _lines(
    tables: Sequence[Matrix], series: Sequence[Series], point: Callable[[CellSummary], _Point | None]
) -> _Lines:
    found = []
    for line in series:
        cells = [
            cell
            for table in tables
            if (table.platform, table.config) == (line.platform, line.config)
            for cell in table.cells.values()
        ]
        points = [shown for cell in cells if (shown := point(cell)) is not None]
        if any(at.tps for at in points):
            found.append((line, sorted(points, key=lambda at: at.x)))
    return found


def _plot(title: str, x_label: str, y_label: str, lines: _Lines, prefix: str) -> Plot | None:
    """None when there is no point to draw."""
    if not lines:
        return None
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": prefix, "font.family": "sans-serif"}):
        drawing = Figure(figsize=(4.6, 3.2), layout="constrained")
        drawing.patch.set_alpha(0)
        axes = drawing.add_subplot()
        for line, points in lines:
            _draw(axes, line, points)
        _dress(axes, title, x_label, y_label, [point.x for _, points in lines for point in points])
        svg = _svg(drawing, prefix)
    return Plot(title, _description(title, x_label, y_label, lines), svg)


def _draw(axes: Axes, line: Series, points: Sequence[_Point]) -> None:
    """A hollow marker is a doubtful number; a bar spans the repeats."""
    colour = _SERIES[line.colour]
    dashes = [float(length) for length in line.dashes.split()]
    xs = [point.x for point in points]
    ys = [point.tps.median if point.tps else math.nan for point in points]
    axes.plot(xs, ys, color=colour, linewidth=1.8, linestyle=(0, dashes) if dashes else "solid")
    for point in points:
        if point.tps is None:
            continue
        axes.vlines(point.x, point.tps.low, point.tps.high, color=colour, linewidth=1)
        axes.plot(
            point.x,
            point.tps.median,
            marker=line.marker,
            markersize=6,
            markeredgewidth=1.5,
            markeredgecolor=colour,
            markerfacecolor=_PAPER if point.doubtful else colour,
        )


def _dress(axes: Axes, title: str, x_label: str, y_label: str, xs: Sequence[int]) -> None:
    ticks = sorted(set(xs))
    if ticks[0] > 0 and len(ticks) > 1:
        axes.set_xscale("log", base=2)
    axes.set_xticks(
        ticks, [str(tick) for tick in ticks], rotation=30 if len(ticks) > 7 else 0, parse_math=False
    )
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.set_facecolor("none")
    axes.grid(axis="y", color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    axes.tick_params(colors=_INK, labelsize=10, length=3)
    for side, spine in axes.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color(_INK)
    axes.set_title(title, color=_INK, fontsize=12, loc="left", parse_math=False)
    axes.set_xlabel(x_label, color=_INK, fontsize=11, parse_math=False)
    axes.set_ylabel(y_label, color=_INK, fontsize=11, labelpad=8, parse_math=False)


def _svg(drawing: Figure, prefix: str) -> str:
    """The drawing alone, with ids of its own and the page's colours; it scales with its place."""
    buffer = io.StringIO()
    with warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="Glyph .* missing"
        )  # the reader's browser has its own fonts
        drawing.savefig(buffer, format="svg", metadata=_NO_METADATA)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    for colour, variable in _VARIABLES.items():
        text = text.replace(colour, variable)
    text = re.sub(r'\bid="', f'id="{prefix}-', text)
    text = re.sub(r'(href="#|url\(#)', rf"\g<1>{prefix}-", text)
    return re.sub(r'^<svg ([^>]*?)width="[^"]*" height="[^"]*"', r'<svg aria-hidden="true" \1', text, count=1)


def _description(title: str, x_label: str, y_label: str, lines: _Lines) -> str:
    """What the drawing shows, in words, for those who do not see it."""
    told = "; ".join(
        f"{line.name}: "
        + ", ".join(f"{point.x}: {figure(point.tps.median)}" for point in points if point.tps)
        for line, points in lines
    )
    return f"{title}, {y_label} by {x_label}. {told}"
