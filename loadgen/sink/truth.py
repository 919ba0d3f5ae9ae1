"""What a running sink sent, and when: its pages as columns and values. Times are monotonic ns of this host."""

import csv
import io
import json
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

_TIMEOUT_S = 60.0
# truth.c: struct stamp
STAMP = np.dtype([("request", "<u4"), ("chunk", "<u4"), ("sent_ns", "<i8")])


@dataclass(frozen=True, slots=True)
class SentRequest:
    """A finished request as the sink saw it. `key` begins the first message, non-alphanumerics as `_`: a salt's trace."""

    request: int
    read_ns: int
    first_ns: int
    last_ns: int
    chunks: int
    port: int
    key: str


def reset(url: str, **settings: int) -> None:
    """Forgets the truth so far. Settings (n, iv, ttft, sync, gap, tok, usage) become the defaults of later streams."""
    query = "&".join(f"{name}={value}" for name, value in settings.items())
    _get(url, f"/__reset?{query}")


def stats(url: str) -> Mapping[str, Any]:
    """Counters and histograms; see truth.c."""
    value: Mapping[str, Any] = json.loads(_get(url, "/__stats"))
    return value


def requests(url: str) -> list[SentRequest]:
    """The finished requests, in order of their end."""
    rows = csv.reader(io.StringIO(_get(url, "/__log").decode()))
    next(rows)  # names
    return [
        SentRequest(int(request), int(read), int(first), int(last), int(chunks), int(port), key)
        for request, read, first, last, chunks, port, key in rows
    ]


def stamps(url: str) -> npt.NDArray[np.void]:
    """A STAMP for each content chunk, in order of sending."""
    return np.frombuffer(_get(url, "/__stamps"), STAMP)


def _get(url: str, path: str) -> bytes:
    with urllib.request.urlopen(url + path, timeout=_TIMEOUT_S) as response:  # noqa: S310 - always http, to our own sink
        body: bytes = response.read()
        return body
