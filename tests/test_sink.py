import contextlib
import json
import re
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from loadgen.clock import monotonic_ns
from loadgen.errors import RunFailed
from loadgen.sink import Sink, compiled, running_sink, sink_program, truth

MS = 1_000_000


@pytest.fixture
def sink() -> Iterator[Sink]:
    with running_sink("-n", "5", "-i", "2000", "-t", "10000") as running:
        yield running


def body(**fields: object) -> bytes:
    message = {"role": "user", "content": fields.pop("content", "salt-7 hello")}
    return json.dumps({"messages": [message], "stream": True, **fields}).encode()


def post(sink: Sink, sent: bytes, query: str = "", path: str = "/v1/chat/completions") -> bytes:
    request = urllib.request.Request(f"{sink.url}{path}{query}", sent, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as response:
        return response.read()


def events(stream: bytes) -> list[dict]:
    parts = [part.removeprefix(b"data: ") for part in stream.split(b"\n\n") if part]
    assert parts.pop() == b"[DONE]"
    return [json.loads(part) for part in parts]


def test_a_stream_has_the_shape_of_sglangs_and_the_asked_number_of_chunks(sink: Sink) -> None:
    role, *content, finish, usage = events(post(sink, body(max_tokens=3)))
    assert role["choices"][0]["delta"] == {
        "role": "assistant",
        "content": "",
        "reasoning_content": None,
        "tool_calls": None,
    }
    assert [event["choices"][0]["delta"]["content"] for event in content] == [
        " thexxxx",
        " latency",
        " ofxxxxx",
    ]
    assert finish["choices"][0]["finish_reason"] == "length"
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 3


def test_the_stamps_in_the_events_are_the_truth_of_each_chunk(sink: Sink) -> None:
    before_ns = monotonic_ns()
    streams = [events(post(sink, body())) for _ in range(2)]
    sent = truth.stamps(sink.url)
    assert sent["request"].tolist() == [1] * 5 + [2] * 5
    assert sent["chunk"].tolist() == [0, 1, 2, 3, 4] * 2
    in_events = [int(event["sts"]) for stream in streams for event in stream[1:6]]
    assert sent["sent_ns"].tolist() == in_events
    assert [int(stream[0]["id"], 16) for stream in streams] == [1, 2]
    assert before_ns < in_events[0] < in_events[-1] < monotonic_ns()


def test_the_log_has_a_row_for_each_request(sink: Sink) -> None:
    first, second = (events(post(sink, body(content=text))) for text in ("salt-7 x", "ü\"{}[] 'y"))
    rows = truth.requests(sink.url)
    assert [row.request for row in rows] == [1, 2]
    assert [row.chunks for row in rows] == [5, 5]
    assert [row.key for row in rows] == ["salt_7_x", "_u00fc_"]
    for row, stream in zip(rows, (first, second), strict=True):
        assert (row.first_ns, row.last_ns) == (int(stream[1]["sts"]), int(stream[5]["sts"]))
        # ttft 10 ms after the request was read, and a part of the interval of 2 ms
        assert row.first_ns - row.read_ns >= 10 * MS
        # four gaps of 2 ms on an absolute schedule, of which a late first chunk may take away
        assert row.last_ns - row.read_ns >= 18 * MS


def test_running_usage_counts_the_tokens_of_each_chunk(sink: Sink) -> None:
    asked = body(max_tokens=10, stream_options={"include_usage": True, "continuous_usage_stats": True})
    _, *content, _, usage = events(post(sink, asked, "?tok=4"))
    assert [event["usage"]["completion_tokens"] for event in content] == [4, 8, 10]
    assert usage["usage"]["completion_tokens"] == 10
    prompt_tokens = usage["usage"]["prompt_tokens"]
    assert [event["usage"]["total_tokens"] for event in content] == [
        prompt_tokens + 4,
        prompt_tokens + 8,
        prompt_tokens + 10,
    ]
    assert all(event["usage"] is None for event in events(post(sink, body()))[:-1])


@pytest.mark.parametrize("words", [10, 16_000, 130_000])
def test_a_prompt_of_any_length_is_read_whole_and_counted_by_its_bytes(sink: Sink, words: int) -> None:
    text = "abcd " * words
    stream = events(post(sink, body(content=text, max_tokens=2)))
    assert stream[-1]["usage"]["prompt_tokens"] == len(text) // 4 + 1
    assert len(stream) == 1 + 2 + 2  # the setting behind the prompt was read


def test_requests_follow_each_other_on_one_connection_whatever_their_pieces(sink: Sink) -> None:
    sent = body(max_tokens=1)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\ncontent-LENGTH: {len(sent)}\r\n\r\n".encode()
    with socket.create_connection(("127.0.0.1", sink.port), 10) as connection:
        for cut in (1, 20, len(head) + 5):
            request = head + sent
            connection.sendall(request[:cut])
            connection.sendall(request[cut:])
            answer = b""
            while not answer.endswith(b"\r\n0\r\n\r\n"):
                answer += connection.recv(65536)
            assert answer.count(b"data: ") == 5
    assert len(truth.requests(sink.url)) == 3


def test_reset_forgets_and_sets_what_later_streams_are(sink: Sink) -> None:
    post(sink, body())
    truth.reset(sink.url, n=2, iv=0, ttft=0)
    assert truth.requests(sink.url) == []
    assert len(truth.stamps(sink.url)) == 0
    assert len(events(post(sink, body()))) == 5
    stats = truth.stats(sink.url)
    assert (stats["done"], stats["events"], stats["stamps"]) == (1, 6, 2)
    assert stats["gap_us"]["n"] == 1


def test_lock_step_streams_send_on_common_ticks() -> None:
    with running_sink("-n", "3", "-i", "40000", "-s", "1") as sink:
        for _ in range(2):
            post(sink, body())
        due = truth.stamps(sink.url)["sent_ns"] % (40 * MS)
        assert truth.stats(sink.url)["late_us"]["n"] == 6
        # each is late by what the machine took, never early
        assert all(late < 39 * MS for late in due.tolist())


def test_streams_are_counted_while_they_are_open(sink: Sink) -> None:
    sent = body(max_tokens=50)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: {len(sent)}\r\n\r\n".encode()
    connections = [socket.create_connection(("127.0.0.1", sink.port), 10) for _ in range(30)]
    for connection in connections:
        connection.sendall(head + sent)
    for connection in connections:
        connection.recv(1)
        connection.close()
    while truth.stats(sink.url)["connections"] > 1:
        pass
    stats = truth.stats(sink.url)
    assert (stats["max_streams"], stats["streams"], stats["aborted"], stats["done"]) == (30, 0, 30, 0)


def test_what_is_no_stream_is_answered_whole(sink: Sink) -> None:
    answer = json.loads(post(sink, body(stream=False)))
    assert answer["choices"][0]["message"]["content"] == "ok"
    text = events_of_text(post(sink, b'{"prompt":"hi","stream":true}', path="/v1/completions"))
    assert [event["choices"][0]["text"] for event in text][:2] == [" thexxxx", " latency"]
    with urllib.request.urlopen(f"{sink.url}/v1/models", timeout=10) as response:
        assert json.load(response)["data"][0]["id"] == "default"
    with pytest.raises(urllib.error.HTTPError, match="404"):
        post(sink, b"{}", path="/tokenize")


def events_of_text(stream: bytes) -> list[dict]:
    return events(stream)[:-1]


@pytest.mark.parametrize(
    "hostile",
    [
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"GET /" + b"x" * 100_000,
        b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: 2\r\n\r\n{}" * 2,
    ],
)
def test_bytes_that_it_does_not_understand_close_that_connection_and_no_other(
    sink: Sink, hostile: bytes
) -> None:
    truth.reset(sink.url, n=2, iv=0, ttft=0)
    connection = socket.create_connection(("127.0.0.1", sink.port), 10)
    with connection, contextlib.suppress(OSError):
        connection.sendall(hostile)
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):
            pass
    assert len(events(post(sink, body()))) == 5


