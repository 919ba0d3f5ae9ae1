"""What the sweep relies on around answers: queue, aborts, cache, counters, speculation, and an orderly end.

The same tests run against the simulator and against the real SGLang. Where they disagree, the simulator is wrong.
"""

import itertools
import signal
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

import pytest
from chat_events import CODING, PROSE, RUNNING_USAGE, USAGE, finish, kind, order, salted, text, usage
from live_server import DONE, LiveServer, Stream, eventually, opened

LONG = {"max_tokens": 3500, "ignore_eos": True, "stream_options": USAGE}
SPEC_KEYS = {
    "spec_accept_rate", "spec_accept_length", "spec_num_correct_drafts", "spec_num_proposed_drafts", "spec_verify_ct",
    "spec_correct_drafts_histogram",
}  # fmt: skip
SLOTS = 2
STREAM_REFUSAL = {
    "object": "error",
    "message": "The request queue is full.",
    "type": "SERVICE_UNAVAILABLE",
    "param": None,
    "code": 503,
}
REFUSAL = {
    "object": "error",
    "message": "The request queue is full.",
    "type": "503",
    "param": None,
    "code": 503,
}


def idle(server: LiveServer) -> bool:
    return server.request("POST", "/flush_cache").status == 200


def abort_all(server: LiveServer) -> None:
    assert server.request("POST", "/abort_request", {"abort_all": True}).status == 200
    assert eventually(lambda: idle(server), 10)


@contextmanager
def busy(server: LiveServer, count: int) -> Iterator[list[tuple[Stream, Iterator[Any]]]]:
    """That many long streams, each past its first event. They are aborted at the end."""
    streams = [server.stream(salted(PROSE, n), **LONG) for n in range(count)]
    with opened(*streams):
        readers = [iter(stream) for stream in streams]
        assert [kind(next(reader)) for reader in readers] == ["role"] * count
        yield list(zip(streams, readers, strict=True))
        abort_all(server)


# Aborts and disconnects


def test_abort_by_rid(plain: LiveServer) -> None:
    with plain.stream(PROSE, rid="conformance-1", **LONG) as stream:
        reader = iter(stream)
        head = list(itertools.islice(reader, 3))
        assert {event["id"] for event in head} == {"conformance-1"}
        reply = plain.request("POST", "/abort_request", {"rid": "conformance-1"})
        assert (reply.status, reply.text) == (200, "")
        events = head + list(reader)
    assert order(events)[-3:] == ["finish", "usage", "done"]
    assert finish(events)["finish_reason"] == "abort"
    assert 0 < usage(events)["completion_tokens"] < LONG["max_tokens"]


def test_abort_of_an_unknown_rid_is_no_error(plain: LiveServer) -> None:
    assert plain.request("POST", "/abort_request", {"rid": "nobody"}).status == 200


def test_a_live_rid_cannot_be_used_twice(plain: LiveServer) -> None:
    with plain.stream(PROSE, rid="conformance-2", **LONG) as stream:
        next(iter(stream))
        assert plain.chat(PROSE, rid="conformance-2", max_tokens=1).status == 400
        abort_all(plain)


def test_abort_all(plain: LiveServer) -> None:
    with busy(plain, SLOTS) as running:
        assert plain.request("POST", "/abort_request", {"abort_all": True}).status == 200
        assert [finish(list(reader))["finish_reason"] for _, reader in running] == ["abort"] * SLOTS


def test_disconnect_frees_the_slot(plain: LiveServer) -> None:
    with busy(plain, SLOTS) as running:
        assert not idle(plain)
        for stream, _ in running:
            stream.close()
        assert eventually(lambda: idle(plain), 5)


# The queue


@contextmanager
def contested(server: LiveServer, send: Any) -> Iterator[tuple[Any, Future[Any]]]:
    """All slots busy, then two more requests for the one place in the queue: (reply of the refused, the other's)."""
    with ThreadPoolExecutor(2) as pool, busy(server, SLOTS):
        done, waiting = wait(
            [pool.submit(send, n) for n in range(2)], return_when=FIRST_COMPLETED, timeout=10
        )
        assert (len(done), len(waiting)) == (1, 1)
        yield done.pop().result(), waiting.pop()
        abort_all(server)


def test_full_queue_refuses_a_whole_answer_with_503(plain: LiveServer) -> None:
    with contested(plain, lambda n: plain.chat(salted(CODING, n), max_tokens=5)) as (refused, queued):
        assert (refused.status, refused.json) == (503, REFUSAL)
        assert not wait([queued], timeout=0.5).done
    assert queued.result().json["choices"][0]["finish_reason"] == "abort"  # by the end of the contest


def test_full_queue_refuses_a_stream_inside_a_200(plain: LiveServer) -> None:
    """The one that waits has no response headers until it runs."""
    streams: list[Stream] = []

    def send(n: int) -> Stream:
        streams.append(plain.stream(salted(CODING, n), max_tokens=5))
        return streams[-1]

    with contested(plain, send) as (refused, queued):
        assert refused.response.status == 200
        assert list(refused) == [{"error": STREAM_REFUSAL}, DONE]
        assert not wait([queued], timeout=0.5).done
    with opened(*streams):
        assert queued.result().response.status == 200


# The prefix cache


def test_flush_when_idle_and_when_busy(plain: LiveServer) -> None:
    assert plain.request("POST", "/flush_cache").status == 200
    with busy(plain, 1):
        assert plain.request("POST", "/flush_cache").status == 400
    assert plain.request("POST", "/flush_cache?timeout=5").status == 200


