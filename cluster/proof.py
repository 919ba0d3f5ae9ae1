"""Requested is not effective: compares the axis values asked for with what the server says of itself. Pure."""

from collections.abc import Mapping
from typing import Any

from loadgen.spec import Axis, AxisValue

VERIFIED = "verified"
MISMATCH = "mismatch"
UNVERIFIABLE = "unverifiable"


def prove_axes(
    axes: Mapping[str, Axis], asked: Mapping[str, AxisValue], info: Mapping[str, Any] | None
) -> dict[str, str]:
    """verified, mismatch or unverifiable for each axis that was given a value.

    SGLang reports each setting under its flag's Python name, and environment variables under `env_vars` where it is
    told to. A setting that is not reported is unverifiable, never taken as given.
    """
    return {name: _prove(axes[name], value, info or {}) for name, value in asked.items() if value is not None}


def _prove(axis: Axis, asked: AxisValue, info: Mapping[str, Any]) -> str:
    reported = info.get("env_vars")
    env_vars = reported if isinstance(reported, dict) else {}
    key = axis.read_back or (axis.flag or "").lstrip("-").replace("-", "_")
    if key in info:
        return VERIFIED if _same(info[key], asked) else MISMATCH
    if axis.env and axis.env in env_vars:
        return VERIFIED if _same(env_vars[axis.env], asked) else MISMATCH
    return UNVERIFIABLE


def _same(reported: Any, asked: AxisValue) -> bool:
    if isinstance(asked, bool):
        return str(reported).lower() in (("true", "1") if asked else ("false", "0", "none"))
    try:
        return float(reported) == float(asked)  # type: ignore[arg-type]  # None raises, and is not equal
    except (TypeError, ValueError, OverflowError):
        return str(reported) == str(asked)


def simulation(info: Mapping[str, Any] | None) -> tuple[bool, float]:
    """Whether the server says that it is a simulation, and how much faster its clock runs (1: as ours)."""
    said = (info or {}).get("loadgen_sim")
    if not isinstance(said, dict) or said.get("simulated") is not True:
        return False, 1.0
    scale = _number(said.get("time_scale"))
    return True, scale if scale is not None and scale > 0 else 1.0


def server_lag_p99_ms(info: Mapping[str, Any] | None) -> float | None:
    """How late a simulated server's own clock was; None on any other."""
    said = (info or {}).get("loadgen_sim")
    return _number(said.get("lag_p99_ms")) if isinstance(said, dict) else None


def max_running_requests(info: Mapping[str, Any] | None) -> int | None:
    """How many requests the server runs at once: the effective limits of its states, else the resolved setting."""
    if info is None:
        return None
    states = info.get("internal_states")
    effective = [
        state.get("effective_max_running_requests_per_dp")
        for state in (states if isinstance(states, list) else [])
        if isinstance(state, dict)
    ]
    known = [limit for limit in map(_limit, effective) if limit is not None]
    if known and len(known) == len(effective):
        return sum(known)
    return _limit(info.get("max_running_requests"))


def _limit(value: Any) -> int | None:
    is_limit = isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**31
    return value if is_limit else None


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**63
    return float(value) if is_number else None
