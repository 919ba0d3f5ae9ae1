"""Exchanges made by hand, and what the decoder makes of them."""

from itertools import pairwise
from typing import Any

from loadgen.decode.record import EndMarks, decode
from loadgen.records import Phase, RequestRecord
from loadgen.transport.exchange import Exchange

MS = 1_000_000
Block = bytes | tuple[int, bytes]


def exchange_of(*blocks: Block, status: int | None = 200, **fields: Any) -> Exchange:
    """The blocks as they were read; those without a time of their own come 1 ms apart, the first at 1 ms."""
    exchange = Exchange(sent_ns=1, status=status, **fields)
    for number, block in enumerate(blocks, 1):
        at_ns, data = block if isinstance(block, tuple) else (number * MS, block)
        exchange.add(at_ns, data)
    return exchange


def decoded(*blocks: Block, marks: EndMarks | None = None, **fields: Any) -> RequestRecord:
    """The record of an exchange of these blocks."""
    record = RequestRecord(index=0, phase=Phase.MEASURE, scheduled_ns=0, max_tokens=32)
    decode(exchange_of(*blocks, **fields), record, marks=marks or EndMarks())
    return record


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    """The stream in pieces, cut at these places (modulo its length)."""
    edges = [0, *sorted(place % (len(stream) + 1) for place in places), len(stream)]
    return [stream[start:end] for start, end in pairwise(edges)]


def in_chunks(*blocks: bytes) -> bytes:
    """The blocks as a body in HTTP chunks."""
    return b"".join(b"%x\r\n%s\r\n" % (len(block), block) for block in blocks if block) + b"0\r\n\r\n"
