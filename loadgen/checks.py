"""What makes a number doubtful. Pure: a cell's figures and what is known of its server in, stated doubts out.

A check never changes a number; it stands beside it. Thresholds are constants here, each with its reason.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from loadgen.client_checks import client_limit, is_much_shared, is_unstamped, shared_share
from loadgen.prompts.settings import LengthSource
from loadgen.records import Outcome, Phase, TokenSource

# A shared chat template is cached for every request and is no contamination.
_CACHED_FRACTION = 0.10
_CACHED_FREE_TOKENS = 32
# With a tokenizer every prompt has its length exactly; calibrated on usage it has it within this.
_PROMPT_OFF_BY_USAGE = 0.01
# Below this, a median is one of a handful of requests.
_FEW_SAMPLES = 8
# A request that leaves later than this after it was due no longer has the plan's spacing.
_SEND_LAG_MS = 10.0
# Workers never open and close their windows in the same moment.
_SHARED_WINDOW = 0.9
_IN_FLIGHT_FRACTION = 0.9
# The simulator's lag does not add up over a stream; it counts against how long a request takes.
_SERVER_LAG_FRACTION = 0.10


@dataclass(frozen=True, slots=True)
class Doubt:
    """One stated doubt: the check's name, and one sentence."""

    check: str
    detail: str


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the checks look at: the `cells` row so far, its `requests` rows, and its server's facts."""

    cell: dict[str, Any]
    requests: Sequence[dict[str, Any]]
    max_running_requests: int | None
    proof: dict[str, str]
    is_window_complete: bool
    server_lag_ms: float | None
    server_restarted: bool = False
    is_output_length_fixed: bool = True
    shared_prompt: float | None = 0.0  # part of a prompt that may be cached by intent; None: any part
    accounting: Sequence[str] = ()
    is_stationary: bool = True
    shares_cores: bool = False
    least_window_s: float = 0.0
    max_in_flight: int | None = None
    is_tls: bool = False


def find_doubts(evidence: Evidence) -> list[Doubt]:
    """Every doubt about one execution of a cell, in a fixed order."""
    checks = _EVAL_CHECKS if evidence.cell["kind"] == "eval" else _LOAD_CHECKS
    return [doubt for check in checks if (doubt := check(evidence)) is not None]


def _queue_measured(evidence: Evidence) -> Doubt | None:
    limit, asked = evidence.max_running_requests, evidence.cell["concurrency"]
    in_flight = evidence.cell["in_flight_mean"] if asked is None else asked  # an open loop asks for no number
    if limit is None or in_flight is None or limit >= in_flight:
        return None
    return Doubt(
        "queue_measured",
        f"the server runs {limit} requests at once, {in_flight:.0f} were kept in flight: the rest measures its queue",
    )


def _config_mismatch(evidence: Evidence) -> Doubt | None:
    wrong = [axis for axis, state in evidence.proof.items() if state == "mismatch"]
    return (
        Doubt("config_mismatch", f"the server reports another value than was asked for: {', '.join(wrong)}")
        if wrong
        else None
    )


def _cache_contaminated(evidence: Evidence) -> Doubt | None:
    rows = [
        row for row in _measured_ok(evidence) if row["cached_tokens"] is not None and row["prompt_tokens"]
    ]
    cached = sum(max(0, row["cached_tokens"] - _CACHED_FREE_TOKENS) for row in rows)
    prompt = sum(row["prompt_tokens"] for row in rows)
    meant = evidence.shared_prompt
    if not prompt or meant is None or cached / prompt <= meant + _CACHED_FRACTION:
        return None
    more = f", {meant:.0%} were meant to" if meant else ""
    return Doubt(
        "cache_contaminated", f"{cached / prompt:.0%} of the prompt tokens came from the prefix cache{more}"
    )


def _prompt_length_off(evidence: Evidence) -> Doubt | None:
    lengths = [(row["prompt_tokens"], row["target_prompt_tokens"]) for row in _measured_ok(evidence)]
    by_usage = evidence.cell["prompt_length_source"] == LengthSource.USAGE
    allowed = _PROMPT_OFF_BY_USAGE if by_usage else 0.0
    known = [(got, asked) for got, asked in lengths if got is not None and asked is not None]
    off = [abs(got - asked) for got, asked in known if abs(got - asked) > allowed * asked]
    if not off:
        return None
    return Doubt(
        "prompt_length_off",
        f"{len(off)} of {len(known)} prompts were not {known[0][1]} tokens long by the server's count, the worst by "
        f"{max(off)}",
    )


def _errors(evidence: Evidence) -> Doubt | None:
    failed = evidence.cell["errors"]
    if not failed:
        return None
    kinds = sorted({row["outcome"] for row in evidence.requests} - {Outcome.OK, Outcome.CUT})
    return Doubt("errors", f"{failed} of {evidence.cell['sent']} requests failed ({', '.join(kinds)})")


def _few_samples(evidence: Evidence) -> Doubt | None:
    n = evidence.cell["n"]
    return Doubt("few_samples", f"only {n} ok requests were sent in the window") if n < _FEW_SAMPLES else None


def _client_limited(evidence: Evidence) -> Doubt | None:
    why = client_limit(
        evidence.cell, _measured_ok(evidence), is_send_bounded=evidence.max_in_flight is not None
    )
    return Doubt("client_limited", why) if why else None


