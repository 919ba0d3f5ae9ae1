"""What the client relies on in an answer: who the server is, what a stream consists of, how a refusal looks.

The same tests run against the simulator and against the real SGLang. Where they disagree, the simulator is wrong.
"""

import subprocess
from typing import Any

import pytest
from chat_events import (
    CHOICE_KEYS,
    CHUNK_KEYS,
    CODING,
    FINISH_DELTA,
    PROSE,
    ROLE_DELTA,
    RUNNING_USAGE,
    USAGE,
    USAGE_KEYS,
    deltas,
    finish,
    kind,
    order,
    text,
    usage,
)
from live_server import DONE, REPO, LiveServer
from server_makes import API_KEY, CONTEXT_TOKENS, SEED, Servers

# Who it is


def test_models(plain: LiveServer) -> None:
    listed = plain.get("/v1/models")
    assert listed["object"] == "list"
    (model,) = listed["data"]
    assert model.keys() == {"id", "object", "created", "owned_by", "root", "parent", "max_model_len"}
    assert (model["id"], model["owned_by"], model["max_model_len"]) == (
        "conformance",
        "sglang",
        CONTEXT_TOKENS,
    )


def test_model_info(plain: LiveServer) -> None:
    info = plain.get("/model_info")
    assert info["served_model_name"] == "conformance"
    assert info["reasoning_parser"] == "kimi_k2"
    assert info["is_generation"] is True
    assert info["model_path"]
    assert info["tokenizer_path"]


def test_server_info_reads_the_settings_back(plain: LiveServer) -> None:
    info = plain.get("/server_info")
    assert info["random_seed"] == SEED
    assert info["served_model_name"] == "conformance"
    assert info["max_running_requests"] == 2
    assert info["max_queued_requests"] == 1
    assert info["context_length"] == CONTEXT_TOKENS
    assert info["speculative_algorithm"] is None
    assert f"--random-seed {SEED} " in info["launch_command"]
    assert isinstance(info["version"], str)
    assert info["max_total_num_tokens"] > 0
    assert "speculative_eagle_topk" in info
    assert "speculative_draft_window_size" in info
    (internal,) = info["internal_states"]
    assert internal["effective_max_running_requests_per_dp"] == 2
    assert "avg_spec_accept_length" not in internal


def test_server_info_shows_resolved_speculation_and_secrets(ngram: LiveServer) -> None:
    info = ngram.get("/server_info")
    assert info["speculative_algorithm"] == "NGRAM"
    assert info["speculative_num_draft_tokens"] == 8
    assert info["speculative_num_steps"] == 8  # not asked for: resolved
    assert info["speculative_eagle_topk"] == 1  # from the breadth
    assert info["api_key"] == API_KEY  # why it is masked before it is stored
    assert API_KEY in info["launch_command"]


def test_health_has_no_body(plain: LiveServer) -> None:
    reply = plain.request("GET", "/health")
    assert (reply.status, reply.text) == (200, "")


