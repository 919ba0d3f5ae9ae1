"""What the server counted: acceptance of speculative decoding, cached prompts, and lengths against what was asked."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from loadgen.metrics.columns import floats
from loadgen.metrics.statistics import known, mean, ratio

Row = dict[str, float | int | str | None]
Sample = Mapping[str, Any]
_FROM_REQUESTS, _FROM_COUNTERS = "requests", "counters"


def acceptance(counted: pa.Table, samples: Sequence[Sample]) -> Row:
    """`accept_length`, output tokens a verify step as a ratio of sums, and its `accept_length_source`.

    The convention is SGLang's (`completion_tokens / spec_verify_ct`): the bonus token of each step counts, and so
    does the first token, which the prefill gave. Per-request details of the window's ok requests come first; without
    them, the change of the servers' counters over the cell, warm-up and drain included. A server's own average is
    never taken: it goes back to its start.
    """
    steps, tokens = floats(counted, "spec_verify_steps"), floats(counted, "output_tokens")
    usable = (steps > 0) & ~np.isnan(tokens)
    if usable.any():
        length = float(tokens[usable].sum() / steps[usable].sum())
        return {"accept_length": length, "accept_length_source": _FROM_REQUESTS}
    length_of_counters = accept_length_by_counters(samples)
    source = None if length_of_counters is None else _FROM_COUNTERS
    return {"accept_length": length_of_counters, "accept_length_source": source}


def accept_length_by_counters(samples: Sequence[Sample]) -> float | None:
    """From `server_samples` rows before and after a cell, summed over its servers.

    None if a server lacks a reading, was restarted between the two (a counter fell), or had work of its own going
    on at one of them: then the change is not this cell's.
    """
    tokens = steps = 0.0
    for server in {sample["server_id"] for sample in samples}:
        before, after = (_reading(samples, server, moment) for moment in ("before", "after"))
        if before is None or after is None or after[0] < before[0] or after[1] < before[1]:
            return None
        tokens += after[0] - before[0]
        steps += after[1] - before[1]
    return ratio(tokens, steps)


def _reading(samples: Sequence[Sample], server: str, moment: str) -> tuple[float, float] | None:
    """Output tokens and verify steps of a server at rest."""
    found = [s for s in samples if s["server_id"] == server and s["moment"] == moment]
    if not found or found[-1].get("running_requests"):
        return None
    tokens, steps = (found[-1].get(f"{name}_total") for name in ("output_tokens", "spec_verify_steps"))
    return None if tokens is None or steps is None else (tokens, steps)


def lengths(counted: pa.Table) -> Row:
    """Prompt and output lengths by the server's count, and how far they are from what was asked."""
    prompt, output = floats(counted, "prompt_tokens"), floats(counted, "output_tokens")
    prompt_off = known(np.abs(prompt - floats(counted, "target_prompt_tokens")))
    output_off = known(output - floats(counted, "max_tokens"))
    return {
        "prompt_tokens_mean": mean(known(prompt)),
        "prompt_length_error_max": int(prompt_off.max()) if prompt_off.size else None,
        "output_tokens_mean": mean(known(output)),
        "output_length_mismatches": int((output_off != 0).sum()) if output_off.size else None,
        "cached_fraction": cached_fraction(counted),
    }


def cached_fraction(counted: pa.Table) -> float | None:
    """Cached over all prompt tokens, of the requests for which both are known."""
    cached, prompt = floats(counted, "cached_tokens"), floats(counted, "prompt_tokens")
    usable = ~np.isnan(cached) & (prompt > 0)
    return ratio(float(cached[usable].sum()), float(prompt[usable].sum()))
