"""Whether the client may have been the limit of a cell. Pure; each threshold with its reason. See docs/client.md.

With kernel stamps an arrival is right however late we read it. Lag then spoils only what we send (the next request of a
stream goes out so much later) and the events that shared a read (their stamp is the last one's). Without kernel stamps
the arrivals themselves are late.
"""

from collections.abc import Sequence
from typing import Any

Row = dict[str, Any]

# Above it, what arrives waits: the lag of a queue grows without bound as its server's load nears 1.
_BUSY_CORE = 0.9
# Of the calibrated ceiling: decoding steps of a batch arrive at once, so that the mean rate is not the worst moment.
_LOAD_SHARE = 0.7
# A stream that starts its next request so much of a request later holds the concurrency down by as much.
_LAG_OF_REQUEST = 0.05
# Stamps that are off by a tenth of what lies between two chunks are in the gaps' first digit.
_LAG_OF_GAP = 0.1
# Below a millisecond no figure of a server is read that finely; above ten it is wrong whatever the gap.
_LEAST_LAG_MS = 1.0
_MOST_LAG_MS = 10.0
# Requests of an open loop that leave half a mean gap late arrive in another pattern than the plan's.
_LAG_OF_INTERVAL = 0.5
# Above this share, a 99th percentile may rest on such stamps,
_UNSTAMPED = 0.01
# and a 95th on such.
_SHARED = 0.05


def client_limit(cell: Row, requests: Sequence[Row], *, is_send_bounded: bool) -> str | None:
    """Why the client may have been the limit, in one sentence; None where nothing speaks for it.

    `is_send_bounded`: the plan bounds the requests in flight of its open loop, which may hold sends back.
    """
    reasons = (
        _busy(cell),
        _near_ceiling(cell),
        _late_sends(cell) if not is_send_bounded else None,
        _late_stamps(cell) if is_unstamped(cell) else _late_reads(cell, shared_share(requests)),
    )
    return next((reason for reason in reasons if reason), None)


def is_unstamped(cell: Row) -> bool:
    """Whether arrivals rest on our own stamps."""
    share = cell["unstamped_read_share"]
    return share is not None and share > _UNSTAMPED


def shared_share(requests: Sequence[Row]) -> float | None:
    """Chunks that shared a read with a later event, of all; None without any.

    One chunk of each request is not counted: servers send the last one together with the events that end the stream.
    """
    shared = sum(max(0, row["shared_events"] - 1) for row in requests)
    events = sum(row["choice_events"] for row in requests)
    return shared / events if events else None


def is_much_shared(share: float | None) -> bool:
    """Whether so many events shared a read that the figures between chunks are doubtful."""
    return share is not None and share > _SHARED


def _busy(cell: Row) -> str | None:
    cpu = cell["worker_cpu"]
    if cpu is None or cpu <= _BUSY_CORE:
        return None
    return f"the busiest load worker used {cpu:.0%} of its core: what arrives waits for it"


def _near_ceiling(cell: Row) -> str | None:
    share = cell["client_load_share"]
    if share is None or share <= _LOAD_SHARE:
        return None
    return (
        f"the busiest load worker took {cell['worker_chunk_rate']:.0f} chunks/s, {share:.0%} of the ceiling that "
        "`loadgen calibrate` found on this host"
    )


def _late_sends(cell: Row) -> str | None:
    lag_ms = cell["send_lag_p99_ms"]
    if cell["arrivals"] is None or lag_ms is None:
        return None
    interval_ms = 1e3 / (cell["rate"] * cell["time_scale"]) if cell["rate"] else None
    bound_ms = _bound_ms(interval_ms, _LAG_OF_INTERVAL)
    if lag_ms <= bound_ms:
        return None
    return f"the client sent requests up to {lag_ms:.1f} ms (99th percentile) after they were due"


def _late_stamps(cell: Row) -> str | None:
    lag_ms = cell["loop_lag_p99_ms"]
    if lag_ms is None or lag_ms <= _bound_ms(_real_ms(cell, "chunk_gap_mean_ms"), _LAG_OF_GAP):
        return None
    return (
        f"the client woke {lag_ms:.1f} ms late at its 99th percentile, and its arrivals have no kernel stamps: they are "
        "late by as much"
    )


def _late_reads(cell: Row, shared: float | None) -> str | None:
    lag_ms, request_ms = cell["client_lag_p99_ms"], _real_ms(cell, "e2e_p50_ms")
    if lag_ms is None:
        return None
    if request_ms is not None and lag_ms > _LEAST_LAG_MS and lag_ms > _LAG_OF_REQUEST * request_ms:
        return (
            f"the client read {lag_ms:.1f} ms late at its 99th percentile, {lag_ms / request_ms:.0%} of a request: "
            "streams start their next one so much later"
        )
    if is_much_shared(shared) and lag_ms > _bound_ms(_real_ms(cell, "chunk_gap_mean_ms"), _LAG_OF_GAP):
        return (
            f"the client read {lag_ms:.1f} ms late at its 99th percentile, and {shared:.0%} of the events shared a "
            "read: those stamps are late by up to as much"
        )
    return None


def _bound_ms(of_ms: float | None, share: float) -> float:
    if of_ms is None:
        return _MOST_LAG_MS
    return min(_MOST_LAG_MS, max(_LEAST_LAG_MS, share * of_ms))


def _real_ms(cell: Row, name: str) -> float | None:
    value: float | None = cell[name]
    return None if value is None else value / cell["time_scale"]
