"""Exchanges that wait for the end of their cell: given back as they were, in memory and on disk."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.load.spool import Spool
from loadgen.transport.exchange import Exchange

DATA = st.binary(max_size=200)


def kept(spool: Spool) -> list[tuple[int, bytes, bytes]]:
    return [(item.index, bytes(item.body), bytes(item.reads)) for item in spool]


@given(st.lists(st.tuples(st.integers(0, 50), DATA, DATA), max_size=12), st.sampled_from([1, 1 << 20]))
def test_each_comes_back_as_it_was_by_its_index(
    items: list[tuple[int, bytes, bytes]], budget_bytes: int
) -> None:
    spool = Spool(budget_bytes)
    exchanges = []
    for index, body, reads in items:
        exchanges.append(Exchange(index=index, body=bytearray(body), reads=bytearray(reads)))
        spool.add(exchanges[-1])
    assert not any(exchange.body or exchange.reads for exchange in exchanges)
    assert len(spool) == len(items)
    assert kept(spool) == sorted(items, key=lambda item: item[0])
    assert kept(spool) == sorted(items, key=lambda item: item[0])  # and once more
    assert not any(exchange.body or exchange.reads for exchange in exchanges)
    spool.close()


def test_one_can_be_added_between_two_looks() -> None:
    spool = Spool()
    spool.add(Exchange(index=1, body=bytearray(b"one")))
    assert kept(spool) == [(1, b"one", b"")]
    spool.add(Exchange(index=0, body=bytearray(b"zero")))
    assert kept(spool) == [(0, b"zero", b""), (1, b"one", b"")]
    spool.close()


@pytest.mark.parametrize(("budget_bytes", "files"), [(1 << 30, 0), (1 << 16, 1)])
def test_above_its_budget_it_lies_on_disk(budget_bytes: int, files: int) -> None:
    def open_files() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    before = open_files()
    spool = Spool(budget_bytes)
    bodies = [os.urandom(50_000) for _ in range(4)]
    for index, body in enumerate(bodies):
        spool.add(Exchange(index=index, body=bytearray(body)))
    assert open_files() - before == files
    assert [body for _, body, _ in kept(spool)] == bodies
    spool.close()
    assert (open_files(), len(spool)) == (before, 0)
