"""A client under test: `python -m bench.client raw|aiohttp PORT WORK` plays the work once, and prints a line of JSON.

It drives a transport as the product does: connections opened before, request bytes ready before, collector off, one
callback when a request is over, everything understood afterwards.
"""

import gc
import json
import resource
import sys
from pathlib import Path
from typing import Any

import numpy as np

from bench.figures import Seen, against_truth, lags, quantiles, seen
from bench.work import Work, body_parts
from loadgen.clock import monotonic_ns, thread_cpu_ns
from loadgen.decode.record import decode
from loadgen.records import Phase, RequestRecord
from loadgen.sink import truth
from loadgen.transport.exchange import Exchange, TimeLimits
from loadgen.transport.pick import make_transport

_NS = 1_000_000_000
_MS = 1_000_000
_DECODED = 200  # streams whose deferred parsing is timed
_PAGE_KB = resource.getpagesize() / 1024
_LIMITS = TimeLimits(first_byte_ns=60 * _NS, idle_ns=60 * _NS, total_ns=600 * _NS)


class Player:
    """One play of a work; all its methods run in the transport's loop."""

    def __init__(self, kind: str, url: str, work: Work) -> None:
        self.work = work
        self.ended: list[Exchange] = []
        self.memory_kb: list[float] = []
        self.from_ns = self.to_ns = 0
        self.cpu_s = 0.0
        self._next = work.streams
        self._parts = [_salted(work, index) for index in range(work.count)]
        self.memory_kb.append(_memory_kb())
        self.transport = make_transport(kind, [url], _LIMITS, self._on_end)

    def run(self) -> None:
        """Plays it, to the end of the last request."""
        self.transport.wake(self._open)
        self.transport.run()

    def _open(self) -> None:
        self.transport.open(_connections(self.work))
        self._start_when_open()

    def _start_when_open(self) -> None:
        now_ns = monotonic_ns()
        if not self.transport.is_open():
            self.transport.at(now_ns + 10 * _MS, self._start_when_open)
            return
        gc.collect()
        gc.freeze()
        gc.disable()
        start_ns = monotonic_ns() + 200 * _MS
        for index, offset_ns in enumerate(_offsets_ns(self.work)):
            self._send_at(index, start_ns + offset_ns)
        self.transport.at(start_ns + self.work.ttft_us * 900, self._begin_counting)

    def _send_at(self, index: int, due_ns: int) -> None:
        exchange = Exchange(index=index, scheduled_ns=due_ns)
        self.transport.at(due_ns, lambda: self._send(exchange))

    def _send(self, exchange: Exchange) -> None:
        self.transport.send(exchange, self._parts[exchange.index])

    def _begin_counting(self) -> None:
        self.memory_kb.append(_memory_kb())
        self.from_ns, self.cpu_s = monotonic_ns(), _cpu_s()

    def _on_end(self, exchange: Exchange) -> None:
        self.ended.append(exchange)
        if self._next < self.work.count:
            self._send(Exchange(index=self._next, scheduled_ns=monotonic_ns()))
            self._next += 1
        elif len(self.ended) == self.work.count:
            self.cpu_s = _cpu_s() - self.cpu_s
            self.to_ns = monotonic_ns()
            self.transport.stop()


def play(kind: str, url: str, work: Work) -> dict[str, Any]:
    """Plays `work` and says what was seen; see docs/performance.md for each figure."""
    player = Player(kind, url, work)
    player.run()
    player.transport.close()
    whole = [exchange for exchange in player.ended if exchange.failure is None and exchange.status == 200]
    streams = [seen(exchange, player.transport.offsets) for exchange in whole]
    events = sum(len(stream.event_ns) for stream in streams)
    wall_s = (player.to_ns - player.from_ns) / _NS
    before_kb, at_work_kb = player.memory_kb
    return {
        "client": kind,
        "streams": work.streams,
        "failed": work.count - len(whole),
        "events": events,
        "wall_s": wall_s,
        "events_per_s": events / wall_s,
        "cpu_us": player.cpu_s * 1e6 / events,
        "busy": player.cpu_s / wall_s,
        "memory_kb_per_stream": (at_work_kb - before_kb) / work.streams,
        "send_late_ms": _send_late_ms(whole, work),
        "write_ms": _write_ms(whole),
        "decode_us": _decode_us(whole[:_DECODED], streams[:_DECODED], player),
        **lags(streams),
        **against_truth(streams, truth.requests(url)),
    }


def _salted(work: Work, index: int) -> tuple[bytes, ...]:
    head, text, tail = body_parts(work)
    return (head + f"salt {index:08d}".encode(), text, tail)


def _connections(work: Work) -> int:
    """As many as will be in use at once; in an open loop, by Little's law and a third more."""
    if not work.arrivals_per_s:
        return work.streams
    stay_s = (work.ttft_us + work.chunks * work.interval_us) / 1e6
    return round(work.arrivals_per_s * stay_s * 1.3)


def _offsets_ns(work: Work) -> list[int]:
    if not work.arrivals_per_s:
        return [0] * work.streams
    gaps_s = np.random.default_rng(1).exponential(1 / work.arrivals_per_s, work.streams)
    offsets: list[int] = (np.cumsum(gaps_s) * _NS).astype(np.int64).tolist()
    return offsets


def _send_late_ms(exchanges: list[Exchange], work: Work) -> dict[str, float] | None:
    """Sent - scheduled; in an open loop, of those that had the full load behind them."""
    quiet_ns = (work.ttft_us + work.chunks * work.interval_us) * 1000 if work.arrivals_per_s else 0
    start_ns = min(exchange.scheduled_ns for exchange in exchanges)
    late = [
        e.sent_ns - e.scheduled_ns for e in exchanges if e.sent_ns and e.scheduled_ns >= start_ns + quiet_ns
    ]
    return quantiles(np.array(late, np.int64), _MS)


def _write_ms(exchanges: list[Exchange]) -> dict[str, float] | None:
    """From the request's start to its last byte in the kernel's hands."""
    took = [e.written_ns - e.sent_ns for e in exchanges if e.written_ns and e.sent_ns]
    return quantiles(np.array(took, np.int64), _MS)


def _decode_us(exchanges: list[Exchange], streams: list[Seen], player: Player) -> float:
    """CPU of the deferred parsing, for each event."""
    from_ns = thread_cpu_ns()
    for exchange in exchanges:
        record = RequestRecord(exchange.index, Phase.MEASURE, exchange.scheduled_ns, player.work.chunks)
        decode(exchange, record, player.transport.offsets)
    return (thread_cpu_ns() - from_ns) / 1e3 / sum(len(stream.event_ns) for stream in streams)


def _cpu_s() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def _memory_kb() -> float:
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * _PAGE_KB


if __name__ == "__main__":
    _, most_files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most_files, most_files))
    _result = play(sys.argv[1], f"http://127.0.0.1:{sys.argv[2]}", Work.from_json(sys.argv[3]))
    sys.stdout.write(json.dumps(_result) + "\n")
