"""The ceilings of this host's client, as `loadgen calibrate` measured them: kept in a file by host, CPU, kernel and version.

A cell's load share is its chunk rate over the ceiling at the nearest measured shape; far from all of them it is unknown.
"""

import hashlib
import importlib.metadata
import json
import math
import os
import platform
import socket
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from loadgen.errors import BadInput

# Of a prompt, as UTF-8 text.
BYTES_PER_TOKEN = 4
# SGLang's and the sink's, with a running usage.
TYPICAL_EVENT_BYTES = 480
# Of an open loop that has no bound.
TYPICAL_STREAMS = 64
# How far a shape may be from the one asked for: the factor by which each of its sizes may differ. What a chunk costs
# hardly depends on the prompt, which goes out once a request.
_REACH = {"streams": 4.0, "event_bytes": 4.0, "context_bytes": 64.0}
_SAME = 0.05
_LEAST_BYTES = 256  # below, the cost of a prompt is that of its request


@dataclass(frozen=True, slots=True)
class Shape:
    """What a worker has to do with: streams at once, bytes of an event with its framing, bytes of a prompt."""

    streams: int
    event_bytes: int
    context_bytes: int

    def distance(self, other: "Shape") -> float:
        """0 for the same; above 1 when a size differs by more than it may."""
        pairs = (
            (reach, max(1, getattr(self, name)), max(1, getattr(other, name)))
            for name, reach in _REACH.items()
        )
        return max(abs(math.log(mine / its)) / math.log(reach) for reach, mine, its in pairs)


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The highest chunk rate that one worker held at a shape, and what broke above it: lag, cpu, the sink itself, or
    others (late, with a core that was half idle: other programs or the hypervisor had it).

    `is_lower_bound`: one of the last two, or the sink had to share the client's core; the client may hold more.
    """

    shape: Shape
    chunks_per_s: float
    limit: str
    lag_p99_ms: float | None
    cpu: float
    is_lower_bound: bool


@dataclass(frozen=True, slots=True)
class Calibration:
    """All that was measured on one host, by one version of loadgen."""

    key: Mapping[str, str]
    ceilings: tuple[Ceiling, ...]

    def nearest(self, shape: Shape) -> Ceiling | None:
        """The ceiling at the nearest shape; None where none is near enough."""
        wanted = _rounded(shape)
        near = [
            (distance, number)
            for number, ceiling in enumerate(self.ceilings)
            if (distance := _rounded(ceiling.shape).distance(wanted)) <= 1
        ]
        return self.ceilings[min(near)[1]] if near else None

    def load_share(self, shape: Shape, chunks_per_s: float) -> float | None:
        """A worker's chunk rate over its ceiling; None where that is unknown."""
        ceiling = self.nearest(shape)
        return chunks_per_s / ceiling.chunks_per_s if ceiling and ceiling.chunks_per_s else None

    def with_ceilings(self, more: Iterable[Ceiling]) -> "Calibration":
        """With these too, in place of earlier ones at hardly another shape: event sizes differ a little by themselves."""
        new = tuple(more)
        kept = [one for one in self.ceilings if all(one.shape.distance(it.shape) > _SAME for it in new)]
        return Calibration(self.key, (*kept, *new))


def host_key() -> dict[str, str]:
    """What a ceiling depends on."""
    return {
        "host": socket.gethostname(),
        "cpu": cpu_model() or platform.machine(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "loadgen": importlib.metadata.version("loadgen"),
    }


def calibration_path(key: Mapping[str, str]) -> Path:
    """Where the calibration of a host is kept: in the user's state folder (XDG_STATE_HOME)."""
    base = os.environ.get("XDG_STATE_HOME")
    folder = (Path(base) if base else Path.home() / ".local" / "state") / "loadgen" / "calibration"
    digest = hashlib.sha256(json.dumps(dict(sorted(key.items()))).encode()).hexdigest()[:12]
    return folder / f"{digest}.json"


def read_calibration(path: Path | None = None) -> Calibration | None:
    """This host's calibration (or the one at `path`); None when there is none for it as it is now.

    Raises BadInput for a file that is no calibration.
    """
    key = host_key()
    file = path or calibration_path(key)
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        read = Calibration(found["key"], tuple(map(_ceiling, found["ceilings"])))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInput(
            f"{file}: it is no calibration ({error}); remove it, or run loadgen calibrate again"
        ) from error
    return read if dict(read.key) == key else None


def write_calibration(calibration: Calibration, path: Path | None = None) -> Path:
    """Writes it whole, for this host (or to `path`); returns where."""
    file = path or calibration_path(calibration.key)
    file.parent.mkdir(parents=True, exist_ok=True)
    half = file.with_name(f".{file.name}.tmp")
    half.write_text(json.dumps(asdict(calibration), indent=1), encoding="utf-8")
    half.replace(file)
    return file


def cpu_model() -> str | None:
    """The processor's name; None where the system does not say."""
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8") as lines:
            return next(
                (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), None
            )
    except OSError:
        return None


def _ceiling(value: dict[str, Any]) -> Ceiling:
    ceiling = Ceiling(**{**value, "shape": Shape(**value["shape"])})
    numbers = (ceiling.chunks_per_s, *asdict(ceiling.shape).values())
    if not all(isinstance(number, int | float) for number in numbers):
        raise ValueError("a size or rate is no number")
    return ceiling


def _rounded(shape: Shape) -> Shape:
    return Shape(shape.streams, shape.event_bytes, max(_LEAST_BYTES, shape.context_bytes))
