"""What the flags come to: SGLang's resolution of server arguments, with its overrides, warnings and refusals.

DFLASH's rules and texts follow SGLang 0.5.23. DDTREE is in no SGLang release: it follows public pull request
29907 (`--speculative-ddtree-budget`, `SGLANG_DDTREE_MAX_TOPK`), as far as that is public.
"""

import argparse
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loadgen.sim import flags
from loadgen.sim.timing import PROFILES, Profile, Speculation

_ALGORITHMS = ("DFLASH", "DDTREE", "EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "NGRAM")
_DRAFT_BLOCK = 8  # what the simulated draft model's own config says
_DEFAULT_TOPK = 6
_CONTEXT_TOKENS = 262_144
_SPECULATIVE_MAX_RUNNING = 48
_MAX_RUNNING = 2048
_EXPOSE_ENV = "SGLANG_EXPOSE_OWN_ENV_VARS"


@dataclass(frozen=True, slots=True)
class Settings:
    """One server's resolved settings. `args` holds every flag under its Python name, as /server_info shows it."""

    args: Mapping[str, Any]
    launch_command: str
    profile: Profile
    speculation: Speculation | None
    warnings: tuple[str, ...]
    env_vars: Mapping[str, str] | None

    @property
    def model(self) -> str:
        """The served name."""
        return str(self.args["served_model_name"])

    @property
    def context_tokens(self) -> int:
        return int(self.args["context_length"] or _CONTEXT_TOKENS)

    @property
    def kv_tokens(self) -> int:
        return int(self.args["max_total_tokens"] or self.profile.kv_capacity_tokens)

    @property
    def time_scale(self) -> float:
        return float(self.args["time_scale"])

    @property
    def seed(self) -> int:
        return int(self.args["random_seed"])


def from_argv(argv: Sequence[str], env: Mapping[str, str]) -> Settings:
    """Reads the command line. Raises SystemExit(2) as argparse does, ValueError for what SGLang refuses."""
    namespace = flags.parser().parse_args(list(argv))
    return resolve(namespace, " ".join(argv), env)


def resolve(namespace: argparse.Namespace, launch_command: str, env: Mapping[str, str]) -> Settings:
    """Applies SGLang's overrides in its order. Raises ValueError for what it refuses."""
    args: dict[str, Any] = vars(namespace)
    warnings: list[str] = []
    args["served_model_name"] = args["served_model_name"] or args["model_path"]
    if args["random_seed"] is None:
        args["random_seed"] = secrets.randbelow(1 << 30)
    speculation = _speculation(args, env, warnings) if args["speculative_algorithm"] else None
    if args["max_running_requests"] is None:
        args["max_running_requests"] = _default_max_running(speculation, warnings)
    ours = {name: value for name, value in env.items() if name.startswith("SGLANG_")}
    return Settings(
        args=args,
        launch_command=launch_command,
        profile=PROFILES[args["profile"]],
        speculation=speculation,
        warnings=tuple(warnings),
        env_vars=ours if _truthy(env.get(_EXPOSE_ENV)) else None,
    )


def _default_max_running(speculation: Speculation | None, warnings: list[str]) -> int:
    if speculation is None:
        return _MAX_RUNNING
    warnings.append(
        "Max running requests is reset to 48 for speculative decoding. You can override this by explicitly "
        "setting --max-running-requests."
    )
    return _SPECULATIVE_MAX_RUNNING


def _speculation(args: dict[str, Any], env: Mapping[str, str], warnings: list[str]) -> Speculation:
    name = args["speculative_algorithm"].upper()
    if name not in _ALGORITHMS:
        raise ValueError(f"Unknown speculative algorithm name: {args['speculative_algorithm']}")
    args["speculative_algorithm"] = "EAGLE" if name == "NEXTN" else name
    _check_window(args, warnings)
    if name != "NGRAM" and args["speculative_draft_model_path"] is None and name != "NEXTN":
        raise ValueError(f"{name} speculative decoding requires setting --speculative-draft-model-path.")
    if name == "NGRAM":
        return _ngram(args)
    if name in ("DFLASH", "DDTREE"):
        return _block(args, env, warnings)
    return _eagle(args)


def _check_window(args: Mapping[str, Any], warnings: list[str]) -> None:
    window = args["speculative_draft_window_size"]
    if window is None:
        return
    if window <= 0:
        raise ValueError(f"--speculative-draft-window-size must be positive, got {window}.")
    if args["speculative_algorithm"] not in ("EAGLE3", "DFLASH", "DDTREE"):
        warnings.append(
            "--speculative-draft-window-size has no effect with speculative_algorithm="
            f"{args['speculative_algorithm']} (honored by Llama EAGLE-3 and DFLASH only)."
        )


def _block(args: dict[str, Any], env: Mapping[str, str], warnings: list[str]) -> Speculation:
    """DFLASH drafts a chain of one block; DDTREE a tree over the same block."""
    name = args["speculative_algorithm"]
    for key in ("speculative_num_steps", "speculative_eagle_topk"):
        if args[key] not in (None, 1):
            warnings.append(f"{name} only supports {key} == 1; overriding {key}={args[key]} to 1.")
        args[key] = 1
    block = _block_size(args)
    args["speculative_dflash_block_size"] = block
    if name == "DFLASH":
        args["speculative_num_draft_tokens"] = block
        return Speculation(block - 1, block - 1, 1, args["speculative_draft_window_size"])
    budget = args["speculative_ddtree_budget"] or block - 1
    args["speculative_ddtree_budget"] = budget
    args["speculative_num_draft_tokens"] = budget + 1
    topk = _topk(env)
    return Speculation(budget, min(block - 1, budget), topk, args["speculative_draft_window_size"])


def _block_size(args: Mapping[str, Any]) -> int:
    explicit, alias = args["speculative_dflash_block_size"], args["speculative_num_draft_tokens"]
    if args["speculative_algorithm"] == "DDTREE":
        alias = None  # there it is the width of the verify step, which follows from the budget
    if explicit is not None and explicit <= 0:
        raise ValueError(f"DFLASH requires --speculative-dflash-block-size to be positive, got {explicit}.")
    if explicit is not None and alias is not None and explicit != alias:
        raise ValueError(
            "Both --speculative-num-draft-tokens and --speculative-dflash-block-size are set but they differ. "
            f"speculative_num_draft_tokens={alias}, speculative_dflash_block_size={explicit}."
        )
    block = int(explicit or alias or _DRAFT_BLOCK)
    if block < 2:
        raise ValueError(f"{args['speculative_algorithm']} needs a block of at least 2 tokens, got {block}.")
    window = args["speculative_draft_window_size"]
    if window is not None and window < block:
        raise ValueError(
            "--speculative-draft-window-size must be >= --speculative-dflash-block-size (the draft block width). "
            f"window_size={window}, block_size={block}."
        )
    return block


def _topk(env: Mapping[str, str]) -> int:
    text = env.get("SGLANG_DDTREE_MAX_TOPK", str(_DEFAULT_TOPK))
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"SGLANG_DDTREE_MAX_TOPK must be a positive number, got {text!r}.")
    return int(text)


