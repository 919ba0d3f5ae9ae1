"""What other tools would have printed for the same requests, beside our figures, and why they differ."""

from reports.blocks import Block, Column, Grid, Paragraph, Words, words
from reports.model import CellSummary, Matrix
from reports.text import figure

_FIGURES = {
    "ttft_from_sent_mean_ms": "TTFT mean ms",
    "compat_vllm_ttft_ms": "vllm TTFT",
    "compat_inference_perf_ttft_ms": "inference-perf TTFT",
    "tpot_mean_ms": "TPOT mean ms",
    "compat_sglang_tpot_ms": "sglang TPOT",
    "compat_sglang_no_usage_tpot_ms": "sglang TPOT, no usage",
    "compat_vllm_tpot_ms": "vllm TPOT",
    "compat_aiperf_itl_ms": "aiperf ITL",
    "compat_guidellm_tpot_ms": "guidellm TPOT",
    "compat_guidellm_itl_ms": "guidellm ITL",
    "compat_inference_perf_tpot_ms": "inference-perf TPOT",
    "compat_mlcommons_tpot_ms": "mlcommons TPOT",
    "chunk_gap_mean_ms": "chunk gap mean ms",
    "compat_vllm_itl_ms": "vllm ITL",
}
COLUMNS = tuple(_FIGURES)

WHY = {
    "sglang bench_serving": "It takes one token for the first chunk and counts the wait for the usage event as decoding; "
    "without usage, which it does not ask for, it divides by the output length asked for.",
    "vllm bench serve": "Its first token is the first event, be it role-only: TTFT can be that of an accepted request, and "
    "TPOT then holds the prefill.",
    "aiperf": "It takes one token for the first chunk, unless told --per-chunk-usage; then it agrees with TPOT.",
    "guidellm": "Its TPOT divides the whole time, TTFT included, by all tokens; its ITL takes one token for the first chunk.",
    "inference-perf": "It sees the answer alone: reasoning delays its TTFT, and its tokens do not count.",
    "mlcommons/endpoints": "It decodes until the response has ended, the usage event included.",
}


def compat_blocks(matrices: tuple[Matrix, ...]) -> tuple[Block, ...]:
    cells = [cell for matrix in matrices for cell in matrix.cells.values() if cell.state == "done"]
    if not cells:
        return (Paragraph(words("None: no load cell has been measured.")),)
    columns = (Column("cell"), *(Column(title, numeric=True) for title in _FIGURES.values()))
    rows = tuple(_row(cell) for cell in cells)
    figures = Grid("Means in ms, ours and theirs", columns, rows, terminal="nothing", is_aside=True)
    reasons = Grid(
        "Why they differ",
        (Column("tool"), Column("its rule")),
        tuple((words(tool), words(rule)) for tool, rule in WHY.items()),
        terminal="nothing",
    )
    return (
        Paragraph(
            words(
                "Worked out by each tool's own rule from the timelines of this run, so that none of their own lag is in "
                "it. For comparing with a figure of theirs; the tables have them all (compat_*)."
            )
        ),
        figures,
        reasons,
    )


def _row(cell: CellSummary) -> tuple[Words, ...]:
    spreads = (cell.more[name] for name in COLUMNS)
    return words(cell.cell_id), *(words(figure(spread.median if spread else None)) for spread in spreads)
