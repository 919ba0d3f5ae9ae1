"""The client's own figures of a cell, worked out by hand."""

from typing import Any

import pytest

from loadgen.load.evidence import WorkerEvidence
from loadgen.metrics import Window
from loadgen.metrics.client import chunk_rates, client_figures, stamp_source
from loadgen.records import Outcome, Phase, RequestRecord
from loadgen.tables import CELLS, RequestContext, requests_table

S = 1_000_000_000


def worker(**more: Any) -> WorkerEvidence:
    usual: dict[str, Any] = {
        "wall_s": 10.0, "cpu_s": 2.0, "cpu_steal_share": 0.01, "voluntary_switches": 5, "involuntary_switches": 1,
        "gc_pauses": 0, "gc_pause_max_ms": 0.0, "requests": 4, "unsent_requests": 0, "new_connections": 0, "resends": 0, "reads": 100,
        "unstamped_reads": 0, "read_bytes": 30_000, "chunks": 100, "shared_chunks": 1, "read_lag_p50_ms": 0.1,
        "read_lag_p99_ms": 0.4, "read_lag_max_ms": 2.0, "loop_lag_p99_ms": 0.5, "send_lag_p50_ms": 0.0,
        "send_lag_p99_ms": 0.1, "send_lag_max_ms": 0.2, "first_sent_ns": S, "decode_s": 0.1,
    }  # fmt: skip
    return WorkerEvidence(**{**usual, **more})


def table(name: str = "w0", *, lag_ns: tuple[int, ...] = (0,), at_s: tuple[float, ...] = ()) -> Any:
    """Requests due at 1 s and sent `lag_ns` later; the first has chunks at these times."""
    records = [
        RequestRecord(
            index, Phase.MEASURE, S, 16, sent_ns=S + lag, done_ns=9 * S, outcome=Outcome.OK,
            chunk_ns=[S + round(at * S) for at in at_s] if not index else [],
        )
        for index, lag in enumerate(lag_ns)
    ]  # fmt: skip
    return requests_table(records, RequestContext("c", 0, "p", "s", name, 1.0))


def test_the_worst_worker_counts_and_shares_are_over_all_of_them() -> None:
    calm = worker()
    busy = worker(
        cpu_s=9.0, read_lag_p99_ms=7.0, loop_lag_p99_ms=None, unstamped_reads=50, reads=100, shared_chunks=9,
        first_sent_ns=S + 3_000_000, cpu_steal_share=None,
    )  # fmt: skip
    figures = client_figures(table(lag_ns=(0, 2_000_000, 1_000_000)), Window(S, 2 * S, 40.0), [calm, busy])
    assert figures == {
        "send_lag_p50_ms": 1.0,
        "send_lag_max_ms": 2.0,
        "client_lag_p99_ms": 7.0,
        "loop_lag_p99_ms": 0.5,
        "worker_cpu": 0.9,
        "cpu_steal_share": 0.01,
        "stamp_source": "mixed",
        "unstamped_read_share": 0.25,
        "shared_chunk_share": 0.05,
        "start_spread_ms": 3.0,
        "worker_chunk_rate": 0.0,
    }
    assert figures.keys() <= {column.name for column in CELLS.columns}


def test_nothing_read_or_sent_is_unknown() -> None:
    none = worker(reads=0, chunks=0, shared_chunks=0, read_lag_p99_ms=None, first_sent_ns=None)
    figures = client_figures(table(lag_ns=()), Window(S, S, 1.0), [none])
    unknown = {
        "send_lag_p50_ms", "send_lag_max_ms", "client_lag_p99_ms", "stamp_source", "unstamped_read_share",
        "shared_chunk_share", "start_spread_ms", "worker_chunk_rate",
    }  # fmt: skip
    assert {name for name, value in figures.items() if value is None} == unknown


@pytest.mark.parametrize(
    ("reads", "unstamped", "source"), [(0, 0, None), (9, 0, "kernel"), (9, 1, "mixed"), (9, 9, "user")]
)
def test_whose_stamps(reads: int, unstamped: int, source: str | None) -> None:
    assert stamp_source(reads, unstamped) == source


def test_a_chunk_rate_is_of_the_window_of_one_worker_and_in_real_time() -> None:
    of_one = table(at_s=(0.5, 1.0, 1.5, 2.5))  # sent at 1 s: at 1.5, 2.0, 2.5 and 3.5 s
    assert chunk_rates(of_one, Window(2 * S, 3 * S, 40.0)) == {"w0": 2.0}
    assert chunk_rates(of_one, Window(2 * S, 2 * S, 1.0)) == {}