def _eagle(args: dict[str, Any]) -> Speculation:
    """EAGLE, EAGLE3, NEXTN and STANDALONE: a draft pass for each step, a weaker draft than DFLASH's."""
    steps = args["speculative_num_steps"] = args["speculative_num_steps"] or 3
    topk = args["speculative_eagle_topk"] = args["speculative_eagle_topk"] or 1
    tokens = args["speculative_num_draft_tokens"] = args["speculative_num_draft_tokens"] or steps + 1
    if tokens < 2:
        raise ValueError("--speculative-num-draft-tokens must be at least 2.")
    window = args["speculative_draft_window_size"] if args["speculative_algorithm"] == "EAGLE3" else None
    return Speculation(tokens - 1, min(steps, tokens - 1), topk, window, quality=0.85, passes=0.35 * steps)


def _ngram(args: dict[str, Any]) -> Speculation:
    """Drafts from what was written before: nearly free, and often wrong."""
    tokens = args["speculative_num_draft_tokens"] = args["speculative_num_draft_tokens"] or 12
    if tokens < 2:
        raise ValueError("--speculative-num-draft-tokens must be at least 2.")
    args["speculative_num_steps"] = tokens
    topk = args["speculative_eagle_topk"] = args["speculative_ngram_max_bfs_breadth"]
    return Speculation(tokens - 1, tokens - 1, topk, None, quality=0.4, passes=0.05)


def _truthy(text: str | None) -> bool:
    return (text or "").lower() in ("1", "true", "yes")
