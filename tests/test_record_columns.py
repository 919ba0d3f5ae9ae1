"""Records as Arrow columns: batch by batch, with no record kept."""

import gc
import weakref
from collections.abc import Iterator

import pyarrow as pa
import pytest

from loadgen.records import ChunkKind, Outcome, Phase, RequestRecord
from loadgen.tables import REQUESTS, RequestContext, request_batches, requests_table

CONTEXT = RequestContext("c", 0, "p", "s", "w", 1.0)


def record(index: int, chunks: int, **fields: object) -> RequestRecord:
    made = RequestRecord(index, Phase.MEASURE, 0, 8, sent_ns=1000, outcome=Outcome.OK)
    made.chunk_ns = [2000 + n for n in range(chunks)]
    made.chunk_kind = [ChunkKind.ANSWER] * chunks
    for name, value in fields.items():
        setattr(made, name, value)
    return made


def test_lists_keep_their_rows_and_nulls() -> None:
    records = [
        record(0, 2, chunk_tokens=[3, 7], read_lag_us=[5]),
        record(1, 0, read_lag_us=[]),
        record(2, 3, chunk_kind=[ChunkKind.REASONING, ChunkKind.BOTH, ChunkKind.ANSWER]),
    ]
    table = requests_table(records, CONTEXT)
    table.validate(full=True)
    assert table["chunk_ns"].to_pylist() == [[1000, 1001], [], [1000, 1001, 1002]]
    assert table["chunk_tokens"].to_pylist() == [[3, 7], None, None]
    assert table["read_lag_us"].to_pylist() == [[5], [], None]
    assert table["chunk_kind"].to_pylist() == [["answer", "answer"], [], ["reasoning", "both", "answer"]]
    assert table["request_index"].to_pylist() == [0, 1, 2]


def test_a_batch_ends_when_it_holds_enough_and_nothing_is_lost() -> None:
    batches = list(request_batches((record(n, 3) for n in range(10)), CONTEXT, max_entries=6))
    assert [batch.num_rows for batch in batches] == [2] * 5
    assert pa.Table.from_batches(batches)["request_index"].to_pylist() == list(range(10))
    assert all(batch.schema.equals(REQUESTS.schema, check_metadata=True) for batch in batches)


def test_records_are_read_one_by_one_and_none_is_kept() -> None:
    # slots without __weakref__: the list inside stands for its record
    class Chunks(list[int]):
        pass

    alive: list[weakref.ref[Chunks]] = []

    def records() -> Iterator[RequestRecord]:
        for n in range(5):
            gc.collect()
            assert sum(ref() is not None for ref in alive) <= 1
            made = record(n, 0)
            made.chunk_ns = Chunks([2000])
            made.chunk_kind = [ChunkKind.ANSWER]
            alive.append(weakref.ref(made.chunk_ns))
            yield made

    assert sum(batch.num_rows for batch in request_batches(records(), CONTEXT)) == 5


def test_a_chunk_takes_17_bytes_with_its_lag() -> None:
    chunks = 100_000
    (batch,) = request_batches(
        [record(0, chunks, chunk_tokens=list(range(chunks)), read_lag_us=[20] * chunks)], CONTEXT
    )
    lists = ("chunk_ns", "chunk_tokens", "chunk_kind", "read_lag_us")
    assert sum(batch[name].nbytes for name in lists) / chunks == pytest.approx(8 + 4 + 1 + 4, abs=0.01)


def test_kinds_are_a_byte_each_and_words_to_the_reader() -> None:
    column = requests_table([record(0, 2)], CONTEXT)["chunk_kind"]
    assert column.type.value_type.index_type == pa.int8()
    assert column.to_pylist() == [["answer", "answer"]]
