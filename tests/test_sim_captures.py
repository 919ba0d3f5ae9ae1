"""The simulator against recorded responses of a real SGLang 0.5.23: same keys, same order of events, same errors."""

import itertools
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import sim_fixtures as sim

FLAGS = (
    "--served-model-name", "kimi-k2.6", "--reasoning-parser", "kimi_k2", "--enable-metrics", "--enable-cache-report",
    "--time-scale", "100", "--context-length", "32768", *sim.DDTREE,
)  # fmt: skip


@pytest.fixture(scope="module")
def server() -> Iterator[sim.SimServer]:
    with sim.SimServer(*FLAGS) as running:
        yield running


def kind(event: Any) -> str:
    """What an event of a chat stream is for, and its exact keys in order."""
    if event == "[DONE]":
        return "done"
    keys = list(event)
    if not event["choices"]:
        return f"sglext {keys}" if "sglext" in event else f"usage {keys} {list(event['usage'])}"
    choice = event["choices"][0]
    delta = choice.get("delta")
    place = "finish" if choice["finish_reason"] else "chunk"
    usage = list(event["usage"]) if event.get("usage") else None
    return f"{place} {keys} {list(choice)} {delta and list(delta)} {usage}"


def kinds(events: list[Any]) -> list[str]:
    """Their kinds, runs of one kind once."""
    found: list[str] = []
    for event in events:
        if not found or found[-1] != kind(event):
            found.append(kind(event))
    return found


USAGE = {"stream_options": {"include_usage": True}}


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("chat_stream_usage.sse", USAGE),
        ("chat_stream_nosep.sse", {"separate_reasoning": False}),
        ("chat_stream_instant.sse", {"chat_template_kwargs": {"thinking": False}}),
        ("chat_stream_nostreamreason.sse", {"stream_reasoning": False}),
        (
            "chat_stream_cont.sse",
            {"max_tokens": 8, "stream_options": {"include_usage": True, "continuous_usage_stats": True}},
        ),
        ("chat_length.sse", {"max_tokens": 5, **USAGE}),
        (
            "spec_chat2.sse",
            {"return_spec_tokens_details": True, "return_cached_tokens_details": True, **USAGE},
        ),
    ],
)
def test_chat_streams_have_the_same_events_in_the_same_order(
    server: sim.SimServer, name: str, options: dict[str, Any]
) -> None:
    recorded = sim.events(sim.capture(name))
    ours = server.chat_events("Write add and gcd.", **options)
    assert kinds(ours) == kinds(recorded)
    assert sim.shape(ours[0]) == sim.shape(recorded[0])


def test_a_stop_string_and_an_end_of_turn_are_named(server: sim.SimServer) -> None:
    recorded = sim.events(sim.capture("chat_stop.sse"))[-2]["choices"][0]
    ours = server.chat_events("fib", stop="def fib")[-2]["choices"][0]
    assert (recorded["finish_reason"], recorded["matched_stop"]) == ("stop", "def add")
    assert (ours["finish_reason"], ours["matched_stop"]) == ("stop", "def fib")
    assert isinstance(server.chat_events("fib")[-2]["choices"][0]["matched_stop"], int)


def test_spec_details_have_the_same_keys_and_add_up(server: sim.SimServer) -> None:
    recorded = sim.events(sim.capture("spec_chat2.sse"))[-3]["sglext"]
    events = server.chat_events(
        "fib", return_spec_tokens_details=True, return_cached_tokens_details=True, **USAGE
    )
    ours, tokens = events[-3]["sglext"], events[-2]["usage"]["completion_tokens"]
    assert sim.shape(ours)["cached_tokens_details"] == sim.shape(recorded)["cached_tokens_details"]
    details = ours["spec_tokens_details"]
    assert list(details) == list(recorded["spec_tokens_details"])
    for each, total in ((recorded["spec_tokens_details"], 60), (details, tokens)):
        assert each["spec_accept_length"] == pytest.approx(total / each["spec_verify_ct"])
        histogram = each["spec_correct_drafts_histogram"]
        assert sum(histogram) == each["spec_verify_ct"]
        assert sum(k * n for k, n in enumerate(histogram)) == each["spec_num_correct_drafts"]
        assert each["spec_num_correct_drafts"] + each["spec_verify_ct"] == total - 1
        assert each["spec_accept_rate"] == each["spec_num_correct_drafts"] / each["spec_num_proposed_drafts"]


def test_a_chat_answer_in_one_piece(server: sim.SimServer) -> None:
    recorded = json.loads(sim.capture("chat_nonstream.json"))
    ours = server.post_json("/v1/chat/completions", server.chat("fib"))
    assert sim.shape(ours) == sim.shape(recorded)
    echoed = server.post_json("/v1/chat/completions", {**server.chat("fib"), "model": "nope"})
    assert echoed["model"] == json.loads(sim.capture("err_badmodel.json"))["model"] == "nope"


def test_completions(server: sim.SimServer) -> None:
    recorded = sim.events(sim.capture("completions_stream.sse"))
    body = {"model": "m", "prompt": "Once", "max_tokens": 30, "stream": True, "ignore_eos": True, **USAGE}
    ours = sim.events(server.call("POST", "/v1/completions", body)[1])
    for index in (0, -3, -2):
        assert sim.shape(ours[index]) == sim.shape(recorded[index])
    assert ours[-1] == recorded[-1] == "[DONE]"


