"""A request's phase by its time of sending; the words of the vocabulary."""

import pytest

from loadgen.records import Outcome, Phase, phase_of
from loadgen.tables import REQUESTS


@pytest.mark.parametrize(
    ("sent_ns", "phase"),
    [
        (None, Phase.WARMUP),
        (9, Phase.WARMUP),
        (10, Phase.MEASURE),
        (15, Phase.MEASURE),
        (20, Phase.MEASURE),
        (21, Phase.DRAIN),
    ],
)
def test_the_phase_is_where_the_request_was_sent(sent_ns: int | None, phase: Phase) -> None:
    assert phase_of(sent_ns, 10, 20) is phase


def test_the_data_dictionary_lists_every_outcome_and_phase() -> None:
    meanings = {column.name: column.meaning for column in REQUESTS.columns}
    assert [word.strip() for word in meanings["outcome"].split(":")[1].strip(".").split(",")] == list(Outcome)
    assert all(phase in meanings["phase"] for phase in Phase)
