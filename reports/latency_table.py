"""The second table of details of a matrix: where TTFT starts, gaps of chunks and of tokens, the peak, acceptance."""

from reports.blocks import Column, Grid, Words, words
from reports.model import CellSummary, Matrix, Place
from reports.text import figure, load_title, load_words, plain

# In open loop alone: in closed loop nothing waits in the client.
_STARTS = {
    "ttft_from_plan_p50_ms": "TTFT from the plan p50 ms",
    "ttft_from_plan_p99_ms": "TTFT from the plan p99 ms",
    "ttft_from_sent_p50_ms": "TTFT from sending p50 ms",
    "ttft_from_sent_p99_ms": "TTFT from sending p99 ms",
}
_FIGURES = {
    "ttfa_p50_ms": "TTFA p50 ms",
    "token_gap_p50_ms": "token gap p50 ms",
    "token_gap_p99_ms": "token gap p99 ms",
    "chunk_gap_p50_ms": "chunk gap p50 ms",
    "chunk_gap_p99_ms": "chunk gap p99 ms",
    "e2e_p99_ms": "whole request p99 ms",
    "peak_tps": "peak tok/s",
    "accept_length": "tokens per verify step",
}
COLUMNS = (*_STARTS, *_FIGURES)


def latency_grid(caption: str, matrix: Matrix) -> Grid | None:
    """A row for each done cell; None without any."""
    places = [(context, load) for context in matrix.contexts for load in matrix.loads]
    done = [(place, cell) for place in places if (cell := matrix.cells.get(place)) and cell.state == "done"]
    if not done:
        return None
    is_open_loop = any(cell.concurrency is None for _, cell in done)
    shown = {**(_STARTS if is_open_loop else {}), **_FIGURES}
    titles = ("context", load_title(matrix.arrivals), *shown.values())
    rows = tuple(_row(place, cell, tuple(shown)) for place, cell in done)
    columns = tuple(Column(title, numeric=True) for title in titles)
    return Grid(caption, columns, rows, terminal="nothing", is_aside=True)


def _row(place: Place, cell: CellSummary, names: tuple[str, ...]) -> tuple[Words, ...]:
    context, load = place
    figures = (cell.more[name] for name in names)
    return (
        words(plain(context)),
        words(load_words(cell.arrivals, load)),
        *(words(figure(spread.median if spread else None)) for spread in figures),
    )