def test_it_ends_with_its_block_and_with_the_process_that_started_it(tmp_path: Path) -> None:
    with running_sink() as sink:
        pass
    assert not Path(f"/proc/{sink.pid}").exists()
    script = "import os\nfrom loadgen.sink import running_sink\nwith running_sink() as s: print(s.pid, flush=True); os.kill(os.getpid(), 9)"
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False).stdout
    pid = int(said)
    while Path(f"/proc/{pid}").exists() and "sink" in Path(f"/proc/{pid}/cmdline").read_text():
        pass


def test_it_is_compiled_without_warnings_and_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = sorted((Path(sink_program.__code__.co_filename).parent / "src").glob("*.c"))
    done = subprocess.run(
        ["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", tmp_path / "sink", *sources], check=False
    )
    assert done.returncode == 0
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    program = sink_program()
    assert program.parent == tmp_path / "loadgen"
    made_ns = program.stat().st_mtime_ns
    assert sink_program().stat().st_mtime_ns == made_ns
    assert list(program.parent.iterdir()) == [program]


def test_without_a_compiler_one_line_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(RunFailed, match="'no-such-compiler' was not found: install a C compiler, or set CC"):
        sink_program()


def test_a_cache_that_cannot_be_written_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(RunFailed, match=r"the sink cannot be kept in .*; set XDG_CACHE_HOME"):
        sink_program()


def test_a_source_that_does_not_compile_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    source = tmp_path / "broken.c"
    source.write_text("int main(void) { return nothing; }\n")
    with pytest.raises(RunFailed, match=re.compile("could not be compiled.*nothing", re.DOTALL)):
        compiled([source], "broken")
    assert not list((tmp_path / "loadgen").glob("broken-*"))


def test_a_sink_that_cannot_start_is_said_at_once() -> None:
    with pytest.raises(RunFailed, match="the sink did not start"), running_sink("-z"):
        pass
