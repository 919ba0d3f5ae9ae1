"""How the client itself did in each cell: whose stamps the arrivals are, how late it was, how busy, and how near its ceiling."""

from reports.blocks import Block, Column, Grid, Paragraph, Words, words
from reports.model import CellSummary, Matrix
from reports.text import UNKNOWN, figure, percent, plain

_LAGS = {
    "client_lag_p99_ms": "read lag p99 ms",
    "loop_lag_p99_ms": "loop lag p99 ms",
    "send_lag_p99_ms": "send lag p99 ms",
}
_SHARES = {
    "shared_chunk_share": "shared reads",
    "worker_cpu": "CPU of a core",
    "cpu_steal_share": "stolen",
    "client_load_share": "of its ceiling",
}
_BRIEF = ("client_lag_p99_ms", "worker_cpu", "client_load_share")
COLUMNS = (*_LAGS, *_SHARES, "workers")


def client_blocks(matrices: tuple[Matrix, ...]) -> tuple[Block, ...]:
    """A row for each done load cell, with the worst of its repeats."""
    cells = [cell for matrix in matrices for cell in matrix.cells.values() if cell.state == "done"]
    if not cells:
        return (Paragraph(words("None: no load cell has been measured.")),)
    columns = (
        Column("cell"),
        Column("stamps"),
        *(
            Column(title, numeric=True, brief=name in _BRIEF)
            for name, title in {**_LAGS, **_SHARES, "workers": "workers"}.items()
        ),
    )
    return (
        Paragraph(
            words(
                "The worst repeat and worker of each cell, in real time. Where the kernel stamped the arrivals, they are "
                "right however late the client read; where it did not (TLS, aiohttp), they are as late as the loop was. "
                "Events of a shared read have the last one's stamp; an answer's last chunk, sent together with its end, is "
                "often one. The ceiling is that of loadgen calibrate; ? where "
                "this host was not calibrated for such a shape."
            )
        ),
        Grid("The client", columns, tuple(map(_row, cells)), is_aside=True),
    )


def _row(cell: CellSummary) -> tuple[Words, ...]:
    worst = {name: spread.high if (spread := cell.more[name]) else None for name in COLUMNS}
    return (
        words(cell.cell_id),
        words(", ".join(cell.stamp_sources) or UNKNOWN),
        *(words(figure(worst[name])) for name in _LAGS),
        *(words(percent(worst[name])) for name in _SHARES),
        words(plain(worst["workers"])),
    )
