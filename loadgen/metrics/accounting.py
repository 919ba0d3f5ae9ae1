"""The sums that must come out: every request has one outcome, and tokens and moments are in order.

What is found wrong here is a fault of the harness or a server that contradicts itself; either way the cell says so.
"""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from loadgen.metrics.columns import chunks_of, floats, span_ns, sums_by, where, within
from loadgen.records import Outcome

_ORDER = ("sent_ns", "first_token_ns", "last_token_ns", "done_ns")


def accounting_faults(requests: pa.Table, sent: int) -> list[str]:
    """What does not add up in the rows of a cell whose `sent` column is `sent`; empty if everything does."""
    known = where(requests, outcome=Outcome).num_rows
    distinct = pc.count_distinct(requests["request_index"]).as_py()
    faults = []
    if not sent == requests.num_rows == known:
        faults.append(f"{sent} requests sent, {requests.num_rows} rows, {known} of them with an outcome")
    if distinct != requests.num_rows:
        faults.append(f"{requests.num_rows - distinct} requests have the number of another")
    return faults + _moments(requests) + _tokens(where(requests, outcome=(Outcome.OK,)))


def _moments(requests: pa.Table) -> list[str]:
    backwards = np.zeros(requests.num_rows, np.bool_)
    for earlier, later in pairwise(_ORDER):
        backwards |= span_ns(requests, earlier, later) < 0
    chunks = chunks_of(requests)
    if (within(chunks.at_ns, chunks.lengths) < 0).any():
        return ["chunks arrive before the ones that they follow"]
    return [f"{backwards.sum()} requests end before they begin"] if backwards.any() else []


def _tokens(ok: pa.Table) -> list[str]:
    """A server may count more in total than it showed (an end mark has no text), never less."""
    chunks = chunks_of(ok)
    shown = sums_by(chunks.request, chunks.tokens, ok.num_rows)
    total = floats(ok, "output_tokens")
    more = int((shown > total).sum())
    return [f"{more} requests got more tokens in chunks than in all"] if more else []
