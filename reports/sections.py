"""The sections with numbers, as blocks: matrices, platform ratios, grades, servers."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from reports.blocks import (
    Block,
    Bullets,
    Column,
    Figures,
    Grid,
    Heading,
    Lines,
    Paragraph,
    Span,
    Style,
    Words,
    words,
)
from reports.latency_table import latency_grid
from reports.model import (
    CellSummary,
    GradeGroup,
    GradeLine,
    Matrix,
    Place,
    Ratio,
    RatioTable,
    Report,
    ServerLife,
    Spread,
)
from reports.text import (
    UNKNOWN,
    clean_lines,
    clip,
    counted,
    figure,
    load_title,
    load_words,
    one_decimal,
    percent,
    plain,
    ratio,
)

_MESSAGE_CHARACTERS = 300
_LOG_LINES = 20
_MARKS: Mapping[str, Style] = {"PASS": "good", "FAIL": "bad", "ERROR": "bad"}
_FAILED_STATES = ("failed", "died", "lost")

_ABSENT = words(Span("-", "faint"))
_LEGEND = words(
    "Rows are context lengths in tokens, columns are concurrencies, or requests/s of an open loop. ",
    Span("!", "doubt"),
    " doubtful, see above; ",
    Span("fail", "bad"),
    " no repeat gave a number; ",
    Span("-", "faint"),
    " not in this run; ? unknown.",
)
_RATIO_LEGEND = words(
    "Output tok/s of one platform over the other's, for the same config, workload, context and load. ",
    Span("!", "doubt"),
    " a side is doubtful; ",
    Span("-", "faint"),
    " not comparable: a side is missing or failed, or asked for another output; ? unknown.",
)

_DETAIL = (
    Column("output tok/s", numeric=True),
    Column("range", numeric=True),
    Column("per-stream tok/s", numeric=True),
    Column("TTFT p50 ms", numeric=True),
    Column("TTFT p99 ms", numeric=True),
    Column("TPOT p50 ms", numeric=True),
    Column("error rate", numeric=True),
    Column("n", numeric=True),
    Column("repeats", numeric=True),
    Column("doubts"),
)


def matrix_blocks(report: Report) -> tuple[Block, ...]:
    if not report.matrices:
        return (Paragraph(words("The plan has no load cells.")),)
    blocks: list[Block] = [Paragraph(_LEGEND), Figures()]
    for matrix in report.matrices:
        name = f"{matrix.platform} / {matrix.config}, workload {matrix.workload}{_open_loop(matrix)}"
        blocks.append(Heading(words(name)))
        if matrix.axes:
            blocks.append(Paragraph(words(f"axes: {matrix.axes}")))
        time = " in simulated time" if matrix.simulated else ""
        blocks.append(_square(f"Output tok/s{time}", matrix, partial(_tps, matrix)))
        blocks += _saturation(matrix)
        blocks.append(_detail(f"Details{time}", matrix))
        if (gaps := latency_grid(f"Latencies and gaps{time}", matrix)) is not None:
            blocks.append(gaps)
    return tuple(blocks)


def _open_loop(table: Matrix | RatioTable) -> str:
    return "" if table.arrivals is None else f", open loop, {table.arrivals} arrivals"


def _saturation(matrix: Matrix) -> tuple[Block, ...]:
    said = [
        words(
            Span(f"saturation at context {plain(context)}", "strong"), f": {plain(load)} streams, {verdict}"
        )
        for (context, load), cell in matrix.cells.items()
        for verdict in cell.saturation
    ]
    return (Bullets(tuple(said)),) if said else ()


def _square(caption: str, table: Matrix | RatioTable, cell: Callable[[Place], Words]) -> Grid:
    return Grid(
        caption,
        (
            Column(f"context \\ {load_title(table.arrivals)}", numeric=True),
            *(Column(load_words(table.arrivals, value), numeric=True) for value in table.loads),
        ),
        tuple(
            (words(plain(context)), *(cell((context, value)) for value in table.loads))
            for context in table.contexts
        ),
        terminal="whole",
    )


def _tps(matrix: Matrix, place: Place) -> Words:
    cell = matrix.cells.get(place)
    if cell is None or cell.state == "missing":
        return _ABSENT
    if cell.state == "failed":
        return words(Span("fail", "bad"))
    return _marked(_middle(cell.output_tps), cell.doubtful)


def _marked(shown: str, doubtful: bool) -> Words:
    return words(Span(f"{shown} !", "doubt")) if doubtful else words(shown)


def _middle(spread: Spread | None) -> str:
    return figure(spread.median) if spread else UNKNOWN


def _detail(caption: str, matrix: Matrix) -> Grid:
    places = [(context, value) for context in matrix.contexts for value in matrix.loads]
    rows = [_detail_row(matrix, place) for place in places if place in matrix.cells]
    place = (Column("context", numeric=True), Column(load_title(matrix.arrivals), numeric=True))
    return Grid(caption, (*place, *_DETAIL), tuple(rows), terminal="nothing")


def _detail_row(matrix: Matrix, place: Place) -> tuple[Words, ...]:
    cell = matrix.cells[place]
    context, load = place
    head = (words(plain(context)), words(load_words(matrix.arrivals, load)), _tps(matrix, place))
    tail = (words(f"{cell.done} of {cell.planned}"), _doubts(cell))
    if cell.state != "done":
        return (*head, *([_ABSENT] * 7), *tail)
    return (
        *head,
        words(_range(cell.output_tps)),
        words(_middle(cell.stream_tps)),
        words(_middle(cell.ttft_p50_ms)),
        words(_middle(cell.ttft_p99_ms)),
        words(_middle(cell.tpot_p50_ms)),
        words(percent(cell.error_rate)),
        words(plain(cell.requests)),
        *tail,
    )


def _range(spread: Spread | None) -> str:
    if spread is None:
        return UNKNOWN
    return f"{figure(spread.low)} - {figure(spread.high)}" if spread.n > 1 else "one repeat"


def _doubts(cell: CellSummary) -> Words:
    named = list(cell.checks)
    if cell.failed:
        named.append(f"{counted(cell.failed, 'repeat')} failed")
    return words(Span(", ".join(named), "doubt")) if named else words("")


def ratio_blocks(report: Report) -> tuple[Block, ...]:
    if len(report.platforms) < 2:
        return (Paragraph(words("None: a ratio needs two platforms.")),)
    if not report.ratios:
        return (Paragraph(words("None: no cell has been measured on two platforms.")),)
    return (Paragraph(_RATIO_LEGEND), *(_ratio_grid(table) for table in report.ratios))


def _ratio_grid(table: RatioTable) -> Grid:
    caption = (
        f"{table.over} / {table.under}, config {table.config}, workload {table.workload}{_open_loop(table)}"
    )
    return _square(caption, table, lambda place: _ratio(table.cells.get(place)))


def _ratio(value: Ratio | None) -> Words:
    return _ABSENT if value is None else _marked(ratio(value.value), value.doubtful)


def grade_blocks(report: Report) -> tuple[Block, ...]:
    if not report.grades:
        return (Paragraph(words("No evaluation has been run.")),)
    return tuple(block for group in report.grades for block in _grade_group(group))


def _grade_group(group: GradeGroup) -> tuple[Block, ...]:
    repeat = f", repeat {group.cell.repeats[0]}" if group.cell.planned > 1 else ""
    heading = Heading(words(f"{group.platform} / {group.config}, {group.workload}{repeat}"))
    if group.failure is not None:
        return heading, Paragraph(
            words(Span("failed", "bad"), f": {clip(group.failure, _MESSAGE_CHARACTERS)}")
        )
    if not group.lines:
        return heading, Paragraph(words("not graded yet"))
    return heading, Lines((*map(grade_line, group.lines), words(grade_summary(group))))


def grade_lines(group: GradeGroup) -> tuple[Words, ...]:
    """A line for each answer, their sum, and the suspicion if there is one."""
    doubt = (words(Span(group.suspicion, "doubt")),) if group.suspicion else ()
    return (*map(grade_line, group.lines), words(grade_summary(group)), *doubt)


def grade_line(line: GradeLine) -> Words:
    """`[PASS] is_palindrome  422 tokens  171 tok/s`, and for what went wrong its reason."""
    reason = f"  {clip(line.reason, _MESSAGE_CHARACTERS)}" if line.reason else ""
    return words(
        Span(f"[{line.mark}]", _MARKS.get(line.mark, "doubt")),
        f" {line.problem}  {plain(line.output_tokens)} tokens  {figure(line.output_tps)} tok/s{reason}",
    )


def grade_summary(group: GradeGroup) -> str:
    """`4/5 passed, 1 truncated (not counted as wrong), 161.9 tok/s average`."""
    parts = [f"{group.count('PASS')}/{group.problems} passed"]
    for mark, noun in (
        ("TRUNC", "truncated"),
        ("NONE", "without a program"),
        ("UNGRADED", "ungraded"),
        ("ERROR", "request failed"),
    ):
        if count := group.count(mark):
            parts.append(f"{count} {noun} (not counted as wrong)")
    return ", ".join((*parts, f"{one_decimal(group.average_tps)} tok/s average"))


def server_blocks(report: Report) -> tuple[Block, ...]:
    if not report.servers:
        return (Paragraph(words("No server has been started.")),)
    columns = (
        Column("server"),
        Column("platform", brief=False),
        Column("config", brief=False),
        Column("axes", brief=False),
        Column("pid", numeric=True),
        Column("ready s", numeric=True),
        Column("version", brief=False),
        Column("max running", numeric=True),
        Column("streams end with", brief=False),
        Column("token counts", brief=False),
        Column("proof of the axes"),
        Column("state"),
    )
    grid = Grid("Server lives", columns, tuple(map(_server_row, report.servers)))
    logs = (block for life in report.servers for block in _log(life))
    return grid, *logs


def _server_row(life: ServerLife) -> tuple[Words, ...]:
    failure = f": {clip(life.failure, _MESSAGE_CHARACTERS)}" if life.failure else ""
    return (
        words(life.server_id),
        words(life.platform),
        words(life.config),
        words(life.axes),
        words(plain(life.pid)),
        words(one_decimal(life.ready_s)),
        words(plain(life.version)),
        words(plain(life.max_running_requests)),
        words(plain(life.end_marks)),
        words(plain(life.token_counts)),
        words(life.proof),
        words(Span(life.state, "bad" if life.state in _FAILED_STATES else ""), failure),
    )


def _log(life: ServerLife) -> Sequence[Block]:
    if not life.log_tail:
        return ()
    tail = clean_lines(life.log_tail)[-_LOG_LINES:]
    return Heading(words(f"Last log lines of {life.server_id}")), Lines(
        tuple(words(clip(line, _MESSAGE_CHARACTERS)) for line in tail)
    )
