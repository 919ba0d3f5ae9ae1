"""Our own client at each scenario of the fault server: the outcome is the table's, and what it counts is the server's truth."""

import json
from typing import Any

import pytest
from fault_fixtures import connect, fault_server, request, truth
from sim_fixtures import SimServer

from loadgen.clock import monotonic_ns
from loadgen.decode.record import EndMarks, decode
from loadgen.records import Outcome, Phase, RequestRecord, TokenSource
from loadgen.sim.faults.scenario import Scenario
from loadgen.sim.faults.table import SCENARIOS
from loadgen.transport.exchange import Exchange, TimeLimits
from loadgen.transport.pick import exchange_once, make_transport

MS = 1_000_000
LIMITS = TimeLimits(first_byte_ns=800 * MS, idle_ns=800 * MS, total_ns=2000 * MS)
OF_REQUESTS = [scenario for scenario in SCENARIOS.values() if not scenario.is_server_wide]
KINDS = ("raw", "aiohttp")
SETTINGS = {
    "flood": ":pause_s=0.005",
    "early_role": ":wait_s=0.3",
    "endless_head": ":pause_s=0.05",
    "bimodal": ":every=1:factor=5",
    "huge_event": ":size=5000000",
}
# what a scenario does to the text is in its own test
OTHER_TEXT = {
    "big_event", "huge_event", "zero_token_chunk", "reasoning_only", "lone_surrogate", "combining",
}  # fmt: skip
# aiohttp does not tell its reader of a chunk size that is no number, nor of the end after it
LIMIT_OF_AIOHTTP = {"bad_chunk_size": Outcome.IDLE_TIMEOUT}


@pytest.fixture(scope="module")
def server():
    with fault_server() as running:
        yield running


def parts_of(scenario: str, **options: Any) -> list[bytes]:
    """The body of a request that chooses a scenario by its model."""
    body = json.loads(request(model=f"fault/{scenario}", **options).partition(b"\r\n\r\n")[2])
    return [json.dumps(body).encode()]


def record_of(exchange: Exchange, *, needs_done: bool = False) -> RequestRecord:
    record = RequestRecord(0, Phase.MEASURE, 0, 40)
    decode(exchange, record, None, EndMarks(finish_reason=True, done=needs_done))
    return record


def ask(server: SimServer, scenario: str, kind: str, **options: Any) -> RequestRecord:
    settings = SETTINGS.get(scenario, "") + ":first_s=0.02:gap_s=0.005"
    url = f"http://127.0.0.1:{server.port}"
    return record_of(exchange_once(url, parts_of(scenario + settings, **options), LIMITS, kind=kind))


@pytest.fixture(scope="module")
def whole_text(server: SimServer) -> str:
    record = ask(server, "healthy", "raw")
    return record.reasoning + record.content


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("scenario", OF_REQUESTS, ids=lambda scenario: scenario.name)
def test_the_outcome_is_the_tables(server: SimServer, whole_text: str, scenario: Scenario, kind: str):
    record = ask(server, scenario.name, kind)
    entry = truth(server)
    right = LIMIT_OF_AIOHTTP.get(scenario.name, scenario.outcome) if kind == "aiohttp" else scenario.outcome
    assert record.outcome is right, record.error
    assert entry["scenario"].startswith(scenario.name)
    if record.outcome is Outcome.OK:
        assert record.output_tokens == (None if scenario.name == "no_usage" else entry["tokens"])
        if scenario.name not in OTHER_TEXT:
            assert record.reasoning + record.content == whole_text
    if not entry["tokens"]:
        assert record.first_token_ns is None


def ask_in_turn(server: SimServer, kind: str, *scenarios: str) -> list[RequestRecord]:
    """Requests one after another through one pool of connections."""
    left = [parts_of(scenario + ":first_s=0.01:gap_s=0.002") for scenario in scenarios]
    ended: list[Exchange] = []

    def send_next() -> None:
        transport.send(Exchange(), left.pop(0)) if left else transport.stop()

    def on_end(exchange: Exchange) -> None:
        ended.append(exchange)
        transport.at(monotonic_ns() + 100 * MS, send_next)

    transport = make_transport(kind, [f"http://127.0.0.1:{server.port}"], LIMITS, on_end)
    try:
        transport.wake(send_next)
        transport.run()
    finally:
        transport.close()
    return [record_of(exchange) for exchange in ended]


