"""Exchanges that are over, kept small until the cell's end: bytes and stamps are compressed and, above a budget, on disk."""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from loadgen.transport.exchange import Exchange

_MEMORY_BUDGET_BYTES = 256 * 2**20
_CODEC = "lz4"


@dataclass(frozen=True, slots=True)
class _Kept:
    exchange: Exchange
    offset: int
    packed: tuple[int, int]
    whole: tuple[int, int]


class Spool:
    """Takes exchanges in, and gives them back whole, one at a time, by their index."""

    def __init__(self, budget_bytes: int = _MEMORY_BUDGET_BYTES) -> None:
        self._file = tempfile.SpooledTemporaryFile(max_size=budget_bytes)  # noqa: SIM115 - closed by `close`
        self._kept: list[_Kept] = []
        self._size = 0

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, exchange: Exchange) -> None:
        """Takes the exchange's bytes and stamps out of it."""
        whole = (len(exchange.body), len(exchange.reads))
        body, reads = _pack(exchange.body), _pack(exchange.reads)
        self._file.seek(self._size)
        self._file.write(body)
        self._file.write(reads)
        self._kept.append(_Kept(exchange, self._size, (len(body), len(reads)), whole))
        self._size += len(body) + len(reads)
        exchange.body = bytearray()
        exchange.reads = bytearray()

    def __iter__(self) -> Iterator[Exchange]:
        """Each exchange as it was; it is emptied again before the next."""
        for kept in sorted(self._kept, key=lambda kept: kept.exchange.index):
            self._file.seek(kept.offset)
            exchange = kept.exchange
            exchange.body = _unpack(self._file.read(kept.packed[0]), kept.whole[0])
            exchange.reads = _unpack(self._file.read(kept.packed[1]), kept.whole[1])
            yield exchange
            exchange.body = bytearray()
            exchange.reads = bytearray()

    def close(self) -> None:
        """Frees what is kept."""
        self._file.close()
        self._kept.clear()


def _pack(data: bytearray) -> bytes:
    packed: bytes = pa.compress(data, codec=_CODEC, asbytes=True) if data else b""
    return packed


def _unpack(data: bytes, size: int) -> bytearray:
    return bytearray(pa.decompress(data, decompressed_size=size, codec=_CODEC, asbytes=True) if size else b"")
