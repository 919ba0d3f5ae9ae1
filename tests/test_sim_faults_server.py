"""How the fault server is asked: options, turns, choices of a request; faults of the whole server; connections and ends."""

import socket
import time
from pathlib import Path

import pytest
from fault_fixtures import CHAT, FAST, connect, fault_server, listen, play, request, talk, truth
from hypothesis import given
from hypothesis import strategies as st
from sim_fixtures import SimServer, run

from loadgen.records import Outcome
from loadgen.sim.faults import table
from loadgen.sim.faults.scenario import Pace, choose, choose_all

DOCS = Path(__file__).resolve().parents[1] / "docs"


def test_a_choice_has_its_defaults_and_its_settings():
    choice = choose("stall", table.SCENARIOS)
    assert (choice.scenario.name, choice.options, choice.pace) == ("stall", {"after": 3}, Pace())
    choice = choose("stall:after=7:gap_s=0.5:tokens=2", table.SCENARIOS)
    assert (choice.options, choice.pace) == ({"after": 7}, Pace(gap_s=0.5, tokens=2))


def test_a_list_is_gone_through_in_turn():
    names = [choice.scenario.name for choice in choose_all("healthy*3, stall:after=1", table.SCENARIOS)]
    assert names == ["healthy", "healthy", "healthy", "stall"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("stal", "no scenario 'stal'"),
        ("", "no scenario ''"),
        ("stall:before=3", "no parameter 'before'"),
        ("stall:after", "after must be a whole number from 0, got ''"),
        ("stall:after=-1", "after must be a whole number from 0"),
        ("stall:gap_s=nan", "gap_s must be a number from 0"),
        ("stall:tokens=0", "tokens must be a whole number from 1"),
        ("error_mid:shape=round", "shape must be one of its words"),
        ("healthy*0", "count after *"),
        ("healthy*x", "count after *"),
    ],
)
def test_what_is_wrong_is_said(text: str, words: str):
    with pytest.raises(ValueError, match=r"scenario|count") as raised:
        choose_all(text, table.SCENARIOS)
    assert words in str(raised.value)


@given(st.text())
def test_any_text_is_read_or_refused(text: str):
    assert "\n" not in refusal(text)


def refusal(text: str) -> str:
    try:
        assert choose_all(text, table.SCENARIOS)
    except ValueError as error:
        return str(error)
    return ""


def test_the_page_is_fresh_and_every_scenario_says_what_it_is():
    assert (DOCS / "faults.md").read_text(encoding="utf-8") == table.markdown()
    for scenario in table.SCENARIOS.values():
        assert scenario.does.endswith(".")
        assert scenario.right.endswith(".")
        assert f"`{scenario.name}`" in table.markdown()


def test_all_outcomes_that_a_server_can_cause_are_played():
    of_the_client = {Outcome.CLIENT_LOST, Outcome.CUT}
    assert {scenario.outcome for scenario in table.SCENARIOS.values()} == set(Outcome) - of_the_client


def test_the_list_on_the_command_line():
    ended = run("--list-scenarios")
    assert ended.returncode == 0
    assert "stall:after=3\n    plays  `after` text events, then silence" in ended.stdout
    assert "right  idle_timeout: " in ended.stdout


def test_an_unknown_scenario_ends_the_start():
    ended = run("--scenario", "healthy,stal")
    assert ended.returncode == 2
    assert "--list-scenarios" in ended.stderr.splitlines()[-1]


@pytest.fixture(scope="module")
def server():
    with fault_server() as running:
        yield running


def test_the_log_can_be_short(server: SimServer):
    for scenario in ("healthy", "empty_body"):
        play(server, scenario)
    shown = [server.get_json(f"/__faults/log?last={last}")["requests"] for last in (0, 1, 2)]
    assert [len(entries) for entries in shown] == [0, 1, 2]
    assert shown[1][0]["scenario"] == f"empty_body{FAST}"
    assert server.call("GET", "/__faults/log?last=x")[0] == 400


def test_a_request_chooses_by_model(server: SimServer):
    with connect(server) as sock:
        heard = talk(sock, request(model="fault/truncate:after=1"))
    assert heard.end == "fin"
    assert truth(server)["scenario"] == "truncate:after=1"
    assert b'"model":"fault/truncate:after=1"' in heard.body


@pytest.mark.parametrize("scenario", ["stal", "stall:x=1", "freeze"])
def test_a_wrong_choice_is_a_bad_request(server: SimServer, scenario: str):
    with connect(server) as sock:
        assert talk(sock, request(f"{CHAT}?scenario={scenario}")).status_line == b"HTTP/1.1 400 Bad Request"


@pytest.mark.parametrize("max_tokens", [1, 40])
@pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/generate"])
def test_no_scenario_breaks_the_server(path: str, max_tokens: int):
    with fault_server() as server:
        names = [name for name, scenario in table.SCENARIOS.items() if not scenario.is_server_wide]
        socks = [connect(server) for _ in names]
        for sock, name in zip(socks, names, strict=True):
            sock.sendall(request(f"{path}?scenario={name}{FAST}", max_tokens=max_tokens))
        time.sleep(1)
        for sock in socks:
            sock.close()
        assert play(server, "healthy", quiet_s=5, path=path).body.endswith(b"0\r\n\r\n")
        assert "Traceback" not in server.log
        played = server.get_json("/__faults/log")["requests"]
        names_played = [entry["scenario"].partition(":")[0] for entry in played]
        assert sorted(names_played) == sorted([*names, "healthy"])
        assert all(entry["ended"] for entry in played)


