"""What a worker can say of itself: how late it was, what it used, and whether something of its own got in the way."""

import gc
import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import numpy as np

from loadgen.clock import monotonic_ns, thread_cpu_ns
from loadgen.load.place import Ticks, core_ticks
from loadgen.records import RequestRecord

_MS = 1e6


@dataclass(frozen=True, slots=True)
class WorkerEvidence:
    """One worker's figures over one cell; a row of `workers`. Real time; None: nothing to say it from."""

    wall_s: float
    cpu_s: float
    cpu_steal_share: float | None
    voluntary_switches: int
    involuntary_switches: int
    gc_pauses: int
    gc_pause_max_ms: float
    requests: int
    unsent_requests: int
    new_connections: int
    resends: int
    reads: int
    unstamped_reads: int
    read_bytes: int
    chunks: int
    shared_chunks: int
    read_lag_p50_ms: float | None
    read_lag_p99_ms: float | None
    read_lag_max_ms: float | None
    loop_lag_p99_ms: float | None
    send_lag_p50_ms: float | None
    send_lag_p99_ms: float | None
    send_lag_max_ms: float | None
    first_sent_ns: int | None
    decode_s: float

    @property
    def cpu(self) -> float:
        """Cores used."""
        return self.cpu_s / self.wall_s if self.wall_s else 0.0

    @property
    def event_bytes(self) -> int | None:
        """Bytes read for each chunk of text; None of no chunks."""
        return round(self.read_bytes / self.chunks) if self.chunks else None


def _switches() -> tuple[int, int]:
    usage = resource.getrusage(resource.RUSAGE_THREAD)
    return usage.ru_nvcsw, usage.ru_nivcsw


@dataclass(slots=True)
class Usage:
    """What the thread used between `Usage()` and `stop()`."""

    start_ns: int = field(default_factory=monotonic_ns)
    wall_s: float = 0.0
    cpu_s: float = field(default_factory=lambda: -thread_cpu_ns() / 1e9)
    switches: tuple[int, int] = field(default_factory=_switches)
    ticks: Ticks | None = field(default_factory=core_ticks)
    steal_share: float | None = None

    def stop(self) -> None:
        self.wall_s = (monotonic_ns() - self.start_ns) / 1e9
        self.cpu_s += thread_cpu_ns() / 1e9
        now = _switches()
        self.switches = now[0] - self.switches[0], now[1] - self.switches[1]
        ticks = core_ticks()
        self.steal_share = self.ticks.stolen_share(ticks) if self.ticks and ticks else None


class Collector:
    """The garbage collector frozen and off within cells; cells of one process may overlap (`--local`)."""

    _lock = Lock()
    _cells = 0
    _was_on = True

    def __init__(self) -> None:
        self.pauses_ns: list[int] = []
        self._start_ns = 0

    @contextmanager
    def off(self) -> Iterator[None]:
        """No collection inside, unless somebody else asks for one: that is noted."""
        self._enter()
        gc.callbacks.append(self._note)
        try:
            yield
        finally:
            gc.callbacks.remove(self._note)
            self._leave()

    @classmethod
    def _enter(cls) -> None:
        with cls._lock:
            cls._cells += 1
            if cls._cells == 1:
                cls._was_on = gc.isenabled()
                gc.collect()
                gc.freeze()
                gc.disable()

    @classmethod
    def _leave(cls) -> None:
        with cls._lock:
            cls._cells -= 1
            if not cls._cells:
                gc.unfreeze()
                if cls._was_on:
                    gc.enable()

    def _note(self, phase: str, _info: dict[str, Any]) -> None:
        if phase == "start":
            self._start_ns = monotonic_ns()
        else:
            self.pauses_ns.append(monotonic_ns() - self._start_ns)


@dataclass(slots=True)
class Gathered:
    """Sums and samples over the records of a cell, taken in one at a time."""

    requests: int = 0
    unsent: int = 0
    new_connections: int = 0
    resends: int = 0
    reads: int = 0
    read_bytes: int = 0
    chunks: int = 0
    shared_chunks: int = 0
    first_sent_ns: int | None = None
    read_lags_us: list["np.ndarray[Any, np.dtype[np.int32]]"] = field(default_factory=list)
    send_lags_ns: list[int] = field(default_factory=list)

    def take(self, record: RequestRecord) -> None:
        self.requests += 1
        self.new_connections += record.connected_ns is not None
        self.resends += record.resends
        self.reads += record.blocks
        self.read_bytes += record.response_bytes
        self.chunks += len(record.chunk_ns)
        self.shared_chunks += record.shared_events
        if record.read_lag_us:
            self.read_lags_us.append(np.asarray(record.read_lag_us, np.int32))
        if record.sent_ns is not None:
            self.send_lags_ns.append(record.sent_ns - record.scheduled_ns)
            self.first_sent_ns = min(self.first_sent_ns or record.sent_ns, record.sent_ns)


def worker_evidence(
    gathered: Gathered, usage: Usage, pauses_ns: Sequence[int], loop_lags_ns: Sequence[int], decode_s: float
) -> WorkerEvidence:
    """The figures. Quantiles are values that happened."""
    lags_us = np.concatenate(gathered.read_lags_us) if gathered.read_lags_us else np.empty(0, np.int32)
    return WorkerEvidence(
        wall_s=usage.wall_s,
        cpu_s=usage.cpu_s,
        cpu_steal_share=usage.steal_share,
        voluntary_switches=usage.switches[0],
        involuntary_switches=usage.switches[1],
        gc_pauses=len(pauses_ns),
        gc_pause_max_ms=max(pauses_ns, default=0) / _MS,
        requests=gathered.requests,
        unsent_requests=gathered.unsent,
        new_connections=gathered.new_connections,
        resends=gathered.resends,
        reads=gathered.reads,
        unstamped_reads=gathered.reads - lags_us.size,
        read_bytes=gathered.read_bytes,
        chunks=gathered.chunks,
        shared_chunks=gathered.shared_chunks,
        read_lag_p50_ms=_quantile(lags_us, 0.5, 1e3),
        read_lag_p99_ms=_quantile(lags_us, 0.99, 1e3),
        read_lag_max_ms=_quantile(lags_us, 1.0, 1e3),
        loop_lag_p99_ms=_quantile(loop_lags_ns, 0.99, _MS),
        send_lag_p50_ms=_quantile(gathered.send_lags_ns, 0.5, _MS),
        send_lag_p99_ms=_quantile(gathered.send_lags_ns, 0.99, _MS),
        send_lag_max_ms=_quantile(gathered.send_lags_ns, 1.0, _MS),
        first_sent_ns=gathered.first_sent_ns,
        decode_s=decode_s,
    )


def _quantile(
    values: "Sequence[int] | np.ndarray[Any, np.dtype[np.int32]]", q: float, unit: float
) -> float | None:
    return float(np.quantile(values, q, method="higher")) / unit if len(values) else None