@pytest.mark.parametrize("kind", KINDS)
def test_a_connection_that_dies_under_the_next_request_costs_a_resend(server: SimServer, kind: str):
    records = ask_in_turn(server, kind, "idle_race", "healthy")
    assert [record.outcome for record in records] == [Outcome.OK, Outcome.OK]
    assert [record.resends for record in records] == [0, 1]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "first",
    [
        "idle_close:after_s=0.02",
        "connection_close",
        "http10",
        "done_but_open",
        "done_then_closed",
        "error_mid",
    ],
)
def test_the_next_request_is_well_after_a_connection_that_cannot_be_used_again(
    server: SimServer, kind: str, first: str
):
    _, second = ask_in_turn(server, kind, first, "healthy")
    assert (second.outcome, second.output_tokens, second.resends) == (Outcome.OK, 40, 0)


@pytest.mark.parametrize(
    ("scenario", "outcome"),
    [("no_done", Outcome.TRUNCATED_STREAM), ("healthy", Outcome.OK), ("done_but_open", Outcome.OK)],
)
def test_a_server_known_to_send_done_is_held_to_it(server: SimServer, scenario: str, outcome: Outcome):
    exchange = exchange_once(f"http://127.0.0.1:{server.port}", parts_of(scenario), LIMITS)
    assert record_of(exchange, needs_done=True).outcome is outcome


def test_counts_and_texts_as_the_page_says(server: SimServer):
    def ok(scenario: str, **options: Any) -> RequestRecord:
        record = ask(server, scenario, "raw", **options)
        assert record.outcome is Outcome.OK
        return record

    assert ok("healthy").chunk_tokens == list(range(4, 41, 4))
    assert ok("healthy").token_source is TokenSource.CONTINUOUS_USAGE
    assert ok("backlog:after=1:held_tokens=20:hold_s=0.05").chunk_tokens == [4, 24, 28, 32, 36, 40]
    ignored = ok("usage_ignored")
    assert (ignored.chunk_tokens, ignored.output_tokens, ignored.token_source) == (
        None,
        40,
        TokenSource.USAGE,
    )
    assert ok("no_usage").token_source is None
    recounted = ok("prompt_recounted:factor=3")
    assert recounted.prompt_tokens == 3 * truth(server)["prompt_tokens"]
    assert ok("zero_token_chunk").chunk_tokens == [n for n in range(4, 41, 4) for _ in "ab"]
    assert ok("lone_surrogate").reasoning.startswith("\U0001f600\ufffd")
    assert ok("ignore_eos_ignored", max_tokens=80, ignore_eos=True).output_tokens == 43
    thought = ok("reasoning_only", max_tokens=200)
    assert (thought.content, thought.finish_reason, thought.reasoning_tokens) == ("", "length", 200)
    assert thought.first_answer_ns is None


def test_a_role_is_no_token(server: SimServer):
    record = ask(server, "early_role", "raw")
    assert record.first_token_ns - record.first_chunk_ns > 250 * MS  # timers have a grain of 1 ms


def test_arrivals_are_not_before_the_sends(server: SimServer):
    record = ask(server, "healthy", "raw")
    sent_ns = [at_ns for at_ns, _, tokens in truth(server)["sends"] if tokens]
    for arrived, sent in zip(record.chunk_ns, sent_ns[: len(record.chunk_ns)], strict=True):
        assert arrived > sent - MS // 10  # the two clocks of a kernel stamp


def test_refused_connections_are_their_own_outcome():
    with fault_server("refuse:every_s=600:lasts_s=599.7") as server:
        deadline = monotonic_ns() + 5_000 * MS
        while (record := ask(server, "healthy", "raw")).outcome is Outcome.OK and monotonic_ns() < deadline:
            pass
        assert record.outcome is SCENARIOS["refuse"].outcome
        assert record.headers_ns is None


def test_connections_over_the_limit_are_resets():
    with fault_server("connection_limit:connections=1") as server, connect(server):
        assert ask(server, "healthy", "raw").outcome is SCENARIOS["connection_limit"].outcome


def test_a_frozen_server_breaks_no_stream():
    with fault_server("freeze:every_s=0.3:lasts_s=0.2") as server:
        records = [ask(server, "healthy", "raw") for _ in range(3)]
        assert {record.outcome for record in records} == {SCENARIOS["freeze"].outcome}
