"""Each scenario of the fault server plays what its words say: bytes, cuts, pauses and ends, seen on a bare socket."""

import json
import zlib
from typing import Any

import pytest
from fault_fixtures import CHAT, Heard, events_of, fault_server, play, truth
from sim_fixtures import SimServer

WHOLE = b"\r\n0\r\n\r\n"


@pytest.fixture(scope="module")
def server():
    with fault_server() as running:
        yield running


def texts(events: list[Any]) -> list[str]:
    deltas = [e["choices"][0]["delta"] for e in events if e != "[DONE]" and e.get("choices")]
    return [text for d in deltas if (text := (d.get("reasoning_content") or d.get("content")))]


def usages(events: list[Any]) -> list[int]:
    return [e["usage"]["completion_tokens"] for e in events if e != "[DONE]" and e.get("usage")]


def reasons(events: list[Any]) -> list[str]:
    choices = [e["choices"][0] for e in events if e != "[DONE]" and e.get("choices")]
    return [c["finish_reason"] for c in choices if c.get("finish_reason")]


@pytest.fixture(scope="module")
def healthy(server: SimServer) -> Heard:
    return play(server, "healthy")


def test_a_healthy_stream_is_whole_and_exact(server: SimServer, healthy: Heard):
    events = healthy.events
    assert healthy.status_line == b"HTTP/1.1 200 OK"
    assert healthy.end == "open"
    assert healthy.body.endswith(WHOLE)
    assert events[0]["choices"][0]["delta"]["role"] == "assistant"
    assert usages(events) == [4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 40]
    assert reasons(events) == ["length"]
    assert events[-1] == "[DONE]"
    assert len(texts(events)) == 10
    entry = truth(server)
    assert entry["ended"] == "whole"
    assert entry["tokens"] == entry["max_tokens"] == 40
    assert entry["prompt_tokens"] == events[-2]["usage"]["prompt_tokens"]
    assert entry["bytes"] == len(healthy.head) + 4 + len(healthy.body)


@pytest.mark.parametrize(
    ("scenario", "end", "shown", "tail", "ended"),
    [
        ("stall:after=2", "open", 2, b"\n\n\r\n", "open and silent"),
        ("stall_after_headers", "open", 0, b"", "open and silent"),
        ("reset:after=2", "rst", 2, b"\n\n\r\n", "reset by the server"),
        ("truncate:after=2", "fin", 2, b"\n\n\r\n", "closed by the server"),
        ("truncate_whole_body:after=2", "open", 2, WHOLE, "whole"),
        ("truncate_unframed:after=2", "fin", 2, b"\n\n", "closed by the server"),
        ("truncate_length:after=2", "fin", 2, b"\n\n", "closed by the server"),
        ("done_but_open", "open", 10, b"e\r\ndata: [DONE]\n\n\r\n", "open and silent"),
        ("done_then_closed", "fin", 10, b"e\r\ndata: [DONE]\n\n\r\n", "closed by the server"),
    ],
)
def test_streams_end_as_told(server: SimServer, scenario: str, end: str, shown: int, tail: bytes, ended: str):
    heard = play(server, scenario)
    assert heard.end == end
    assert heard.body.endswith(tail)
    assert heard.body.count(b'"reasoning_content":"') == shown
    assert (b"[DONE]" in heard.body) == (shown == 10)
    assert (b'"finish_reason":"' in heard.body) == (shown == 10)
    entry = truth(server)
    assert entry["ended"] == ended
    assert entry["tokens"] == 4 * shown


def test_a_reset_before_headers_answers_nothing(server: SimServer):
    heard = play(server, "reset_before_headers")
    assert (heard.reads, heard.end) == ([], "rst")


def test_a_cut_chunk_promises_more_than_it_brings(server: SimServer):
    heard = play(server, "cut_chunk:after=1")
    assert heard.end == "fin"
    *_, size, half = heard.body.split(b"\r\n")
    assert 0 < len(half) < int(size, 16)
    assert half.startswith(b"data: {")


