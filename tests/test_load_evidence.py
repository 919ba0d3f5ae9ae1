"""What a worker says of itself: sums and values that happened, a collector that is off, and time that was really used."""

import gc
from typing import Any

import numpy as np
import pytest

from loadgen.clock import thread_cpu_ns
from loadgen.load.evidence import Collector, Gathered, Usage, worker_evidence
from loadgen.records import Phase, RequestRecord

MS = 1_000_000


def record(**more: Any) -> RequestRecord:
    usual = {
        "scheduled_ns": 100 * MS,
        "sent_ns": 101 * MS,
        "blocks": 3,
        "response_bytes": 900,
        "chunk_ns": [1, 2],
    }
    return RequestRecord(**{"index": 0, "phase": Phase.MEASURE, "max_tokens": 8, **usual, **more})


def gathered(*records: RequestRecord) -> Gathered:
    found = Gathered()
    for one in records:
        found.take(one)
    return found


def test_sums_and_lags_are_those_of_the_records() -> None:
    found = gathered(
        record(read_lag_us=[100, 300], shared_events=1, connected_ns=7),
        record(sent_ns=150 * MS, read_lag_us=[5000, 200, 100], resends=2),
        record(sent_ns=None, blocks=0, response_bytes=0, chunk_ns=[], read_lag_us=None),
    )
    said = worker_evidence(found, Usage(), [2 * MS, 5 * MS], [MS, 9 * MS], decode_s=0.5)
    assert (said.requests, said.new_connections, said.resends) == (3, 1, 2)
    assert (said.reads, said.unstamped_reads, said.read_bytes) == (6, 1, 1800)
    assert (said.chunks, said.shared_chunks, said.event_bytes) == (4, 1, 450)
    assert (said.read_lag_p50_ms, said.read_lag_p99_ms, said.read_lag_max_ms) == (0.2, 5.0, 5.0)
    assert (said.send_lag_p50_ms, said.send_lag_max_ms, said.first_sent_ns) == (50.0, 50.0, 101 * MS)
    assert (said.loop_lag_p99_ms, said.gc_pauses, said.gc_pause_max_ms) == (9.0, 2, 5.0)


def test_nothing_to_say_it_from_is_unknown() -> None:
    said = worker_evidence(gathered(), Usage(), [], [], decode_s=0.0)
    assert (said.read_lag_p99_ms, said.send_lag_p99_ms, said.loop_lag_p99_ms) == (None, None, None)
    assert (said.first_sent_ns, said.event_bytes, said.gc_pauses) == (None, None, 0)


def test_cpu_is_that_of_the_thread_between_start_and_stop() -> None:
    usage = Usage()
    began_ns = thread_cpu_ns()
    while thread_cpu_ns() - began_ns < 30 * MS:
        np.arange(1000).sum()
    usage.stop()
    assert usage.cpu_s >= 0.03
    assert usage.wall_s >= usage.cpu_s * 0.99
    assert sum(usage.switches) >= 0
    assert usage.steal_share is None or 0 <= usage.steal_share <= 1


def test_the_collector_is_off_inside_and_a_call_from_elsewhere_is_noted() -> None:
    outer, inner = Collector(), Collector()
    assert gc.isenabled()
    with outer.off():
        assert not gc.isenabled()
        with inner.off():
            gc.collect()
        assert not gc.isenabled(), "another cell of the process still runs"
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
    assert len(inner.pauses_ns) == 1
    assert outer.pauses_ns[-1] > 0
    gc.collect()
    assert len(inner.pauses_ns) == 1, "nothing is noted outside"


def test_a_cell_that_fails_leaves_the_collector_on() -> None:
    with pytest.raises(RuntimeError), Collector().off():
        raise RuntimeError
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
