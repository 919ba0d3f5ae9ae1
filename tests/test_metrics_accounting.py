"""What must add up in a cell, and what is said when it does not."""

from typing import Any

import pyarrow as pa
import pytest
from metrics_fixtures import at, golden, made, table

from loadgen.metrics import accounting_faults
from loadgen.records import Outcome, RequestRecord


def faults(*records: RequestRecord, sent: int | None = None) -> list[str]:
    return accounting_faults(table(records), len(records) if sent is None else sent)


def test_sound_rows_have_no_fault() -> None:
    every = [made(0, {}, outcome=outcome, index=n) for n, outcome in enumerate(Outcome)]
    assert faults(golden(index=99), *every) == []
    assert faults() == []


def test_a_server_may_count_tokens_that_it_did_not_show() -> None:
    assert faults(made(0, {1: 4, 2: 8}, output_tokens=9)) == []


def test_what_is_unknown_is_no_fault() -> None:
    bare = {"chunk_tokens": None, "output_tokens": None, "done_ns": None, "outcome": Outcome.CLIENT_LOST}
    assert faults(made(0, {1: 4}, **bare)) == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"output_tokens": 7}, "1 requests got more tokens in chunks than in all"),
        ({"done_ns": at(1.25)}, "1 requests end before they begin"),
        ({"sent_ns": at(1.05)}, "1 requests end before they begin"),
    ],
)
def test_figures_that_contradict_each_other(changes: dict[str, Any], said: str) -> None:
    assert faults(golden(**changes)) == [said]


def test_chunks_that_arrive_backwards() -> None:
    assert faults(made(0, {1.2: 4, 1.1: 8}, last_token_ns=at(1.2), done_ns=at(1.3))) == [
        "chunks arrive before the ones that they follow"
    ]


def test_a_request_without_an_outcome_or_a_row() -> None:
    rows = table([golden()])
    place = rows.schema.get_field_index("outcome")
    lost = rows.set_column(place, "outcome", pa.array(["what"], pa.string()))
    assert accounting_faults(lost, 1) == ["1 requests sent, 1 rows, 0 of them with an outcome"]
    assert faults(golden(), sent=2) == ["2 requests sent, 1 rows, 1 of them with an outcome"]


def test_two_rows_of_one_request() -> None:
    assert faults(golden(index=1), golden(index=1)) == ["1 requests have the number of another"]