def _shared_reads(evidence: Evidence) -> Doubt | None:
    share = shared_share(_measured_ok(evidence))
    if not is_much_shared(share):
        return None
    return Doubt(
        "shared_reads",
        f"{share:.0%} of the events came in one read with a later one: their stamps are the later one's, an upper bound",
    )


def _stamps_user_space(evidence: Evidence) -> Doubt | None:
    """No doubt with TLS, where there is nothing to be had: the report names whose stamps they are."""
    if evidence.is_tls or not is_unstamped(evidence.cell):
        return None
    return Doubt(
        "stamps_user_space",
        f"{evidence.cell['unstamped_read_share']:.0%} of the reads have no kernel stamp: how late the client stamped them "
        "is known by samples only",
    )


def _below_target(evidence: Evidence) -> Doubt | None:
    got, asked = evidence.cell["in_flight_mean"], evidence.cell["concurrency"]
    if got is None or asked is None or got >= _IN_FLIGHT_FRACTION * asked:
        return None
    return Doubt(
        "below_target_concurrency", f"{got:.1f} requests were in flight on average, {asked} were asked for"
    )


def _behind_schedule(evidence: Evidence) -> Doubt | None:
    if evidence.cell.get("arrivals") is None:
        return None
    lag = evidence.cell["send_lag_p99_ms"]
    if lag is None or lag <= _SEND_LAG_MS:
        return None
    return Doubt(
        "behind_schedule",
        f"requests went out up to {lag:.0f} ms (99th percentile) after they were due: max_in_flight held them, or the client",
    )


def _not_stationary(evidence: Evidence) -> Doubt | None:
    if evidence.is_stationary:
        return None
    return Doubt(
        "not_stationary",
        "the output rate had not settled when the warm-up ended: raise load.warmup_max_s, or lower the load",
    )


def _accounting(evidence: Evidence) -> Doubt | None:
    return Doubt("accounting", "; ".join(evidence.accounting)) if evidence.accounting else None


def _shared_cores(evidence: Evidence) -> Doubt | None:
    if not evidence.shares_cores:
        return None
    return Doubt(
        "shared_cores",
        "the host has no core for each load worker and one more (clients.allow_shared_cores): stamps may be late",
    )


def _tokens_unknown(evidence: Evidence) -> Doubt | None:
    sources = {row["token_source"] for row in _measured_ok(evidence)}
    if None in sources:
        return Doubt("tokens_unknown", "the server gave no token counts for some requests")
    if TokenSource.USAGE in sources:
        return Doubt(
            "tokens_spread",
            "the server gives no running token count; each request's total is spread evenly over its chunks",
        )
    return None


def _window_short(evidence: Evidence) -> Doubt | None:
    shared_s = evidence.cell.get("window_s")
    if shared_s is not None and shared_s < _SHARED_WINDOW * evidence.least_window_s:
        return Doubt(
            "window_short",
            f"the window that all load workers share is {shared_s:.1f} s, of {evidence.least_window_s:g} s asked for: their "
            "warm-ups ended apart, or a trace was used up",
        )
    if evidence.is_window_complete:
        return None
    return Doubt(
        "window_short",
        "the time limit came before the requests that were asked for had ended: raise load.measure_max_s or warmup_max_s",
    )


def _output_length_off(evidence: Evidence) -> Doubt | None:
    rows = [row for row in _measured_ok(evidence) if row["output_tokens"] is not None]
    off = [row for row in rows if row["output_tokens"] != row["max_tokens"]]
    if not off or not evidence.is_output_length_fixed:
        return None
    return Doubt(
        "output_length_off",
        f"{len(off)} of {len(rows)} answers are not {evidence.cell['max_tokens']} tokens long",
    )


def _simulated_server_late(evidence: Evidence) -> Doubt | None:
    lag, typical = evidence.server_lag_ms, evidence.cell["e2e_p50_ms"]
    if lag is None or typical is None or lag * evidence.cell["time_scale"] <= _SERVER_LAG_FRACTION * typical:
        return None
    return Doubt(
        "simulated_server_late",
        f"the simulator itself was {lag:.0f} ms late at its 99th percentile, times its clock more than a tenth of a "
        "request: this machine is too busy for it",
    )


def _answers_truncated(evidence: Evidence) -> Doubt | None:
    cut = [row for row in evidence.requests if row["finish_reason"] == "length"]
    if not cut:
        return None
    return Doubt(
        "answers_truncated",
        f"{len(cut)} of {len(evidence.requests)} answers hit max_tokens ({evidence.cell['max_tokens']}): raise grading.max_tokens",
    )


def _restarted(evidence: Evidence) -> Doubt | None:
    return (
        Doubt("restarted", "the server died and was started again for this cell")
        if evidence.server_restarted
        else None
    )


def _measured_ok(evidence: Evidence) -> list[dict[str, Any]]:
    return [
        row for row in evidence.requests if row["outcome"] == Outcome.OK and row["phase"] == Phase.MEASURE
    ]


_LOAD_CHECKS = (
    _accounting,
    _config_mismatch,
    _queue_measured,
    _errors,
    _client_limited,
    _shared_reads,
    _stamps_user_space,
    _shared_cores,
    _simulated_server_late,
    _cache_contaminated,
    _prompt_length_off,
    _output_length_off,
    _tokens_unknown,
    _below_target,
    _behind_schedule,
    _not_stationary,
    _window_short,
    _few_samples,
    _restarted,
)
_EVAL_CHECKS = (_accounting, _config_mismatch, _errors, _answers_truncated, _restarted)