def test_unknown_flag_ends_with_code_2(servers: Servers) -> None:
    ended = subprocess.run(
        [*servers.program, "--no-such-flag", "1"],
        check=False,
        cwd=REPO,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert ended.returncode == 2
    assert "unrecognized arguments: --no-such-flag" in ended.stderr


def test_api_key(ngram: LiveServer) -> None:
    for key in (None, "wrong"):
        for method, path in (("GET", "/v1/models"), ("GET", "/server_info"), ("POST", "/flush_cache")):
            reply = ngram.request(method, path, key=key)
            assert (reply.status, reply.json) == (401, {"error": "Unauthorized"}), (path, key)
        assert ngram.request("POST", "/v1/chat/completions", {"messages": []}, key=key).status == 401
        assert ngram.request("GET", "/metrics", key=key).status == 200
        assert ngram.request("GET", "/health", key=key).status == 200
    assert ngram.request("GET", "/v1/models").status == 200


# Token counts


def test_tokenize_differs_from_prompt_tokens_by_a_constant(plain: LiveServer) -> None:
    overheads = set()
    for prompt in ("Tell me.", PROSE, PROSE * 7):
        tokens = plain.request("POST", "/tokenize", {"prompt": prompt}).json
        assert tokens.keys() == {"tokens", "count", "max_model_len"}
        assert tokens["count"] == len(tokens["tokens"])
        overheads.add(plain.chat(prompt, max_tokens=1).json["usage"]["prompt_tokens"] - tokens["count"])
    assert len(overheads) == 1
    assert overheads.pop() > 0


def test_detokenize_gives_the_text_back(plain: LiveServer) -> None:
    tokens = plain.request("POST", "/tokenize", {"prompt": PROSE}).json["tokens"]
    assert plain.request("POST", "/detokenize", {"tokens": tokens}).json["text"] == PROSE


# Streams


def test_stream_order_and_keys(plain: LiveServer) -> None:
    with plain.stream(CODING, max_tokens=2000, stream_options=USAGE) as stream:
        assert stream.response.getheader("Content-Type") == "text/event-stream; charset=utf-8"
        events = list(stream)
    assert order(events) == ["role", "reasoning", "answer", "finish", "usage", "done"]
    messages = events[:-1]
    assert {kind(e): e.keys() for e in messages} == {
        **dict.fromkeys(("role", "reasoning", "answer", "finish"), CHUNK_KEYS),
        "usage": CHUNK_KEYS | {"usage"},
    }
    assert {e["object"] for e in messages} == {"chat.completion.chunk"}
    assert {e["model"] for e in messages} == {"conformance"}
    assert len({(e["id"], e["created"]) for e in messages}) == 1
    choices = [choice for e in messages for choice in e["choices"]]
    assert all(choice.keys() == CHOICE_KEYS and choice["index"] == 0 for choice in choices)
    assert deltas(events, "role") == [ROLE_DELTA]
    assert deltas(events, "finish") == [FINISH_DELTA]
    assert all(delta.keys() == {"reasoning_content"} for delta in deltas(events, "reasoning"))
    assert all(
        delta.keys() == {"reasoning_content", "content"} and delta["reasoning_content"] is None
        for delta in deltas(events, "answer")
    )


def test_a_thinking_answer(plain: LiveServer) -> None:
    events = plain.events(CODING, max_tokens=2000, stream_options=USAGE)
    assert finish(events)["finish_reason"] == "stop"
    assert isinstance(finish(events)["matched_stop"], int)  # the token id of the end
    assert "def fib(n)" in text(events, "answer")
    assert "def fib(n)" in text(events, "reasoning")  # a draft
    assert "think>" not in text(events, "answer") + text(events, "reasoning")
    counts = usage(events)
    assert counts.keys() == USAGE_KEYS
    assert counts["total_tokens"] == counts["prompt_tokens"] + counts["completion_tokens"]
    assert 0 < counts["reasoning_tokens"] < counts["completion_tokens"]
    assert counts["completion_tokens_details"] == {"reasoning_tokens": counts["reasoning_tokens"]}
    assert counts["prompt_tokens_details"].keys() == {"cached_tokens"}


def test_streamed_and_whole_answers_are_the_same(plain: LiveServer) -> None:
    events = plain.events(CODING, max_tokens=2000, stream_options=USAGE)
    reply = plain.chat(CODING, max_tokens=2000).json
    (choice,) = reply["choices"]
    assert choice["message"] == {
        "role": "assistant",
        "content": text(events, "answer"),
        "reasoning_content": text(events, "reasoning"),
    }
    assert choice["finish_reason"] == "stop"
    for name in ("prompt_tokens", "completion_tokens", "reasoning_tokens"):
        assert reply["usage"][name] == usage(events)[name]


def test_running_usage_grows_to_the_total(plain: LiveServer) -> None:
    events = plain.events(CODING, max_tokens=2000, stream_options=RUNNING_USAGE)
    counted = [e for e in events if kind(e) in ("reasoning", "answer")]
    assert all(e.keys() == CHUNK_KEYS | {"usage"} for e in counted)
    assert all(e.keys() == CHUNK_KEYS for e in events if kind(e) in ("role", "finish"))
    counts = [e["usage"]["completion_tokens"] for e in counted]
    assert counts == sorted(counts)
    assert counts[0] >= 1
    total = usage(events)["completion_tokens"]
    assert total - 1 <= counts[-1] <= total  # the end token has no text, so it may have no chunk
    assert {e["usage"]["prompt_tokens"] for e in counted} == {usage(events)["prompt_tokens"]}


def test_running_usage_of_a_cut_answer_ends_at_the_total(plain: LiveServer) -> None:
    events = plain.events(PROSE, max_tokens=30, ignore_eos=True, stream_options=RUNNING_USAGE)
    last = [e for e in events if kind(e) in ("reasoning", "answer")][-1]
    assert last["usage"]["completion_tokens"] == usage(events)["completion_tokens"] == 30


def test_no_usage_unless_asked(plain: LiveServer) -> None:
    events = plain.events(PROSE, max_tokens=5)
    assert order(events) == ["role", "reasoning", "finish", "done"]
    assert all("usage" not in e for e in events if e != DONE)


def test_undivided_reasoning(plain: LiveServer) -> None:
    events = plain.events(CODING, max_tokens=2000, separate_reasoning=False, stream_options=USAGE)
    assert order(events) == ["role", "answer", "finish", "usage", "done"]
    thought, mark, answer = text(events, "answer").partition("</think>")
    divided = plain.events(CODING, max_tokens=2000)
    assert mark
    assert "<think>" not in thought  # it is the prompt's last token
    assert (thought.strip(), answer.strip()) == (
        text(divided, "reasoning").strip(),
        text(divided, "answer").strip(),
    )


def test_thinking_switched_off(plain: LiveServer) -> None:
    options = {"max_tokens": 2000, "chat_template_kwargs": {"thinking": False}}
    events = plain.events(CODING, stream_options=USAGE, **options)
    assert order(events) == ["role", "answer", "finish", "usage", "done"]
    assert usage(events)["reasoning_tokens"] == 0
    assert usage(events)["completion_tokens_details"] is None
    assert plain.chat(CODING, **options).json["choices"][0]["message"]["reasoning_content"] is None


def test_length_limit(plain: LiveServer) -> None:
    events = plain.events(CODING, max_tokens=7, stream_options=USAGE)
    assert (finish(events)["finish_reason"], finish(events)["matched_stop"]) == ("length", None)
    assert usage(events)["completion_tokens"] == usage(events)["reasoning_tokens"] == 7
    assert text(events, "reasoning")


def test_ignored_end(plain: LiveServer) -> None:
    natural = plain.chat(CODING, max_tokens=2000).json["usage"]["completion_tokens"]
    wanted = natural + 25
    events = plain.events(CODING, max_tokens=wanted, ignore_eos=True, stream_options=USAGE)
    assert usage(events)["completion_tokens"] == wanted
    assert finish(events)["finish_reason"] == "length"


def test_unknown_option_is_ignored(plain: LiveServer) -> None:
    assert plain.chat(PROSE, max_tokens=2, no_such_option=True).status == 200


def test_spec_details_without_speculation_are_not_sent(plain: LiveServer) -> None:
    events = plain.events(PROSE, max_tokens=3, return_spec_tokens_details=True, stream_options=USAGE)
    assert order(events) == ["role", "reasoning", "finish", "usage", "done"]


def test_wrong_model_name_is_served(plain: LiveServer) -> None:
    reply = plain.chat(PROSE, max_tokens=2, model="someone-else")
    assert (reply.status, reply.json["model"]) == (200, "someone-else")


# Refusals


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"temperature": -1}, "temperature"),
        ({"messages": []}, "messages"),
        ({"max_tokens": -3}, "max_new_tokens"),
        ({"max_tokens": CONTEXT_TOKENS + 1}, str(CONTEXT_TOKENS)),
    ],
)
def test_bad_request(plain: LiveServer, options: dict[str, Any], words: str, stream: bool) -> None:
    reply = plain.chat(PROSE, stream=stream, **options)
    assert reply.status == 400
    assert reply.json.keys() == {"object", "message", "type", "param", "code"}
    assert (reply.json["object"], reply.json["code"]) == ("error", 400)
    assert words in reply.json["message"].lower()


@pytest.mark.parametrize("stream", [False, True])
def test_prompt_beyond_the_context(plain: LiveServer, stream: bool) -> None:
    reply = plain.chat("word " * CONTEXT_TOKENS, max_tokens=1, stream=stream)
    assert (reply.status, reply.json["object"], reply.json["code"]) == (400, "error", 400)
    assert str(CONTEXT_TOKENS) in reply.json["message"]


def test_bad_json(plain: LiveServer) -> None:
    reply = plain.request("POST", "/v1/chat/completions", b'{"messages": [')
    assert (reply.status, reply.json["object"], reply.json["code"]) == (400, "error", 400)


def test_unknown_path(plain: LiveServer) -> None:
    reply = plain.request("GET", "/no/such/path")
    assert (reply.status, reply.json) == (404, {"detail": "Not Found"})