def test_generate(server: sim.SimServer) -> None:
    body = {"text": "Once", "sampling_params": {"max_new_tokens": 30, "ignore_eos": True}}
    spec = {
        "spec_accept_rate", "spec_accept_length", "spec_num_correct_drafts", "spec_num_proposed_drafts",
        "spec_verify_ct", "spec_correct_drafts_histogram",
    }  # fmt: skip
    recorded = json.loads(sim.capture("gen_nonstream.json"))
    ours = server.post_json("/generate", body)
    assert list(ours) == list(recorded)
    assert ours["meta_info"].keys() - spec == recorded["meta_info"].keys()
    length = sim.events(sim.capture("gen_stream.sse"))
    stream = sim.events(server.call("POST", "/generate", {**body, "stream": True})[1])
    assert list(stream[0]) == list(length[0])
    assert length[1]["meta_info"].keys() == stream[1]["meta_info"].keys()
    assert sim.shape(stream[-2]["meta_info"]["finish_reason"]) == sim.shape(
        length[-2]["meta_info"]["finish_reason"]
    )
    assert all(b["text"].startswith(a["text"]) for a, b in itertools.pairwise(stream[:-1]))
    assert stream[-1] == "[DONE]"


CHAT = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}


@pytest.mark.parametrize(
    ("name", "body", "status"),
    [
        ("err_empty.json", {**CHAT, "messages": []}, 400),
        ("err_maxtok.json", {**CHAT, "max_tokens": -3}, 400),
        ("err_temp.json", {**CHAT, "temperature": -1.0}, 400),
        ("err_temp_stream.json", {**CHAT, "temperature": -1.0, "stream": True}, 400),
        ("err_maxtok_big.json", {**CHAT, "max_tokens": 40000}, 400),
        ("err_toolong.json", {"model": "m", "messages": [{"role": "user", "content": "hi " * 40_000}]}, 400),
        ("err_badjson.json", b'{"mod', 400),
    ],
)
def test_errors(server: sim.SimServer, name: str, body: Any, status: int) -> None:
    recorded = json.loads(sim.capture(name))
    got_status, text = server.call("POST", "/v1/chat/completions", body)
    ours = json.loads(text)
    assert got_status == status
    assert {**ours, "message": ""} == {**recorded, "message": ""}
    if name == "err_badjson.json":
        assert ours["message"].startswith("1 validation error:\n  {'type': 'json_invalid', 'loc': ('body', ")
    else:
        assert re.sub(r"\d+", "N", ours["message"]) == re.sub(r"\d+", "N", recorded["message"])


def test_unknown_paths(server: sim.SimServer) -> None:
    for path in ("/v1/nope", "/get_load"):
        assert server.call("GET", path) == (404, sim.capture("err_notfound.json"))
    assert server.call("DELETE", "/v1/models")[0] == 405


def test_information(server: sim.SimServer) -> None:
    for path, name, missing in (
        ("/v1/models", "models.json", set()),
        ("/model_info", "model_info.json", {"embedding"}),
        ("/get_model_info", "model_info.json", {"embedding"}),
        ("/v1/loads", "loads.json", set()),
    ):
        recorded = json.loads(sim.capture(name))
        assert recorded.keys() - server.get_json(path).keys() == missing, path
    assert sim.shape(server.get_json("/v1/models")) == sim.shape(json.loads(sim.capture("models.json")))
    rank, recorded = (
        server.get_json("/v1/loads")["loads"][0],
        json.loads(sim.capture("loads.json"))["loads"][0],
    )
    assert recorded.keys() - rank.keys() == {"decode_moments", "disaggregation", "total_prefill_busy_us"}


def test_server_info_has_no_key_that_sglang_has_not_but_its_own_and_ddtree(server: sim.SimServer) -> None:
    keys = json.loads(sim.capture("server_info_keys.json"))
    ours = server.get_json("/server_info")
    assert ours.keys() - set(keys["top"]) == {"loadgen_sim", "speculative_ddtree_budget"}
    state = ours["internal_states"][0]
    assert state.keys() - set(keys["internal_state"]) <= {"speculative_ddtree_budget"}
    assert {"effective_max_running_requests_per_dp", "last_gen_throughput", "memory_usage"} <= state.keys()
    assert ours == {**server.get_json("/get_server_info"), "loadgen_sim": ours["loadgen_sim"]}


def test_tokenize(server: sim.SimServer) -> None:
    recorded = json.loads(sim.capture("tokenize.json"))
    for path in ("/tokenize", "/v1/tokenize"):
        ours = server.post_json(path, {"prompt": "hello, world"})
        assert sim.shape(ours) == sim.shape(recorded)
        assert ours["count"] == len(ours["tokens"])
    assert server.post_json("/detokenize", {"tokens": ours["tokens"]}) == {"text": "hello, world"}
    assert server.post_json("/tokenize", {"prompt": ["a", "b c"]})["count"] == [1, 2]


def test_flush_says_what_sglang_says(server: sim.SimServer) -> None:
    for method in ("GET", "POST"):
        assert server.call(method, "/flush_cache") == (200, sim.capture("flush.txt"))


def test_metrics_have_the_same_series(server: sim.SimServer) -> None:
    server.chat_events("fib")
    ours = server.call("GET", "/metrics")[1]

    def series(text: str) -> set[str]:
        found = set()
        for name, labels in re.findall(r"^(sglang:\w+)\{(.*)\} ", text, re.MULTILINE):
            keys = sorted(re.findall(r"(\w+)=", labels))
            found.add(f"{name} {keys}")
        return found | set(re.findall(r"^# TYPE .*$", text, re.MULTILINE))

    assert series(sim.capture("metrics.txt")) - series(ours) == set()
