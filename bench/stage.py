"""Where plays happen: a sink on its core, one client after the other on theirs, in turns (A B A B)."""

import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from bench.host import CLIENT_PRIORITY, SINK_PRIORITY, Host, c_reader, neighbour
from bench.work import Work
from loadgen.errors import RunFailed
from loadgen.sink import Sink, running_sink, truth

OURS, C, AIOHTTP = "raw", "c", "aiohttp"
_PATIENCE_S = 120.0  # beyond the play itself: start-up, connections, and the deferred parsing
_MAX_CHARS = 300
_STATS = ("done", "aborted", "blocked", "max_streams", "ttft_us", "gap_us", "late_us")

Result = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Play:
    """One client on one work, with or without another program on its core."""

    client: str
    work: Work
    has_neighbour: bool = False


@dataclass(frozen=True, slots=True)
class Figure:
    """A number of the benchmark, and its goal if it has one."""

    name: str
    value: float | None
    unit: str
    at_most: float | None = None
    at_least: float | None = None

    @property
    def is_met(self) -> bool | None:
        """None without a goal. A value that could not be had meets none."""
        if self.at_most is None and self.at_least is None:
            return None
        if self.value is None:
            return False
        return (self.at_most is None or self.value <= self.at_most) and (
            self.at_least is None or self.value >= self.at_least
        )


class Stage:
    """Plays works, and keeps every result for the record."""

    def __init__(self, host: Host, repeats: int, seconds: float, say: Callable[[str], object]) -> None:
        self.host = host
        self.repeats = repeats
        self.seconds = seconds
        self.say = say
        self.record: list[dict[str, Any]] = []

    def interleaved(self, *plays: Play) -> dict[Play, list[Result]]:
        """Each play `repeats` times, in turns. Raises RunFailed when a client ends without its figures."""
        results: dict[Play, list[Result]] = {play: [] for play in plays}
        with running_sink(prefix=self.host.pinned(self.host.sink_core, SINK_PRIORITY)) as sink:
            for number in range(self.repeats):
                for play in plays:
                    result = self._play(play, sink)
                    results[play].append(result)
                    self.record.append({"repeat": number, "neighbour": play.has_neighbour, **result})
        return results

    def _play(self, play: Play, sink: Sink) -> Result:
        work = play.work
        truth.reset(sink.url, **work.sink_settings())
        with neighbour(self.host) if play.has_neighbour else nullcontext():
            result = _run(
                [
                    *self.host.pinned(self.host.client_core, CLIENT_PRIORITY),
                    *_command(play.client, work, sink),
                ],
                work.duration_s + _PATIENCE_S,
            )
        seen = truth.stats(sink.url)
        self.say(
            f"  {play.client:8} {work.streams} streams, {result['events_per_s']:,.0f} events/s, "
            f"{result['cpu_us']:.1f} us each, {result['failed']} failed"
        )
        return {**result, "interval_us": work.interval_us, "sink": {name: seen[name] for name in _STATS}}


def median(results: Sequence[Result], *path: str) -> float | None:
    """The median over repeats of the value at `path`; None where any repeat has none."""
    values = [_at(result, path) for result in results]
    return None if None in values else statistics.median(value for value in values if value is not None)


def median_ratio(ours: Sequence[Result], theirs: Sequence[Result], *path: str) -> float | None:
    """The median of the ratios of neighbours in time, which share what else the machine did."""
    pairs = [(_at(our, path), _at(their, path)) for our, their in zip(ours, theirs, strict=True)]
    ratios = [our / their for our, their in pairs if our is not None and their]
    return statistics.median(ratios) if len(ratios) == len(pairs) else None


def last_line(text: str) -> str:
    """Of what a program said: the words of an error."""
    lines = text.strip().splitlines()
    return lines[-1][-_MAX_CHARS:] if lines else "it said nothing"


def _at(result: Result, path: Sequence[str]) -> float | None:
    value: Any = result
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return None if value is None else float(value)


def _command(client: str, work: Work, sink: Sink) -> list[str]:
    if client != C:
        return [sys.executable, "-m", "bench.client", client, str(sink.port), work.to_json()]
    settings = {
        "-c": work.streams,
        "-n": work.chunks,
        "-i": work.interval_us,
        "-t": work.ttft_us,
        "-s": int(work.lock_step),
    }
    return c_reader(sink.port, [str(word) for pair in settings.items() for word in pair])


def _run(command: Sequence[str], patience_s: float) -> Result:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=patience_s, check=False)
    except subprocess.TimeoutExpired as error:
        raise RunFailed(f"no end within {patience_s:.0f} s: {' '.join(command)}") from error
    if done.returncode != 0:
        raise RunFailed(f"{' '.join(command)} ended with {done.returncode}: {last_line(done.stderr)}")
    result: Result = json.loads(done.stdout.splitlines()[-1])
    return result
