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
    except (TypeError, ValueError):
        return str(reported) == str(asked)


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
    known = [limit for limit in effective if isinstance(limit, int)]
    if known and len(known) == len(effective):
        return sum(known)
    limit = info.get("max_running_requests")
    return limit if isinstance(limit, int) else None
