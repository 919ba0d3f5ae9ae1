"""The simulated server as a process: its life, its limits, its counters; real sockets and signals."""

import concurrent.futures
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import sim_fixtures as sim

FAST = ("--time-scale", "100", "--reasoning-parser", "kimi_k2", "--enable-cache-report", "--enable-metrics")
ENDLESS = {"max_tokens": 20_000, "ignore_eos": True}


@pytest.fixture(scope="module")
def server() -> Iterator[sim.SimServer]:
    with sim.SimServer(*FAST, *sim.DDTREE, "--decode-log-interval", "10") as running:
        yield running


@pytest.fixture(scope="module")
def slow() -> Iterator[sim.SimServer]:
    """In real time and with room for one, so that a test can act while a request runs or waits."""
    with sim.SimServer("--max-running-requests", "1", "--max-queued-requests", "1") as running:
        yield running


def counter(text: str, name: str) -> float:
    found = re.findall(rf"^sglang:{name}(?:\{{.*\}})? (\S+)$", text, re.MULTILINE)
    return sum(float(value) for value in found)


def test_every_response_says_that_it_is_simulated(server: sim.SimServer) -> None:
    body = server.chat("fib", stream=True)
    for method, path, sent in (
        ("GET", "/health", None), ("GET", "/nope", None), ("GET", "/server_info", None), ("GET", "/metrics", None),
        ("POST", "/v1/chat/completions", body), ("POST", "/v1/chat/completions", b"{"), ("POST", "/flush_cache", None),
    ):  # fmt: skip
        response = server.open(method, path, sent)
        assert response.headers["x-loadgen-simulated"] == "1", path
        response.read()
        sim.hang_up(response)


def test_readiness(server: sim.SimServer) -> None:
    for path in ("/health", "/health_generate", "/ready", "/ping"):
        assert server.call("GET", path) == (200, "")


def test_the_answer_is_the_same_each_time_and_the_second_prompt_comes_from_the_cache(
    server: sim.SimServer,
) -> None:
    server.call("POST", "/flush_cache")
    prompt = "Write fib. " + "Some words to fill more than one page of the cache. " * 20
    first, second = (server.post_json("/v1/chat/completions", server.chat(prompt)) for _ in range(2))
    assert first["choices"][0]["message"] == second["choices"][0]["message"]
    assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert first["usage"]["prompt_tokens"] - 17 < second["usage"]["prompt_tokens_details"]["cached_tokens"]
    other = server.post_json("/v1/chat/completions", server.chat("Salted: " + prompt))
    assert other["usage"]["prompt_tokens_details"]["cached_tokens"] == 16  # the template alone
    server.call("POST", "/flush_cache")
    cold = server.post_json("/v1/chat/completions", server.chat(prompt))
    assert cold["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


def test_one_stream_takes_the_time_that_the_model_says(server: sim.SimServer) -> None:
    server.call("POST", "/flush_cache")
    told = server.post_json(
        "/generate", {"text": "Once", "sampling_params": {"max_new_tokens": 256, "ignore_eos": True}}
    )
    assert 120 < 256 / told["meta_info"]["e2e_latency"] < 220


def test_a_chunk_holds_whole_verify_steps_and_counters_move_when_a_request_ends(
    server: sim.SimServer,
) -> None:
    before = server.call("GET", "/metrics")[1]
    options = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    events = server.chat_events(
        "prose", return_spec_tokens_details=True, max_tokens=100, ignore_eos=True, **options
    )
    counts = [e["usage"]["completion_tokens"] for e in events[1:-4]]
    steps = events[-3]["sglext"]["spec_tokens_details"]["spec_verify_ct"]
    assert counts[-1] == events[-2]["usage"]["completion_tokens"] == 100
    assert counts == sorted(counts)
    assert len(set(counts)) <= steps + 1  # fewer where the machine was late and steps went out together
    after = server.call("GET", "/metrics")[1]

    def moved(name: str) -> float:
        return counter(after, name) - counter(before, name)

    assert moved("generation_tokens_total") == 100
    assert moved("prompt_tokens_total") == events[-2]["usage"]["prompt_tokens"]
    assert moved("num_requests_total") == 1
    assert moved("spec_verify_calls_total") == steps
    assert moved("cached_tokens_total") == events[-2]["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_the_accept_length_of_server_info_lasts_until_a_flush(server: sim.SimServer) -> None:
    server.chat_events("prose", max_tokens=400, ignore_eos=True)
    told = server.get_json("/server_info")
    assert 3 < told["internal_states"][0]["avg_spec_accept_length"] < 5.5
    assert told["internal_states"][0]["last_gen_throughput"] > 50
    assert told["loadgen_sim"]["lag_max_ms"] > 0
    server.call("POST", "/flush_cache")
    told = server.get_json("/server_info")
    assert "avg_spec_accept_length" not in told["internal_states"][0]
    assert told["loadgen_sim"] == {
        "simulated": True, "profile": "pcie", "time_scale": 100.0, "scenario": None,
        "lag_p99_ms": 0.0, "lag_max_ms": 0.0,
    }  # fmt: skip
    assert re.search(r"Decode batch, #running-req: 1, .*accept len: [3-5]\.\d\d", server.log)


def test_many_streams_at_once_all_end_well(server: sim.SimServer) -> None:
    def one(index: int) -> list[Any]:
        return server.chat_events(
            f"prose {index}", max_tokens=120, ignore_eos=True, stream_options={"include_usage": True}
        )

    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        for events in pool.map(one, range(48)):
            assert events[-1] == "[DONE]"
            assert events[-2]["usage"]["completion_tokens"] == 120
    assert server.running() == 0


def test_a_reader_that_stops_reading_gets_it_all_later_in_fewer_chunks_and_hinders_nobody() -> None:
    options = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}}
    with sim.SimServer("--profile", "nvlink", "--time-scale", "1000", *sim.DDTREE) as fast:
        asked = fast.chat(
            "prose",
            stream=True,
            return_spec_tokens_details=True,
            max_tokens=60_000,
            ignore_eos=True,
            **options,
        )
        body = json.dumps(asked).encode()
        with socket.socket() as reader:
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            reader.settimeout(30)
            reader.connect(("127.0.0.1", fast.port))
            reader.sendall(
                b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
                + body
            )
            fast.wait_running(1)
            assert fast.chat_events("fib")[-1] == "[DONE]"
            fast.wait_running(0, 60)
            raw = b""
            while not raw.endswith(b"0\r\n\r\n"):
                block = reader.recv(1 << 20)
                assert block
                raw += block
    assert raw.count(b'"finish_reason":"length"') == 1
    steps = int(re.findall(rb'"spec_verify_ct":(\d+)', raw)[0])
    assert raw.count(b'"content":"') < steps
    assert raw.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")