def test_a_length_is_not_reached(server: SimServer):
    heard = play(server, "truncate_length")
    length = int(heard.head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
    assert 0 < len(heard.body) < length


def test_end_marks_are_left_out_one_by_one(server: SimServer):
    no_done = play(server, "no_done")
    assert no_done.body.endswith(WHOLE)
    assert b"[DONE]" not in no_done.body
    assert reasons(no_done.events) == ["length"]
    no_finish = play(server, "no_finish").events
    assert (reasons(no_finish), no_finish[-1], usages(no_finish)[-1]) == ([], "[DONE]", 40)


def test_streams_without_tokens(server: SimServer):
    events = play(server, "empty_stream").events
    assert (texts(events), len(events), events[-1]) == ([], 2, "[DONE]")
    assert truth(server)["tokens"] == 0
    assert play(server, "empty_body").body == b"0\r\n\r\n"


def test_an_abort_says_so(server: SimServer):
    events = play(server, "abort:after=2").events
    assert (reasons(events), len(texts(events)), events[-1]) == (["abort"], 2, "[DONE]")


@pytest.mark.parametrize(
    ("scenario", "shown", "error"),
    [
        ("error_first", 0, {"error": {"code": 500, "type": "InternalServerError"}}),
        ("error_mid:after=2:code=400", 2, {"error": {"code": 400, "type": "BadRequestError"}}),
        ("error_mid:after=1:shape=bare", 1, {"code": 500, "object": "error"}),
        ("error_first:shape=text", 0, {"error": "CUDA out of memory."}),
        ("reject_in_stream", 0, {"error": {"code": 503, "message": "The request queue is full."}}),
        ("reject_in_stream:code=429", 0, {"error": {"code": 429}}),
    ],
)
def test_errors_inside_a_200(server: SimServer, scenario: str, shown: int, error: dict[str, Any]):
    heard = play(server, scenario)
    *_, told, done = heard.events
    assert (heard.status_line, done) == (b"HTTP/1.1 200 OK", "[DONE]")
    assert len(texts(heard.events[:-2])) == shown
    for key, value in error.items():
        assert told[key] == value if not isinstance(value, dict) else told[key].items() >= value.items()


def test_refusals_by_status(server: SimServer):
    for scenario, code in (("rate_limit:retry_after_s=7", 429), ("rate_limit:code=503:retry_after_s=7", 503)):
        heard = play(server, scenario)
        assert heard.status_line.startswith(b"HTTP/1.1 %d " % code)
        assert b"\r\nretry-after: 7\r\n" in heard.head
        assert json.loads(heard.body)["code"] == code
    heard = play(server, "rate_limit_as_events")
    assert heard.status_line == b"HTTP/1.1 503 Service Unavailable"
    assert heard.events[0]["error"]["code"] == 503
    assert play(server, "http_error:code=502").status_line == b"HTTP/1.1 502 Bad Gateway"
    redirect = play(server, "redirect")
    assert redirect.status_line == b"HTTP/1.1 307 Temporary Redirect"
    assert b"\r\nlocation: http://127.0.0.1:9/" in redirect.head


def test_bodies_that_are_no_event_stream(server: SimServer):
    assert b"\r\ncontent-type: text/html\r\n" in (page := play(server, "html_page")).head
    assert page.body.startswith(b"<!doctype html>")
    whole = json.loads(play(server, "not_streamed").body)
    assert whole["usage"]["completion_tokens"] == 40
    assert whole["choices"][0]["message"]["content"]
    other = play(server, "wrong_content_type:kind=text/plain")
    assert b"\r\ncontent-type: text/plain\r\n" in other.head
    assert other.events[-1] == "[DONE]"


def test_garbage(server: SimServer):
    assert b"data:" not in play(server, "not_events").body
    broken = play(server, "broken_json:after=1").chunks
    with pytest.raises(ValueError):
        json.loads(broken[2].removeprefix(b"data: "))
    assert broken[-2] == b"data: [DONE]\n\n"
    assert [len(chunk) for chunk in play(server, "binary:size=100").chunks] == [100, 0]
    with pytest.raises(UnicodeDecodeError):
        b"".join(play(server, "invalid_utf8").chunks).decode()
    assert play(server, "bad_chunk_size:after=0").body.endswith(b"\r\nzz\r\ndata: {}\n\n\r\n")
    assert play(server, "bad_status_line").head == b"SSH-2.0-OpenSSH_9.6"
    assert play(server, "two_lengths").head.lower().count(b"content-length") == 2


def without_ids(heard: Heard, data: bytes | None = None) -> list[Any]:
    """The events less what differs from request to request."""
    events = heard.events if data is None else events_of(data)
    return [
        event if event == "[DONE]" else {k: v for k, v in event.items() if k not in ("id", "created")}
        for event in events
    ]


@pytest.mark.parametrize(
    "scenario",
    [
        "split_bytes",
        "split_delimiter",
        "chunk_extensions",
        "trailers",
        "connection_close",
        "idle_close",
        "idle_race",
    ],
)
def test_other_framing_has_the_same_events(server: SimServer, healthy: Heard, scenario: str):
    assert without_ids(play(server, scenario)) == without_ids(healthy)


def test_every_byte_is_a_send(server: SimServer):
    heard = play(server, "split_bytes", quiet_s=1.0)
    # a read may find several bytes waiting, and never finds an event whole
    assert len(heard.reads) > 300
    assert sum(map(len, heard.reads)) / len(heard.reads) < 20


def test_delimiters_come_in_two_sends(server: SimServer, healthy: Heard):
    heard = play(server, "split_delimiter")
    # a loaded machine may bring a few of the sends together
    halves = sum(read.startswith(b"\n") for read in heard.reads)
    assert halves > 2 * len(healthy.events)


def test_merged_events_share_a_chunk(server: SimServer, healthy: Heard):
    heard = play(server, "merged_events:count=5")
    sizes = [chunk.count(b"data: ") for chunk in heard.chunks]
    assert sizes[:-2] == [5] * (len(sizes) - 2)
    assert without_ids(heard) == without_ids(healthy)


def test_a_backlog_comes_as_one_event(server: SimServer):
    events = play(server, "backlog:after=2:held_tokens=20:hold_s=0.05").events
    assert usages(events) == [4, 8, 28, 32, 36, 40, 40]


def test_lines_and_fields(server: SimServer, healthy: Heard):
    crlf = b"".join(play(server, "crlf").chunks)
    assert crlf.count(b"\r\n") == crlf.count(b"\n")
    assert without_ids(healthy, crlf.replace(b"\r\n", b"\n")) == without_ids(healthy)
    chunks = play(server, "comments").chunks
    assert chunks[0:-1:2] == [b": keep-alive\n\n"] * (len(chunks) // 2)
    fields = play(server, "event_fields").chunks[:-1]
    assert all(chunk.startswith(b"event: message\nid: 7\nretry: 1000\ndata:{") for chunk in fields[:-1])
    assert fields[-1].endswith(b"\ndata:[DONE]\n\n")


def test_framing_of_http(server: SimServer, healthy: Heard):
    assert b';name="a;b"\r\n' in play(server, "chunk_extensions").body
    assert play(server, "trailers").body.endswith(b"0\r\nx-checksum: 1f\r\nx-time: 3\r\n\r\n")
    interim = play(server, "interim")
    assert interim.status_line == b"HTTP/1.1 100 Continue"
    assert interim.body.startswith(b"HTTP/1.1 103 Early Hints\r\n")
    assert b"\r\n\r\nHTTP/1.1 200 OK\r\n" in interim.body
    old = play(server, "http10")
    assert (old.status_line, old.end) == (b"HTTP/1.0 200 OK", "fin")
    assert b"chunked" not in old.head
    assert without_ids(old, old.body) == without_ids(healthy)
    counted = play(server, "content_length")
    assert counted.head.endswith(b"content-length: %d" % len(counted.body))
    assert counted.end == "open"
    assert play(server, "connection_close").end == "fin"


@pytest.mark.parametrize(("codec", "bits"), [("gzip", 31), ("deflate", 15)])
def test_bodies_are_compressed_event_by_event(server: SimServer, healthy: Heard, codec: str, bits: int):
    heard = play(server, f"compressed:codec={codec}")
    assert b"\r\ncontent-encoding: %s\r\n" % codec.encode() in heard.head
    unpacker = zlib.decompressobj(wbits=bits)
    parts = [unpacker.decompress(chunk) for chunk in heard.chunks]
    assert all(part.endswith(b"\n\n") for part in parts[:-2])
    assert without_ids(healthy, b"".join(parts)) == without_ids(healthy)


@pytest.mark.parametrize(("scenario", "size"), [("big_event", 300_000), ("huge_event", 20_000_000)])
def test_one_event_holds_everything(server: SimServer, scenario: str, size: int):
    heard = play(server, scenario, quiet_s=1.0)
    events = heard.events
    assert len(texts(events)) == 1
    assert size <= len(texts(events)[0]) < size + 1000
    assert usages(events) == [40, 40]


def test_what_is_told_of_usage(server: SimServer):
    assert usages(play(server, "usage_ignored").events) == [40]
    assert usages(play(server, "no_usage").events) == []
    beside = play(server, "usage_with_choices").events
    assert [
        e["usage"]["completion_tokens"] for e in beside if e != "[DONE]" and e.get("usage") and e["choices"]
    ] == [40]
    assert usages(beside) == [40]
    twice = play(server, "usage_twice").events
    assert usages(twice) == [4, 40, 40]
    assert twice[-2] == "[DONE]"
    counts = [
        e["usage"]["prompt_tokens"] for e in play(server, "prompt_recounted:factor=2").events if "usage" in e
    ]
    assert set(counts) == {2 * truth(server)["prompt_tokens"]}


def test_odd_texts(server: SimServer, healthy: Heard):
    doubled = play(server, "zero_token_chunk").events
    assert texts(doubled)[1::2] == ["\u0301"] * 10
    assert usages(doubled) == [n for n in range(4, 41, 4) for _ in "ab"] + [40]
    lone = play(server, "lone_surrogate")
    assert texts(lone.events)[:3] == ["\ud83d", "\ude00", "\ud83d"]
    assert texts(play(server, "combining").events)[:2] == ["\u0301", "\0"]
    nulls = play(server, "null_content").events
    blank = [
        e
        for e in nulls
        if e != "[DONE]" and e.get("choices") and e["choices"][0]["delta"] == {"content": None}
    ]
    assert len(blank) == 10
    assert texts(nulls) == texts(healthy.events)


def test_a_reasoning_that_takes_all(server: SimServer):
    events = play(server, "reasoning_only", max_tokens=200).events
    assert not any(e["choices"][0]["delta"].get("content") for e in events if e != "[DONE]" and e["choices"])
    assert reasons(events) == ["length"]
    assert events[-2]["usage"]["reasoning_tokens"] == 200


def test_an_answer_shorter_than_asked_for(server: SimServer):
    for scenario in ("early_eos:length=10", "early_eos:length=10:usage=0"):
        events = play(server, scenario, ignore_eos=True, max_tokens=80).events
        assert reasons(events) == ["stop"]
        assert truth(server)["tokens"] == 10
        assert usages(events) == ([] if "usage" in scenario else [4, 8, 10, 10])
    events = play(server, "ignore_eos_ignored", ignore_eos=True, max_tokens=80).events
    assert (usages(events)[-1], reasons(events)) == (43, ["stop"])


def test_waits(server: SimServer):
    assert play(server, "slow_headers").reads == []
    assert truth(server)["ended"] == "client closed"
    assert play(server, "slow_headers:wait_s=0.1").events[-1] == "[DONE]"
    head = play(server, "endless_head:pause_s=0.01", quiet_s=0.5, most_s=0.6)
    assert head.body == b""
    assert head.head.count(b"\r\nx-more: 1") > 20
    play(server, "early_role:wait_s=0.2")
    entry = truth(server)
    assert entry["first_token_ns"] - entry["head_ns"] > 190e6  # timers have a grain of 1 ms
    assert entry["sends"][1][2] == 0  # the role brings no token


def test_a_flood_has_no_end(server: SimServer):
    heard = play(server, "flood:pause_s=0", most_s=0.5)
    assert heard.end == "open"
    assert truth(server)["tokens"] > 40 * 10
    counts = usages(events_of(b"".join(heard.body.split(b"\r\n")[1:400:2])))
    assert counts == list(range(4, 4 * len(counts) + 1, 4))


@pytest.mark.parametrize("path", ["/v1/completions", "/generate"])
def test_other_routes_play_too(server: SimServer, path: str):
    whole = play(server, "healthy", path=path)
    assert whole.body.endswith(b"e\r\ndata: [DONE]\n\n" + WHOLE)
    assert truth(server)["path"] == path
    assert truth(server)["tokens"] == 40
    assert play(server, "truncate:after=2", path=path).end == "fin"
    assert truth(server)["tokens"] == 8
    last = play(server, "no_finish", path=path).events[-2]
    finish = last["meta_info"] if path == "/generate" else whole.events[0]["choices"][0]
    assert finish["finish_reason"] is None


def test_the_log_tells_each_send(server: SimServer):
    server.call("DELETE", "/__faults/log")
    assert server.get_json("/__faults/log") == {"requests": [], "server": []}
    heard = play(server, "healthy")
    entry = truth(server)
    times, sizes, tokens = zip(*entry["sends"], strict=True)
    assert list(times) == sorted(times)
    assert entry["received_ns"] < entry["head_ns"] == times[0]
    assert times[-1] <= entry["ended_ns"]
    assert sum(sizes) == entry["bytes"] == sum(map(len, heard.reads))
    assert [n for n in dict.fromkeys(tokens) if n] == list(range(4, 41, 4))
    assert entry["first_token_ns"] == times[tokens.index(4)]
    assert entry["last_token_ns"] == times[tokens.index(40)]


def test_routes_that_are_not_streams_are_healthy(server: SimServer):
    body = server.chat(max_tokens=5, model="fault/reset")
    assert server.post_json(CHAT, body)["usage"]["completion_tokens"] == 5
    assert server.get_json("/server_info")["loadgen_sim"]["scenario"] == "healthy"
