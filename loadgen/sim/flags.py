"""The simulator's command line: SGLang's spellings, prefixes and exit codes, plus `--profile` and the clock's own.

What the flags come to (SGLang overrides some) is decided in `settings`.
"""

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from loadgen.sim.faults import table
from loadgen.sim.faults.scenario import choose_all
from loadgen.sim.timing import PROFILES

# Parsers whose delimiters are those of the simulated model, <think> (prefilled) and </think>.
REASONING_PARSERS = (
    "kimi_k2", "deepseek-r1", "deepseek-v3", "deepseek-v4", "glm45", "interns1", "minimax",
    "nemotron_3", "qwen3", "qwen3-thinking", "step3", "step3p5",
)  # fmt: skip


def parser() -> argparse.ArgumentParser:
    """The whole command line. An unknown flag ends the process with exit code 2, as in SGLang."""
    root = argparse.ArgumentParser(
        prog="loadgen sim",
        description="A simulated SGLang server: real HTTP, SGLang's shapes, a modelled clock and canned answers.",
    )
    _serving(root.add_argument_group("serving"))
    _capacity(root.add_argument_group("capacity"))
    _speculation(root.add_argument_group("speculative decoding"))
    _accepted_only(root.add_argument_group("accepted and reported, without effect here"))
    _simulation(root.add_argument_group("simulation"))
    return root


def _serving(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--model-path", "--model", default="simulated/kimi-k2.6", help="Name of the model.")
    group.add_argument("--served-model-name", help="Name in answers. Default: the model path.")
    group.add_argument("--host", default="127.0.0.1", help="Address to listen on.")
    group.add_argument("--port", type=int, default=30000, help="Port to listen on.")
    group.add_argument(
        "--reasoning-parser", choices=REASONING_PARSERS, help="Separates reasoning and answer."
    )
    group.add_argument("--api-key", help="Key that clients must send.")
    group.add_argument("--admin-api-key", help="Key for the administrative endpoints alone.")
    group.add_argument("--enable-metrics", action="store_true", help="Serve /metrics.")
    group.add_argument("--enable-cache-report", action="store_true", help="Report cached tokens in usage.")
    group.add_argument(
        "--decode-log-interval", type=_positive, default=40, help="Decode steps between log lines."
    )
    group.add_argument("--log-level", default="info", help="debug, info, warning or error.")
    group.add_argument(
        "--stream-interval", type=_positive, default=1, help="Tokens between chunks of a stream."
    )


def _capacity(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--max-running-requests", type=_positive, help="Requests in the batch at once.")
    group.add_argument("--max-queued-requests", type=int, help="Requests waiting at once.")
    group.add_argument("--max-total-tokens", type=_positive, help="KV cache, in tokens.")
    group.add_argument("--context-length", type=_positive, help="Longest prompt and answer together.")
    group.add_argument("--random-seed", type=int, help="Seed. Default: drawn at start.")
    group.add_argument("--disable-radix-cache", action="store_true", help="No prefix cache.")


def _speculation(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--speculative-algorithm", help="DFLASH, DDTREE, EAGLE, EAGLE3, NEXTN, STANDALONE, NGRAM."
    )
    group.add_argument("--speculative-draft-model-path", "--speculative-draft-model", help="Draft model.")
    group.add_argument("--speculative-num-steps", type=_positive, help="Draft steps (EAGLE).")
    group.add_argument("--speculative-eagle-topk", type=_positive, help="Candidates of a draft step (EAGLE).")
    group.add_argument("--speculative-num-draft-tokens", type=_positive, help="Tokens verified in a step.")
    group.add_argument("--speculative-dflash-block-size", type=int, help="Width of DFLASH's draft block.")
    group.add_argument(
        "--speculative-draft-window-size",
        "--speculative-dflash-draft-window-size",
        type=int,
        help="Context that the draft sees. Default: all of it.",
    )
    group.add_argument(
        "--speculative-ddtree-budget",
        type=_positive,
        help="Draft tokens in DDTREE's tree. The candidates of a position come from SGLANG_DDTREE_MAX_TOPK.",
    )
    group.add_argument(
        "--speculative-ngram-max-bfs-breadth", type=_positive, default=10, help="Breadth of NGRAM's tree."
    )


def _accepted_only(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--tp-size", "--tensor-parallel-size", type=_positive, default=8, help="GPUs.")
    group.add_argument("--trust-remote-code", action="store_true")
    group.add_argument("--mem-fraction-static", type=float)
    group.add_argument("--device", default="cuda")
    group.add_argument("--attention-backend")


def _simulation(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--profile", choices=sorted(PROFILES), default="pcie", help="Platform simulated.")
    group.add_argument(
        "--time-scale", type=_scale, default=1.0, help="How many times faster than real its clock runs."
    )
    group.add_argument(
        "--sim-startup-s", type=_duration, default=2.0, help="Loading time, in seconds of its own clock."
    )
    group.add_argument(
        "--scenario",
        type=_scenarios,
        metavar="NAME[:KEY=VALUE...][*COUNT][,...]",
        help="Play faults by script; several take turns. `healthy`: none, unless a request chooses its own.",
    )
    group.add_argument(
        "--list-scenarios", action=_ListScenarios, help="Say what scenarios there are, and end."
    )


class _ListScenarios(argparse.Action):
    def __init__(self, option_strings: Sequence[str], dest: str, **options: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, default=argparse.SUPPRESS, help=options["help"])

    def __call__(self, parser: argparse.ArgumentParser, *_: object, **__: object) -> None:
        sys.stdout.write(table.listing())
        parser.exit(0)


def _scenarios(text: str) -> str:
    try:
        choose_all(text, table.SCENARIOS)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return text


def _positive(text: str) -> int:
    value = int(text)
    if value <= 0:
        raise argparse.ArgumentTypeError(f"must be positive, got {value}")
    return value


def _scale(text: str) -> float:
    value = float(text)
    if not 0.01 <= value <= 1000:
        raise argparse.ArgumentTypeError(f"must be between 0.01 and 1000, got {value}")
    return value


def _duration(text: str) -> float:
    value = float(text)
    if not 0 <= value <= 86400:
        raise argparse.ArgumentTypeError(f"must be between 0 and 86400, got {value}")
    return value
