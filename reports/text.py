"""Hostile text made harmless for a screen, and numbers in words. Escaping for a format is left to its renderer."""

import json
import math
import unicodedata
from datetime import UTC, datetime
from typing import Any

UNKNOWN = "?"
_DROPPED = frozenset({"Cc", "Cf", "Cs"})
_SPACES = frozenset({"Zl", "Zp", "Zs"})


def clean(text: str) -> str:
    """One line without control, direction-changing or invisible characters; line ends and tabs become spaces."""
    return "".join(map(_visible, text))


def clean_lines(text: str) -> tuple[str, ...]:
    """The lines of a text, each cleaned."""
    return tuple(clean(line) for line in text.splitlines())


def clip(text: str, limit: int) -> str:
    """At most `limit` characters of a cleaned text; what was cut is shown as an ellipsis."""
    line = clean(text).strip()
    return line if len(line) <= limit else line[: limit - 1] + "…"


def known(value: float | None) -> float | None:
    """A number that can be shown: NaN and infinity are unknown too."""
    return value if value is not None and math.isfinite(value) else None


def figure(value: float | None) -> str:
    """A rate or a duration: whole from 100 on, one decimal below, three digits under 1."""
    if (shown := known(value)) is None:
        return UNKNOWN
    if abs(shown) >= 99.95:
        return f"{shown:.0f}"
    return f"{shown:.1f}" if abs(shown) >= 1 or shown == 0 else f"{shown:.3g}"


def one_decimal(value: float | None) -> str:
    return UNKNOWN if known(value) is None else f"{value:.1f}"


def ratio(value: float | None) -> str:
    return UNKNOWN if known(value) is None else f"{value:.2f}x"


def percent(value: float | None) -> str:
    """A fraction as a percentage; what is not zero is never shown as zero."""
    if (shown := known(value)) is None:
        return UNKNOWN
    return "<0.1%" if 0 < shown < 0.001 else f"{shown:.1%}".replace(".0%", "%")


def plain(value: object) -> str:
    """A count or a name, or `?`."""
    if value is None or value == "" or (isinstance(value, float) and known(value) is None):
        return UNKNOWN
    return f"{value:g}" if isinstance(value, float) else str(value)


def moment(unix_ns: int | None) -> str:
    if unix_ns is None:
        return UNKNOWN
    return datetime.fromtimestamp(unix_ns / 1e9, UTC).strftime("%Y-%m-%d %H:%M UTC")


def pairs(mapping: Any) -> str:
    """`name=value, ...` of an object, or of its JSON text."""
    values = _parsed(mapping) if isinstance(mapping, str) else mapping
    if not isinstance(values, dict):
        return plain(values)
    return ", ".join(f"{name}={plain(value)}" for name, value in values.items())


def _parsed(text: str) -> Any:
    """The JSON value of a text, or the text when it is none."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _visible(character: str) -> str:
    if character in "\n\r\t\v\f" or (kind := unicodedata.category(character)) in _SPACES:
        return " "
    return "" if kind in _DROPPED else character


def load_title(arrivals: str | None) -> str:
    """What a load's number counts: the streams of a closed loop, the rate of an open one."""
    return "concurrency" if arrivals is None else "requests/s"


def load_words(arrivals: str | None, load: float | None) -> str:
    """A load's number; the rate of a trace is the trace's own."""
    return "trace" if load is None and arrivals is not None else plain(load)
