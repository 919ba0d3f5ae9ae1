"""What a transport leaves of one request: raw bytes and the stamps of the reads that brought them. Nothing is parsed.

The seam between timing and understanding: every transport fills an `Exchange`, `wire.decode` reads it after the
stream's end.
"""

import struct
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from loadgen.records import Outcome

_NS = 1_000_000_000
# One read: kernel stamp (s and ns of CLOCK_REALTIME; both 0: none), our stamp (ns, monotonic), body bytes read.
READ = struct.Struct("=qqqq")
NO_STAMP = bytes(16)
_SAMPLE_ERROR_NS = 1_000

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class TimeLimits:
    """Real time: of making a connection, to the first byte, between two reads, and of the whole request."""

    first_byte_ns: int
    idle_ns: int
    total_ns: int
    connect_ns: int = 30 * _NS


@dataclass(slots=True, eq=False)
class Exchange:
    """One request and what came back, raw. Times are monotonic ns; None: did not happen.

    `body` holds the bytes after the response head, chunk framing included where `is_chunked`. `reads` holds one READ
    for each read that brought body bytes. `failure` is None when the response ended as its framing says.
    """

    index: int = 0
    scheduled_ns: int = 0
    stream: int = 0  # of a closed loop: which of the worker's streams sent it
    sent_ns: int | None = None
    connected_ns: int | None = None  # the request waited for a new connection until then
    written_ns: int | None = None  # its last byte was handed to the kernel
    headers_ns: int | None = None
    done_ns: int | None = None
    status: int | None = None
    content_encoding: str = ""
    is_chunked: bool = False
    is_on_reused_connection: bool = False
    resends: int = 0
    failure: Outcome | None = None
    error: str | None = None
    body: bytearray = field(default_factory=bytearray)
    reads: bytearray = field(default_factory=bytearray)

    def add(self, at_ns: int, block: bytes) -> None:
        """A block that was read at `at_ns`, without a kernel stamp."""
        self.body += block
        self.reads += READ.pack(0, 0, at_ns, len(block))


@dataclass(frozen=True, slots=True)
class Reads:
    """The reads of one exchange as columns, in order. `arrival_ns` is the kernel's stamp where `is_kernel`, else ours."""

    arrival_ns: Integers
    user_ns: Integers
    end: Integers  # body bytes read so far
    is_kernel: npt.NDArray[np.bool_]


class ClockOffsets:
    """CLOCK_REALTIME minus CLOCK_MONOTONIC over a cell, so that kernel stamps become monotonic times.

    Samples are taken all along, because NTP moves the real-time clock; each read uses the latest before it.
    """

    def __init__(self) -> None:
        self._samples: list[tuple[int, int]] = []
        self._columns = np.empty((0, 2), np.int64)

    def add(self, at_ns: int, offset_ns: int) -> None:
        """A sample; one that differs from the last by no more than a sample's own error adds nothing."""
        if not self._samples or abs(offset_ns - self._samples[-1][1]) > _SAMPLE_ERROR_NS:
            self._samples.append((at_ns, offset_ns))

    def reads(self, exchange: Exchange) -> Reads:
        """The reads of `exchange` on the monotonic clock."""
        raw = np.frombuffer(exchange.reads, np.int64).reshape(-1, 4)
        kernel_s, kernel_ns, user_ns, size = raw.T
        is_kernel = (kernel_s != 0) & bool(self._samples)
        arrival_ns = user_ns.copy()
        if is_kernel.any():
            if len(self._columns) < len(self._samples):
                self._columns = np.array(self._samples, np.int64)
            at_ns, offsets_ns = self._columns.T
            offset_ns = offsets_ns[np.maximum(np.searchsorted(at_ns, user_ns, side="right") - 1, 0)]
            # a kernel stamp after ours would be an error of the offset: ours is then the better bound
            stamp_ns = np.minimum(kernel_s * _NS + kernel_ns - offset_ns, user_ns)
            arrival_ns = np.where(is_kernel, stamp_ns, user_ns)
        return Reads(arrival_ns, user_ns.copy(), np.cumsum(size), is_kernel)