def test_requests_take_turns():
    with fault_server("healthy*2,truncate:after=1") as server:
        ends = []
        for _ in range(6):
            with connect(server) as sock:
                ends.append(talk(sock, request()).end)
    assert ends == ["open", "open", "fin"] * 2


def test_a_connection_serves_one_scenario_after_another(server: SimServer):
    with connect(server) as sock:
        for scenario in ("trailers", "content_length", "rate_limit", "healthy"):
            heard = talk(sock, request(f"{CHAT}?scenario={scenario}{FAST}"))
            assert heard.end == "open"
            assert heard.reads


def test_an_idle_connection_is_closed(server: SimServer):
    with connect(server) as sock:
        start = time.monotonic()
        heard = talk(sock, request(f"{CHAT}?scenario=idle_close:after_s=0.05{FAST}"), quiet_s=2)
        assert time.monotonic() - start > 0.045
        assert heard.end == "fin"
        assert heard.body.endswith(b"0\r\n\r\n")


def test_a_connection_that_is_to_be_closed_serves_a_request_that_comes_before(server: SimServer):
    with connect(server) as sock:
        first = talk(sock, request(f"{CHAT}?scenario=idle_close:after_s=5{FAST}"))
        second = talk(sock, request(f"{CHAT}?scenario=healthy{FAST}"))
        assert (first.end, second.end) == ("open", "open")
        assert second.body.endswith(b"0\r\n\r\n")


def test_the_next_request_meets_a_reset(server: SimServer):
    with connect(server) as sock:
        first = talk(sock, request(f"{CHAT}?scenario=idle_race{FAST}"))
        second = talk(sock, request())
    assert (first.end, first.body[-5:]) == ("open", b"0\r\n\r\n")
    assert (second.reads, second.end) == ([], "rst")


def test_bimodal_durations(server: SimServer):
    durations = []
    for _ in range(4):
        play(server, "bimodal:every=4:factor=20")
        entry = truth(server)
        durations.append((entry["number"] % 4 == 0, entry["last_token_ns"] - entry["received_ns"]))
    slow = [ns for is_slow, ns in durations if is_slow]
    assert len(slow) == 1
    assert slow[0] > 3 * max(ns for is_slow, ns in durations if not is_slow)


def test_a_slow_beginning():
    with fault_server(f"slow_start:lasts_s=0.3:factor=30{FAST}") as server:
        durations = []
        for wait_s in (0.0, 0.4):
            time.sleep(wait_s)
            with connect(server) as sock:
                talk(sock, request(max_tokens=8), quiet_s=0.5)
            entry = truth(server)
            durations.append(entry["first_token_ns"] - entry["received_ns"])
    assert durations[0] > 140e6 > durations[1]


def test_a_freeze_stops_everything_and_is_logged():
    with fault_server("freeze:every_s=0.6:lasts_s=0.4") as server:
        waits = []
        deadline = time.monotonic() + 1.5
        while time.monotonic() < deadline:
            start = time.monotonic()
            server.call("GET", "/ping")
            waits.append(time.monotonic() - start)
        assert max(waits) >= 0.25
        frozen = server.get_json("/__faults/log")["server"]
        assert len(frozen) >= 2
        assert all(350e6 < fault["to_ns"] - fault["from_ns"] < 600e6 for fault in frozen)
        with connect(server) as sock:
            assert talk(sock, request(), quiet_s=1).body.endswith(b"0\r\n\r\n")


def test_the_door_is_shut_for_a_while():
    with fault_server("refuse:every_s=1:lasts_s=0.5") as server, connect(server) as kept:
        seen = [can_connect(server)]
        deadline = time.monotonic() + 10
        while (len(seen) < 3 or not seen[-1]) and time.monotonic() < deadline:
            if (now := can_connect(server)) != seen[-1]:
                seen.append(now)
            time.sleep(0.02)
        assert len(seen) >= 3
        assert talk(kept, request()).status_line == b"HTTP/1.1 200 OK"


def can_connect(server: SimServer) -> bool:
    try:
        socket.create_connection(("127.0.0.1", server.port), timeout=5).close()
    except ConnectionRefusedError:
        return False
    return True


def test_connections_over_the_limit_are_reset():
    with fault_server("connection_limit:connections=2") as server:
        inside = [connect(server) for _ in range(2)]
        assert [talk(sock, request()).end for sock in inside] == ["open", "open"]
        with connect(server) as third:
            assert listen(third).end == "rst"
        inside[0].close()
        time.sleep(0.1)
        with connect(server) as third:
            assert talk(third, request()).end == "open"
        inside[1].close()


def test_a_server_full_of_stalled_streams_ends_when_told():
    with fault_server("stall") as server, connect(server) as sock:
        assert talk(sock, request()).end == "open"
        start = time.monotonic()
        assert server.terminate() == 0
        assert time.monotonic() - start < 5
        assert listen(sock).end in ("fin", "rst")


def test_a_fault_server_asks_for_its_key():
    with fault_server("stall", "--api-key", "secret") as server, connect(server) as sock:
        assert talk(sock, request()).status_line == b"HTTP/1.1 401 Unauthorized"
        assert talk(sock, request(headers="Authorization: Bearer secret\r\n")).end == "open"
        assert truth_with_key(server)[-1]["scenario"] == "stall"


def truth_with_key(server: SimServer) -> list[dict[str, object]]:
    import json

    return json.loads(server.call("GET", "/__faults/log", key="secret")[1])["requests"]
