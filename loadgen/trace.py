"""A recorded arrival process: a text of timestamps -> offsets. Parsing is pure; `read_trace` opens the file.

Three forms: a number a line; JSON objects a line, or CSV with a header, each with a `timestamp`. The first request is
at 0, whatever clock the trace was made with.
"""

import csv
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from loadgen.errors import BadInput
from loadgen.schedule import Offsets
from loadgen.spec import Load

_UNITS_NS = {"s": 1_000_000_000, "ms": 1_000_000}
_KEY = "timestamp"


def read_trace(path: Path, unit: str = "s") -> Offsets:
    """The offsets of a trace file in ns, ascending from 0. Raises BadInput that names the file and line."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise BadInput(
            f"load.arrivals.trace: {path}: cannot be read ({reason}); name a file of timestamps"
        ) from error
    return parse_trace(text, str(path), unit)


def trace_of(load: Load) -> Offsets | None:
    """The trace that a load asks for; None without one. Raises BadInput."""
    arrivals = load.arrivals
    return None if arrivals.trace is None else read_trace(Path(arrivals.trace), arrivals.unit)


def parse_trace(text: str, source: str, unit: str = "s") -> Offsets:
    """The offsets in `text`, in ns; `source` names the file in messages, `unit` is s or ms. Raises BadInput."""
    times: list[float] = []
    for number, value in _values(text, source):
        at = _number(value)
        if at is None:
            raise _bad(source, number, f"{_short(value)} is no timestamp; write a number of {unit}")
        if times and at < times[-1]:
            raise _bad(source, number, f"{at:g} comes after {times[-1]:g}; sort the trace by time")
        times.append(at)
    if not times:
        raise BadInput(f"load.arrivals.trace: {source}: it holds no timestamp; give one a line")
    offsets = (np.asarray(times) - times[0]) * _UNITS_NS[unit]
    if offsets[-1] > 86_400 * 1e9:
        raise BadInput(
            f"load.arrivals.trace: {source}: it is longer than a day; cut it, or check the unit ({unit})"
        )
    return np.rint(offsets).astype(np.int64)


def _values(text: str, source: str) -> Iterator[tuple[int, Any]]:
    lines = [(number, line.strip()) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        return
    if lines[0][1].startswith("{"):
        for number, line in lines:
            yield number, _json_field(line, source, number)
    elif _KEY in (names := _csv_names(lines[0][1])):
        place = names.index(_KEY)
        for number, line in lines[1:]:
            yield number, "".join(_csv_fields(line)[place : place + 1])
    else:
        yield from lines


def _json_field(line: str, source: str, number: int) -> Any:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        entry = None
    if not isinstance(entry, dict) or _KEY not in entry:
        raise _bad(source, number, f"{_short(line)} is no JSON object with a {_KEY}; give each line one")
    return entry[_KEY]


def _csv_names(line: str) -> list[str]:
    return [name.strip().lower() for name in _csv_fields(line)]


def _csv_fields(line: str) -> list[str]:
    try:
        return next(csv.reader([line]))
    except csv.Error:  # a field beyond the module's limit, which no row of a trace has
        return []


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _short(value: Any) -> str:
    return repr(value)[:60]


def _bad(source: str, number: int, problem: str) -> BadInput:
    return BadInput(f"load.arrivals.trace: {source}:{number}: {problem}")
