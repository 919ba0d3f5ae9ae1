"""When the client may have been the limit: each reason just beyond its threshold, and not before it."""

from typing import Any

import pytest

from loadgen.calibration import Shape
from loadgen.client_checks import client_limit, is_unstamped, shared_share
from loadgen.load.ceiling import _run
from loadgen.metrics import CHUNK_LISTS, Window, summarize
from loadgen.metrics.client import client_figures
from loadgen.sink import running_sink, truth

CELL: dict[str, Any] = {
    "worker_cpu": 0.3, "client_load_share": 0.5, "worker_chunk_rate": 5000.0, "arrivals": None, "rate": None,
    "time_scale": 1.0, "send_lag_p99_ms": 0.1, "loop_lag_p99_ms": 0.2, "client_lag_p99_ms": 0.2,
    "unstamped_read_share": 0.0, "e2e_p50_ms": 1000.0, "chunk_gap_mean_ms": 20.0,
}  # fmt: skip
ALONE = [{"shared_events": 1, "choice_events": 100}] * 4
SHARED = [{"shared_events": 7, "choice_events": 100}] * 4
OPEN = {"arrivals": "poisson", "rate": 100.0}
USER = {"unstamped_read_share": 0.5}


def limit(
    cell: dict[str, Any], requests: list[dict[str, Any]] = ALONE, *, is_bounded: bool = False
) -> str | None:
    return client_limit({**CELL, **cell}, requests, is_send_bounded=is_bounded)


@pytest.mark.parametrize(
    ("beyond", "before", "requests"),
    [
        ({"worker_cpu": 0.91}, {"worker_cpu": 0.9}, ALONE),
        ({"client_load_share": 0.71}, {"client_load_share": 0.7}, ALONE),
        # half of the 10 ms between two requests
        ({**OPEN, "send_lag_p99_ms": 5.1}, {**OPEN, "send_lag_p99_ms": 5.0}, ALONE),
        # the bound is never below 1 ms nor above 10 ms, and 10 ms for a trace
        ({**OPEN, "rate": 9e3, "send_lag_p99_ms": 1.1}, {**OPEN, "rate": 9e3, "send_lag_p99_ms": 1.0}, ALONE),
        (
            {**OPEN, "rate": 1.0, "send_lag_p99_ms": 10.1},
            {**OPEN, "rate": 1.0, "send_lag_p99_ms": 10.0},
            ALONE,
        ),
        (
            {**OPEN, "rate": None, "send_lag_p99_ms": 10.1},
            {**OPEN, "rate": None, "send_lag_p99_ms": 10.0},
            ALONE,
        ),
        # at 20 times the clock, 100 requests a second are 2000 in real time
        ({**OPEN, "time_scale": 20.0, "send_lag_p99_ms": 1.1}, {**OPEN, "send_lag_p99_ms": 1.1}, ALONE),
        # without kernel stamps: a tenth of the gap; with them that lag alone is no matter
        ({**USER, "loop_lag_p99_ms": 2.1}, {**USER, "loop_lag_p99_ms": 2.0}, ALONE),
        ({**USER, "loop_lag_p99_ms": 2.1}, {"loop_lag_p99_ms": 90.0, "client_lag_p99_ms": 9.0}, ALONE),
        ({"client_lag_p99_ms": 2.1}, {"client_lag_p99_ms": 2.0}, SHARED),
        ({"client_lag_p99_ms": 51.0}, {"client_lag_p99_ms": 49.0}, ALONE),
        (
            {"client_lag_p99_ms": 1.1, "e2e_p50_ms": 20.0},
            {"client_lag_p99_ms": 1.0, "e2e_p50_ms": 1.0},
            ALONE,
        ),
    ],
)
def test_each_reason_has_its_threshold(
    beyond: dict[str, Any], before: dict[str, Any], requests: list[dict[str, Any]]
) -> None:
    said = limit(beyond, requests)
    assert said
    assert len(said.splitlines()) == 1
    assert limit(before, requests) is None


def test_a_bound_on_requests_in_flight_may_hold_sends_back_and_is_not_the_client() -> None:
    late = {**OPEN, "send_lag_p99_ms": 400.0}
    assert limit(late)
    assert limit(late, is_bounded=True) is None


def test_nothing_known_is_nothing_said() -> None:
    unknown = {name: None for name in CELL if name != "time_scale"}
    assert limit(unknown, []) is None
    assert not is_unstamped(unknown)
    assert shared_share([]) is None


def test_the_chunk_that_comes_with_the_end_of_its_stream_is_not_counted() -> None:
    assert shared_share(ALONE) == 0
    assert shared_share([{"shared_events": 0, "choice_events": 60}, *SHARED[:1]]) == 6 / 160


def test_a_client_that_is_overdriven_on_purpose_says_so() -> None:
    """The real worker against a sink that sends as fast as it can: more than any client takes."""
    with running_sink("-w", "40", "-n", "256") as sink:
        truth.reset(sink.url, iv=0)
        run = _run(sink.url, Shape(256, 480, 400))
    window = Window(run.window_start_ns, run.window_end_ns, 1.0)
    cell = {
        **CELL,
        **summarize(run.requests, window),
        **client_figures(run.requests, window, [run.evidence]),
    }
    said = client_limit(cell, run.requests.drop_columns(CHUNK_LISTS).to_pylist(), is_send_bounded=False)
    assert said
    assert cell["stamp_source"] == "kernel"
    assert cell["shared_chunk_share"] > 0.05
