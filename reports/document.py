"""The whole report in words: what was run, what cannot be trusted, the numbers, and how to read them."""

from collections.abc import Sequence

from reports import sections
from reports.blocks import (
    Banner,
    Block,
    Bullets,
    Column,
    Document,
    Grid,
    Heading,
    Paragraph,
    Section,
    Span,
    Words,
    words,
)
from reports.client_table import client_blocks
from reports.compat_table import compat_blocks
from reports.guide import CHECKS, READING
from reports.model import Doubt, GradeGroup, PlatformFacts, Reason, Report, RunFacts
from reports.text import UNKNOWN, counted, moment, plain

NOTHING_MEASURED = "nothing has been measured yet"
NOTHING_DOUBTFUL = "nothing: every cell passed its checks"


def document(report: Report) -> Document:
    """The report's words, in order; the renderers add no sentence of their own."""
    return Document(
        f"Load report: {report.run.name}",
        (
            Section("run", "What was run", _what_was_run(report)),
            Section("trust", "What cannot be trusted", _cannot_be_trusted(report)),
            Section("matrix", "Output tokens per second", sections.matrix_blocks(report)),
            Section("ratio", "Platform ratios", sections.ratio_blocks(report)),
            Section("grades", "Grades", sections.grade_blocks(report)),
            Section("servers", "Servers", sections.server_blocks(report)),
            Section("client", "The client", client_blocks(report.matrices)),
            Section("compat", "What other tools would print", compat_blocks(report.matrices)),
            Section("reading", "How to read this", _how_to_read()),
        ),
    )


def _what_was_run(report: Report) -> tuple[Block, ...]:
    run = report.run
    facts = [
        words(Span("run", "strong"), f": {run.run_id}, begun {moment(run.created_unix_ns)}"),
        words(
            Span("state", "strong"), f": {_state(run, sum(reason.executions for reason in report.failed))}"
        ),
    ]
    models = dict.fromkeys(model for platform in report.platforms for model in platform.models)
    facts.append(words(Span("model", "strong"), f": {', '.join(models) or UNKNOWN}"))
    for title, values in (("versions", run.versions), ("measured from", run.host)):
        if values:
            listed = ", ".join(f"{name} {value}" for name, value in values.items())
            facts.append(words(Span(title, "strong"), f": {listed}"))
    return (*_simulated(report.platforms), Bullets(tuple(facts)), _platform_grid(report.platforms))


def _state(run: RunFacts, failed: int) -> str:
    share = f"{run.committed} of {counted(run.planned, 'cell execution')}"
    share += f", {failed} of them failed" if failed else ""
    if run.finished:
        return f"finished, {share}"
    if run.ending == "interrupted":
        return f"interrupted, {share}; go on with --resume"
    if run.ending == "run_ended":
        return f"ended without all of its cells, {share}"
    return f"not finished, {share}; it is still running, or was stopped without a word (go on with --resume)"


def _simulated(platforms: Sequence[PlatformFacts]) -> tuple[Block, ...]:
    """One banner for all platforms whose clocks ran alike."""
    names: dict[tuple[float, ...], list[str]] = {}
    for platform in platforms:
        if platform.simulated:
            names.setdefault(platform.time_scales, []).append(platform.name)
    return tuple(
        Banner(
            words(
                Span("SIMULATED", "strong"),
                f": {', '.join(named)} - durations and rates are in simulated time "
                f"(clock x {' and '.join(map(plain, scales)) or UNKNOWN}); no hardware was measured.",
            )
        )
        for scales, named in names.items()
    )


def _platform_grid(platforms: Sequence[PlatformFacts]) -> Grid:
    columns = ("platform", "GPUs", "interconnect", "servers", "server version", "price per hour")
    return Grid(
        "Platforms",
        tuple(Column(title) for title in columns),
        tuple(
            (
                words(platform.name),
                words(f"{plain(platform.gpu_count)} x {plain(platform.gpu_kind)}"),
                words(plain(platform.interconnect)),
                words({True: "simulated", False: "real", None: UNKNOWN}[platform.simulated]),
                words(", ".join(platform.server_versions) or UNKNOWN),
                words(UNKNOWN if platform.hourly_price is None else f"{platform.hourly_price:.2f}"),
            )
            for platform in platforms
        ),
    )


def _cannot_be_trusted(report: Report) -> tuple[Block, ...]:
    blocks: list[Block] = [_suspicion(sentence) for sentence in report.suspicions]
    if report.failed:
        blocks.append(_reason_grid("Failed", "without numbers", report.failed, report.run.committed))
    if report.missing:
        blocks.append(
            _reason_grid("Missing", "planned and not in this run", report.missing, report.run.planned)
        )
    for doubt in report.doubts:
        blocks += _doubt_blocks(doubt, report.run.committed)
    if unjudged := tuple(filter(None, map(_unjudged, report.grades))):
        blocks += [Heading(words("Answers that were not judged")), Bullets(unjudged)]
    if report.warnings:
        blocks += [Heading(words("Warnings of the run")), Bullets(tuple(map(words, report.warnings)))]
    if report.run.committed == 0:
        return (Paragraph(words(NOTHING_MEASURED)), *blocks)
    if not blocks:
        return (Paragraph(words(Span(NOTHING_DOUBTFUL, "good"))),)
    if not report.doubts:
        blocks.append(Paragraph(words("No other number raised a check.")))
    return tuple(blocks)


def _suspicion(sentence: str) -> Banner:
    return Banner(
        words(
            Span("Suspicion", "strong"),
            f": {sentence}. Run ",
            Span("loadgen probe", "code"),
            " to see how an answer is taken apart.",
        )
    )


def _unjudged(group: GradeGroup) -> Words:
    """Empty when every answer of the evaluation was judged, or the evaluation failed as a whole."""
    if group.failure is not None:
        return ()
    cell = Span(group.cell.cell_id, "code")
    if not group.lines:
        return words(cell, f"{group.cell.which}: not graded")
    if count := group.count("UNGRADED"):
        return words(
            cell, f"{group.cell.which}: {count} of {group.problems} answers; the harness could not tell"
        )
    return ()


def _reason_grid(title: str, caption: str, reasons: Sequence[Reason], of: int) -> Grid:
    return Grid(
        f"{title}: {counted(sum(reason.executions for reason in reasons), 'execution')} {caption}",
        (Column("why"), Column("executions", numeric=True), Column("cells")),
        tuple((words(reason.text), words(str(reason.executions)), _cells(reason, of)) for reason in reasons),
    )


def _doubt_blocks(doubt: Doubt, of: int) -> tuple[Block, ...]:
    executions = counted(sum(reason.executions for reason in doubt.reasons), "execution")
    return (
        Heading(words(Span(doubt.check, "code"), f": {executions}")),
        Grid(
            CHECKS.get(doubt.check, "A check that this version of the report has no words for."),
            (Column("what was seen"), Column("cells")),
            tuple((words(reason.text or UNKNOWN), _cells(reason, of)) for reason in doubt.reasons),
        ),
    )


def _cells(reason: Reason, of: int) -> Words:
    """`id (repeats)`, with commas between; a reason that holds for all `of` executions names none."""
    if reason.executions == of > 1:
        return words(f"all {of}")
    spans: list[str | Span] = []
    for cell in reason.cells:
        spans += [", ", Span(cell.cell_id, "code"), cell.which]
    return words(*spans[1:])


def _how_to_read() -> tuple[Block, ...]:
    return (Bullets(tuple(words(Span(term, "strong"), f" {meaning}") for term, meaning in READING.items())),)