def test_without_a_parser_all_is_content_and_only_the_end_mark_shows(slow: sim.SimServer) -> None:
    body = slow.chat("fib", max_tokens=600)
    with sim.SimServer("--time-scale", "500") as plain:
        told = plain.post_json("/v1/chat/completions", body)["choices"][0]["message"]
    assert told["reasoning_content"] is None
    assert told["content"].count("</think>") == 1
    assert "<think>" not in told["content"]


def test_a_client_that_hangs_up_leaves_the_batch(slow: sim.SimServer) -> None:
    for stream in (True, False):
        body = json.dumps(slow.chat(stream=stream, **ENDLESS)).encode()
        with socket.create_connection(("127.0.0.1", slow.port)) as caller:
            caller.sendall(
                b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
                + body
            )
            slow.wait_running(1)
        slow.wait_running(0)


def test_a_full_queue_is_503_or_an_error_line_in_a_200_stream(slow: sim.SimServer) -> None:
    first = slow.open("POST", "/v1/chat/completions", slow.chat(stream=True, rid="first", **ENDLESS))
    body = slow.chat(rid="waits", **ENDLESS)
    waiting = threading.Thread(target=slow.call, args=("POST", "/v1/chat/completions", body))
    waiting.start()
    slow.wait_running(2)
    status, text = slow.call("POST", "/v1/chat/completions", slow.chat())
    full = {
        "object": "error",
        "message": "The request queue is full.",
        "type": "503",
        "param": None,
        "code": 503,
    }
    assert (status, json.loads(text)) == (503, full)
    for path, body in (
        ("/v1/chat/completions", slow.chat(stream=True)),
        ("/v1/completions", {"prompt": "a", "stream": True}),
    ):
        status, text = slow.call("POST", path, body)
        error, done = sim.events(text)
        assert (status, done) == (200, "[DONE]")
        assert error["error"] == {**full, "type": "SERVICE_UNAVAILABLE"}
    native, done = sim.events(slow.call("POST", "/generate", {"text": "a", "stream": True})[1])
    assert native["meta_info"]["finish_reason"]["status_code"] == 503

    assert slow.call("POST", "/v1/chat/completions", slow.chat(rid="first"))[0] == 400
    assert slow.call("POST", "/flush_cache")[0] == 400
    begun = time.monotonic()
    assert slow.call("POST", "/flush_cache?timeout=0.2") == (400, "Timed out waiting for idle state.\n")
    assert time.monotonic() - begun >= 0.2

    for rid in ("unknown", "waits", "first"):
        assert slow.call("POST", "/abort_request", {"rid": rid}) == (200, "")
    waiting.join(timeout=10)
    assert not waiting.is_alive()
    ended = sim.events(first.read().decode())
    sim.hang_up(first)
    assert [ended[-2]["choices"][0]["finish_reason"], ended[-1]] == ["abort", "[DONE]"]
    assert slow.call("POST", "/flush_cache?timeout=5")[0] == 200


def test_abort_all_ends_streams_and_whole_answers(slow: sim.SimServer) -> None:
    answer: list[Any] = []
    body = slow.chat(**ENDLESS)
    caller = threading.Thread(target=lambda: answer.append(slow.post_json("/v1/chat/completions", body)))
    caller.start()
    slow.wait_running(1)
    time.sleep(0.2)
    assert slow.call("POST", "/abort_request", {"abort_all": True}) == (200, "")
    caller.join(timeout=10)
    assert answer[0]["choices"][0]["finish_reason"] == "abort"
    assert 0 < answer[0]["usage"]["completion_tokens"] < 20_000