def test_cached_tokens_of_a_repeat_and_after_a_flush(plain: LiveServer) -> None:
    def cached() -> tuple[int, int]:
        counts = plain.chat(PROSE * 8, max_tokens=2).json["usage"]
        return counts["prompt_tokens_details"]["cached_tokens"], counts["prompt_tokens"]

    assert idle(plain)
    assert cached()[0] == 0
    repeated, prompt = cached()
    assert prompt - 64 <= repeated < prompt
    assert idle(plain)
    assert cached()[0] == 0


# Counters


def test_counters_move_by_exactly_one_request(plain: LiveServer) -> None:
    names = ("sglang:generation_tokens_total", "sglang:prompt_tokens_total", "sglang:cached_tokens_total")
    before = [plain.counter(name) for name in names]
    counts = usage(plain.events(salted(CODING, 77), max_tokens=50, stream_options=USAGE))
    cached = counts["prompt_tokens_details"]["cached_tokens"]
    expected = [50, counts["prompt_tokens"], cached]

    def moved() -> list[float]:
        return [plain.counter(name) - start for name, start in zip(names, before, strict=True)]

    eventually(lambda: moved() == expected, 5)
    assert moved() == expected


def test_requests_now_in_the_server(plain: LiveServer) -> None:
    """`/v1/loads` is live; the gauges of /metrics move at log intervals only."""
    with busy(plain, SLOTS):
        (load,) = plain.get("/v1/loads")["loads"]
        assert load["num_running_reqs"] == SLOTS
        assert load["num_waiting_reqs"] == 0
        assert load["max_running_requests"] == SLOTS


# Speculation


def test_speculation_reports_each_request(ngram: LiveServer) -> None:
    steps_before = ngram.counter("sglang:spec_verify_calls_total")
    tokens_before = ngram.counter("sglang:generation_tokens_total")
    events = ngram.events(CODING, max_tokens=2000, return_spec_tokens_details=True, stream_options=USAGE)
    assert order(events) == ["role", "reasoning", "answer", "finish", "sglext", "usage", "done"]
    extension = events[-3]
    details = extension["sglext"]["spec_tokens_details"]
    assert details.keys() >= SPEC_KEYS
    tokens, steps = usage(events)["completion_tokens"], details["spec_verify_ct"]
    assert details["spec_accept_length"] == pytest.approx(tokens / steps)
    assert sum(details["spec_correct_drafts_histogram"]) == steps
    weighted = sum(n * times for n, times in enumerate(details["spec_correct_drafts_histogram"]))
    assert weighted == details["spec_num_correct_drafts"]
    assert eventually(lambda: ngram.counter("sglang:generation_tokens_total") - tokens_before >= tokens, 5)
    assert ngram.counter("sglang:generation_tokens_total") - tokens_before == tokens
    assert ngram.counter("sglang:spec_verify_calls_total") - steps_before == steps


def test_chunks_hold_several_tokens_with_speculation(ngram: LiveServer) -> None:
    options = {"max_tokens": 60, "ignore_eos": True, "chat_template_kwargs": {"thinking": False}}
    ngram.events(PROSE, **options)  # the second time, NGRAM knows the text
    events = ngram.events(PROSE, **options, return_spec_tokens_details=True, stream_options=RUNNING_USAGE)
    counts = [e["usage"]["completion_tokens"] for e in events if kind(e) == "answer"]
    steps = next(e for e in events if kind(e) == "sglext")["sglext"]["spec_tokens_details"]["spec_verify_ct"]
    assert counts[-1] == usage(events)["completion_tokens"] == 60
    assert any(after - before > 1 for before, after in itertools.pairwise(counts))
    assert len(counts) <= steps + 1 < 60  # one chunk for the prefill's token, then at most one for each step


def test_a_step_across_the_end_of_the_thought_gives_two_chunks_with_one_count(ngram: LiveServer) -> None:
    for _ in range(2):  # the second time, NGRAM knows the text and such a step is likely
        events = ngram.events(CODING, max_tokens=2000, stream_options=RUNNING_USAGE)
        chunks = [
            (kind(e), e["usage"]["completion_tokens"]) for e in events if kind(e) in ("reasoning", "answer")
        ]
        for (kind_before, before), (kind_after, after) in itertools.pairwise(chunks):
            assert before < after or (kind_before, kind_after, before) == ("reasoning", "answer", after)


def test_speculation_does_not_change_the_text(ngram: LiveServer) -> None:
    first, second = (ngram.events(CODING, max_tokens=2000) for _ in range(2))
    assert text(first, "answer") == text(second, "answer")
    assert "def fib(n)" in text(first, "answer")


def test_average_accept_length_since_the_flush(ngram: LiveServer) -> None:
    def average() -> float | None:
        value: float | None = ngram.get("/server_info")["internal_states"][0].get("avg_spec_accept_length")
        return value

    ngram.events(PROSE, max_tokens=200, ignore_eos=True)
    assert eventually(lambda: average() is not None, 5)
    assert average() >= 1
    assert eventually(lambda: idle(ngram), 5)
    assert average() is None


# The end


def test_sigterm_lets_a_running_stream_finish(ngram: LiveServer) -> None:
    """Last, because it ends the server (the next test that wants it gets a new one)."""
    with ngram.stream(PROSE, max_tokens=1500, ignore_eos=True, stream_options=USAGE) as stream:
        reader = iter(stream)
        head = list(itertools.islice(reader, 2))
        ngram.process.send_signal(signal.SIGTERM)
        assert eventually(lambda: not ngram.healthy(), 20)
        events = head + list(reader)
    assert finish(events)["finish_reason"] == "length"
    assert usage(events)["completion_tokens"] == 1500
    assert events[-1] == DONE
    assert ngram.process.wait(60) == 0
