"""Rows of `requests` as numpy columns: the only module of the arithmetic that knows how Arrow keeps them.

Ten million chunks never become Python objects. Unknown is NaN; differences of moments are taken in integers first,
so that no nanosecond is lost on a host that has been up for long.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from loadgen.metrics.statistics import Floats, Ints
from loadgen.records import ChunkKind

Bools = NDArray[np.bool_]
CHUNK_LISTS = ["chunk_ns", "chunk_tokens", "chunk_kind", "read_lag_us"]  # all that grows with the chunks


def floats(table: pa.Table, name: str) -> Floats:
    """A numeric column; NaN where unknown."""
    return _floats(table[name])


def span_ns(table: pa.Table, begin: str, end: str) -> Floats:
    """`end` - `begin` of each request; NaN where either did not happen."""
    return _floats(pc.subtract(table[end], table[begin]))


def where(table: pa.Table, **wanted: Iterable[str]) -> pa.Table:
    """The rows whose columns each have one of the wanted values."""
    masks = [
        pc.is_in(table[column], value_set=pa.array([str(value) for value in values], pa.string()))
        for column, values in wanted.items()
    ]
    return table.filter(reduce(pc.and_, masks))


def _floats(column: pa.ChunkedArray) -> Floats:
    values: Floats = column.cast(pa.float64(), safe=False).to_numpy()
    return values


@dataclass(frozen=True, slots=True)
class Chunks:
    """The chunks of some requests, one after the other.

    `lengths`: chunks of each request; `at_ns`: arrival since sending. `is_counted`: requests with a running token
    count on every chunk; `tokens`: what each chunk brought, 0 in requests that are not counted.
    """

    lengths: Ints
    at_ns: Ints
    is_counted: Bools
    tokens: Ints

    @property
    def starts(self) -> Ints:
        """Place of each request's first chunk."""
        return np.cumsum(self.lengths) - self.lengths

    @property
    def request(self) -> Ints:
        """For each chunk, the place of its request."""
        return np.repeat(np.arange(self.lengths.size, dtype=np.int32), self.lengths)

    def first_tokens(self) -> Floats:
        """Tokens of each request's first chunk; NaN where unknown."""
        found = np.full(self.lengths.size, np.nan)
        some = self.is_counted & (self.lengths > 0)
        found[some] = self.tokens[self.starts[some]]
        return found

    def gaps(self) -> Ints:
        """Times between neighbouring chunks of the same request, in ns."""
        return within(self.at_ns, self.lengths)


def chunks_of(table: pa.Table) -> Chunks:
    lengths = _lengths(table["chunk_ns"])
    counted_lengths = _lengths(table["chunk_tokens"])
    is_counted: Bools = table["chunk_tokens"].is_valid().to_numpy() & (lengths == counted_lengths)
    tokens = np.zeros(int(lengths.sum()), np.int32)
    counts = _flat(table["chunk_tokens"].filter(pa.array(is_counted)))
    tokens[np.repeat(is_counted, lengths)] = _increments(counts, lengths[is_counted])
    return Chunks(lengths, _flat(table["chunk_ns"]), is_counted, tokens)


def is_answer(table: pa.Table) -> Bools:
    """For each chunk, whether it has text of the answer; one that has reasoning too counts here."""
    kinds = pc.list_flatten(table["chunk_kind"]).combine_chunks()
    if not pa.types.is_dictionary(kinds.type):
        kinds = kinds.dictionary_encode()
    is_other = np.array([word != ChunkKind.REASONING for word in kinds.dictionary.to_pylist()], np.bool_)
    found: Bools = is_other[kinds.indices.to_numpy()]
    return found


def sums_by(place: Ints, values: Ints | Floats, size: int) -> Floats:
    """Sum of the values at each place from 0 to `size` - 1."""
    return np.bincount(place, weights=values, minlength=size).astype(np.float64, copy=False)


def within(values: Ints, lengths: Ints) -> Ints:
    """Differences of neighbours, without those that cross from one request to the next."""
    steps = np.diff(values)
    ends = np.cumsum(lengths[lengths > 0])[:-1] - 1
    return np.delete(steps, ends) if ends.size else steps


def _increments(counts: Ints, lengths: Ints) -> Ints:
    steps = np.diff(counts, prepend=counts.dtype.type(0))
    starts = (np.cumsum(lengths) - lengths)[lengths > 0]
    steps[starts] = counts[starts]
    return steps


def _lengths(column: pa.ChunkedArray) -> Ints:
    lengths: Ints = pc.fill_null(pc.list_value_length(column), 0).to_numpy().astype(np.int64)
    return lengths


def _flat(column: pa.ChunkedArray) -> Ints:
    values: Ints = pc.list_flatten(column).to_numpy()
    return values