def test_keys() -> None:
    with sim.SimServer("--api-key", "k", "--time-scale", "100", "--enable-metrics") as keyed:
        assert keyed.call("GET", "/v1/models") == (401, '{"error":"Unauthorized"}')
        assert keyed.call("GET", "/nope")[0] == 401
        assert keyed.call("POST", "/v1/chat/completions", keyed.chat("fib"), key="wrong")[0] == 401
        assert keyed.call("POST", "/v1/chat/completions", keyed.chat("fib"), key="k")[0] == 200
        assert keyed.call("POST", "/flush_cache", key="k")[0] == 200
        for path in ("/health", "/health_generate", "/ready", "/metrics"):
            assert keyed.call("GET", path)[0] == 200
        told = json.loads(keyed.call("GET", "/server_info", key="k")[1])
        assert (told["api_key"], "--api-key k " in told["launch_command"]) == ("k", True)
        assert "'api_key': '***'" in keyed.log
    with sim.SimServer("--api-key", "k", "--admin-api-key", "a", "--time-scale", "100") as keyed:
        assert [keyed.call("POST", "/flush_cache", key=key)[0] for key in ("k", "a")] == [401, 200]
        assert [keyed.call("GET", "/v1/models", key=key)[0] for key in ("k", "a")] == [200, 401]
        assert keyed.call("GET", "/metrics")[0] == 404  # not mounted


def test_the_log_has_sglangs_milestones_in_order() -> None:
    with sim.SimServer(*sim.DDTREE, "--speculative-eagle-topk", "4") as started:
        log = started.log
    places = [
        log.find(line)
        for line in (
            "WARNING: DDTREE only supports speculative_eagle_topk == 1", "WARNING: Max running requests is reset to 48",
            "server_args={", "Load weight begin.", "Load weight end. elapsed=", "KV Cache is allocated",
            "Memory pool end.", "Initialized DFLASH draft runner.", "Initialized DDTree worker. block_size=8, tree_budget=8",
            "max_total_num_tokens=", "Application startup complete.", "Uvicorn running on http://127.0.0.1:", sim.READY,
        )
    ]  # fmt: skip
    assert -1 not in places
    assert places == sorted(places)


def test_loading_takes_its_time_and_the_port_refuses_meanwhile() -> None:
    with sim.SimServer("--sim-startup-s", "2", "--time-scale", "2", wait=False) as loading:
        loading.wait_for("Load weight begin.")
        with pytest.raises(ConnectionRefusedError):
            loading.call("GET", "/health")
        loading.wait_for(sim.READY)
        assert loading.get_json("/server_info")["status"] == "ready"


def test_sigterm_while_loading_ends_at_once() -> None:
    with sim.SimServer("--sim-startup-s", "3600", wait=False) as loading:
        loading.wait_for("Load weight begin.")
        assert loading.terminate() == 0


def test_sigterm_drains_what_runs_takes_nothing_new_and_exits_0() -> None:
    with sim.SimServer() as draining:
        assert draining.get_json("/server_info")["status"] == "ready"
        running = draining.open(
            "POST", "/v1/chat/completions", draining.chat(stream=True, max_tokens=60, ignore_eos=True)
        )
        draining.process.terminate()
        deadline = time.monotonic() + 5
        while draining.call("GET", "/health")[0] != 503:
            assert time.monotonic() < deadline
        assert draining.call("POST", "/v1/chat/completions", draining.chat())[0] == 503
        ended = sim.events(running.read().decode())
        sim.hang_up(running)
        assert (ended[-2]["choices"][0]["finish_reason"], ended[-1]) == ("length", "[DONE]")
        assert draining.process.wait(timeout=10) == 0


def test_a_second_server_on_the_port_starts_fully_says_it_is_ready_and_exits_3(server: sim.SimServer) -> None:
    second = sim.run("--port", str(server.port), "--sim-startup-s", "0")
    assert second.returncode == 3
    assert second.stderr.index("address already in use") < second.stderr.index(sim.READY)
    assert server.call("GET", "/health")[0] == 200


def test_exit_codes_of_bad_command_lines() -> None:
    unknown = sim.run("--nonsense", "1")
    assert unknown.returncode == 2
    assert "error: unrecognized arguments: --nonsense 1" in unknown.stderr
    refused = sim.run("--speculative-algorithm", "MAGIC")
    assert (refused.returncode, refused.stderr) == (
        1,
        "ValueError: Unknown speculative algorithm name: MAGIC\n",
    )


def test_the_environment_shows_only_on_request() -> None:
    env = {"SGLANG_EXPOSE_OWN_ENV_VARS": "1", "SGLANG_DDTREE_MAX_TOPK": "3"}
    with sim.SimServer(*sim.DDTREE, env=env) as shown:
        told = shown.get_json("/server_info")
    assert told["env_vars"] == env
    assert told["speculative_ddtree_budget"] == 8
    assert told["internal_states"][0]["effective_max_running_requests_per_dp"] == 48
