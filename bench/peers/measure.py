"""One run of one tool on the sink: what it cost, what it held, and what it says beside what was so."""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import psutil

from bench.host import CLIENT_PRIORITY, Host
from bench.peers.tools import Places, Tool
from bench.stage import last_line
from bench.work import Work
from loadgen.clock import monotonic_ns
from loadgen.errors import RunFailed
from loadgen.sink import Sink, truth
from loadgen.sink.truth import SentRequest

_SAMPLE_S = 0.02
_PATIENCE_S = 600.0
_NS, _MS = 1e9, 1e6
_BAD_OUTPUT_CHARS = 200


@dataclass(slots=True)
class CpuOfTree:
    """CPU of a process and all below it, sampled; a process that ended counts with what it had."""

    root: psutil.Process
    at_ns: list[int] = field(default_factory=list)
    total_s: list[float] = field(default_factory=list)
    _last_s: dict[int, float] = field(default_factory=dict)

    def sample(self) -> None:
        """Takes a sample."""
        try:
            tree = [self.root, *self.root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return
        for process in tree:
            try:
                times = process.cpu_times()
            except psutil.NoSuchProcess:
                continue
            self._last_s[process.pid] = times.user + times.system
        self.at_ns.append(monotonic_ns())
        self.total_s.append(sum(self._last_s.values()))

    def between(self, from_ns: int, to_ns: int) -> float:
        """Seconds of CPU from one time to another, between samples by a straight line."""
        from_s, to_s = np.interp([from_ns, to_ns], self.at_ns, self.total_s)
        return float(to_s - from_s)


def measure(tool: Tool, work: Work, places: Places, sink: Sink, host: Host) -> dict[str, Any]:
    """A row of the peers' table. Raises RunFailed when the tool does not end well, or its report cannot be read."""
    truth.reset(sink.url, **work.sink_settings())
    cpu = _run([*_prefix(tool, host), *tool.command(places, work, sink.url)], tool, places)
    sent = sorted(truth.requests(sink.url), key=lambda row: row.request)[-work.requests :]
    if not sent:
        raise RunFailed("it finished no request")
    from_ns, to_ns = min(row.read_ns for row in sent), max(row.last_ns for row in sent)
    chunks = sum(row.chunks for row in sent)
    true_ttft_ms = float(np.mean([row.first_ns - row.read_ns for row in sent])) / _MS
    try:
        said = tool.said(places.out)
    except (OSError, ValueError, LookupError, TypeError) as error:
        raise RunFailed(f"its report cannot be read ({type(error).__name__}: {error})") from error
    return {
        "held": most_at_once(sent),
        "finished": len(sent),
        "chunks_per_s": chunks / ((to_ns - from_ns) / _NS),
        "cpu_us": cpu.between(from_ns, to_ns) * 1e6 / chunks,
        "true_ttft_ms": true_ttft_ms,
        "ttft_ms": said.ttft_mean_ms,
        "ttft_error_ms": said.ttft_mean_ms - true_ttft_ms,
        "true_gap_p99_ms": gap_p99_ms(truth.stamps(sink.url), {row.request for row in sent}),
        "gap_p99_ms": said.gap_p99_ms,
    }


def most_at_once(sent: Sequence[SentRequest]) -> int:
    """The most requests that were between their read and their last chunk at the same time."""
    changes = sorted([(row.read_ns, 1) for row in sent] + [(row.last_ns, -1) for row in sent])
    return int(np.cumsum([change for _, change in changes]).max())


def gap_p99_ms(stamps: npt.NDArray[np.void], wanted: set[int]) -> float:
    """The p99 of the time between two chunks of a request, as sent."""
    kept = stamps[np.isin(stamps["request"], list(wanted))]
    kept = kept[np.lexsort((kept["chunk"], kept["request"]))]
    gaps_ns = np.diff(kept["sent_ns"])[np.diff(kept["request"]) == 0]
    return float(np.quantile(gaps_ns, 0.99)) / _MS


def version_of(tool: Tool, places: Places) -> str | None:
    """The installed version; None where it is not installed."""
    home = tool.home(places)
    if home is None:
        return ""
    sites = [
        *home.glob("lib/python3*/site-packages"),
        *(places.sglang.glob("lib/python3*/site-packages") if tool.package == "sglang" else ()),
    ]
    found = [info for site in sites for info in site.glob(f"{tool.package}-*.dist-info")]
    is_whole = home.is_dir() and not (home / ".failed").exists()
    return found[0].name.removesuffix(".dist-info").partition("-")[2] if found and is_whole else None


def why_missing(tool: Tool, places: Places) -> str:
    """Why a tool is not there."""
    home = tool.home(places)
    assert home is not None
    failed = home / ".failed"
    reason = failed.read_text(encoding="utf-8").strip()[-_BAD_OUTPUT_CHARS:] if failed.exists() else ""
    return f"could not be installed: {reason}" if reason else "not installed (make bench-peers)"


def _prefix(tool: Tool, host: Host) -> list[str]:
    # real-time round robin starves the processes of a tool that has many of them on one core
    if tool.has_many_processes:
        return ["nice", "-n", "-20"] if host.is_real_time else []
    return host.pinned(host.client_core, CLIENT_PRIORITY, policy="-r")


def _run(command: list[str], tool: Tool, places: Places) -> CpuOfTree:
    out, errors = places.out / "stdout", places.out / "stderr"
    with (
        out.open("wb") as said,
        errors.open("wb") as complained,
        subprocess.Popen(
            command, stdout=said, stderr=complained, env=os.environ | tool.environment, start_new_session=True
        ) as process,
    ):
        cpu = CpuOfTree(psutil.Process(process.pid))
        deadline_ns = monotonic_ns() + round(_PATIENCE_S * _NS)
        try:
            while process.poll() is None and monotonic_ns() < deadline_ns:
                cpu.sample()
                _wait(process)
            if process.poll() is None:
                raise RunFailed(f"no end within {_PATIENCE_S:.0f} s")
        finally:
            _end(process)
    if process.returncode != 0:
        words = errors.read_text(encoding="utf-8", errors="replace").strip() or out.read_text(
            errors="replace"
        )
        raise RunFailed(f"ended with {process.returncode}: {last_line(words)}")
    return cpu


def _wait(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(_SAMPLE_S)
    except subprocess.TimeoutExpired:
        return


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends the tool and what it started, if it has not ended."""
    if process.poll() is not None:
        return
    tree = [*psutil.Process(process.pid).children(recursive=True), psutil.Process(process.pid)]
    for one in tree:
        try:
            one.kill()
        except psutil.NoSuchProcess:
            continue
    process.wait()


def folder(path: Path) -> Path:
    """`path`, made, absolute."""
    path.mkdir(parents=True, exist_ok=True)
    return path.resolve()
