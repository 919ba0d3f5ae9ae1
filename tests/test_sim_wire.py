"""Bytes of streams: whatever the steps, the parts add up to the whole; and the order of SGLang's events."""

import itertools
import json
from typing import Any

import pytest
import sim_fixtures as sim
from hypothesis import given
from hypothesis import strategies as st

from loadgen.sim import answers, wholes, wire
from loadgen.sim.answers import Answer, Wish
from loadgen.sim.scheduler import Sequence
from loadgen.sim.wire import View

VIEW = View(
    rid="id",
    model="kimi",
    created=5,
    stream=True,
    proposed_per_step=8,
    separate_reasoning=True,
    include_usage=True,
)


def with_(view: View = VIEW, **changes: Any) -> View:
    fields = {name: getattr(view, name) for name in View.__dataclass_fields__}
    return View(**{**fields, **changes})


def finished(answer: Answer, tokens: int | None = None) -> Sequence:
    seq = Sequence("id", [1] * 35, answer.ids, answer.total_tokens, 0.0, 0)
    seq.generated = answer.total_tokens if tokens is None else tokens
    seq.cached_tokens = 16
    seq.end = "done" if tokens is None else "abort"
    seq.accepts, seq.verify_steps = [1, 2], 3
    return seq


def stream(encoder: Any, seq: Sequence, cuts: list[int]) -> list[Any]:
    """The events when the tokens come in steps that end at `cuts`."""
    stops = [*sorted({cut for cut in cuts if 0 < cut < seq.generated}), seq.generated]
    end, seq.end = seq.end, None
    raw = encoder.first(stops[0]) if len(stops) > 1 else encoder.first(1)
    for start, stop in itertools.pairwise(stops[:-1]):
        raw += encoder.step(start, stop)
    seq.end = end
    raw += encoder.last(stops[-2] if len(stops) > 1 else 1, seq.generated)
    return sim.events(raw.decode())


def joined(events: list[Any], key: str) -> str:
    return "".join(e["choices"][0]["delta"].get(key) or "" for e in events[:-1] if e["choices"])


ANSWERS = st.builds(
    answers.answer,
    st.sampled_from(["fib", "gcd", "a story"]),
    st.integers(0, 3),
    st.builds(
        Wish,
        st.integers(2, 700),
        st.just(0),
        st.booleans(),
        st.sampled_from([(), ("the",), ("def ", "while")]),
    ),
)


@given(ANSWERS, st.lists(st.integers(1, 700), max_size=60), st.booleans(), st.booleans())
def test_a_chat_stream_adds_up_to_the_answer_in_one_piece(
    answer: Answer, cuts: list[int], separate: bool, stream_reasoning: bool
) -> None:
    view = with_(separate_reasoning=separate, stream_reasoning=stream_reasoning, continuous_usage=True)
    seq = finished(answer)
    events = stream(wire.ChatEncoder(answer, view, seq), seq, cuts)
    whole = wholes.chat_json(answer, view, seq)
    message = whole["choices"][0]["message"]
    assert joined(events, "reasoning_content") == (message["reasoning_content"] or "")
    assert joined(events, "content") == message["content"]
    assert events[-1] == "[DONE]"
    assert events[-2]["usage"] == whole["usage"]
    assert events[-3]["choices"][0]["finish_reason"] == whole["choices"][0]["finish_reason"]
    counts = [e["usage"]["completion_tokens"] for e in events[1:-3]]
    assert counts == sorted(counts)
    if separate and not stream_reasoning:
        assert sum(bool(e["choices"][0]["delta"].get("reasoning_content")) for e in events[:-2]) <= 1
    assert message["content"] + (message["reasoning_content"] or "") != ""


@given(ANSWERS, st.lists(st.integers(1, 700), max_size=30))
def test_a_completion_stream_adds_up(answer: Answer, cuts: list[int]) -> None:
    seq = finished(answer)
    events = stream(wire.CompletionEncoder(answer, VIEW, seq), seq, cuts)
    whole = wholes.completion_json(answer, VIEW, seq)
    assert "".join(e["choices"][0]["text"] for e in events[:-2]) == whole["choices"][0]["text"]
    reasons = [e["choices"][0]["finish_reason"] for e in events[:-2]]
    assert reasons == [None] * (len(reasons) - 1) + [answer.finish_reason]
    assert events[-2]["usage"] == whole["usage"]


@given(ANSWERS, st.lists(st.integers(1, 700), max_size=10))
def test_a_generate_stream_is_cumulative(answer: Answer, cuts: list[int]) -> None:
    seq = finished(answer)
    native = wholes.Native(lambda s: 100 + s, metrics=False)
    encoder = native.encoder(answer, VIEW, seq)
    events = stream(encoder, seq, cuts)
    assert events[-2] == json.loads(wire.dumps(native.json(answer, VIEW, seq)))
    assert (
        events[-2]["meta_info"]["completion_tokens"] == len(events[-2]["output_ids"]) == answer.total_tokens
    )


def test_a_reasoning_that_is_cut_leaves_no_content_and_counts_all_as_reasoning() -> None:
    answer = answers.answer("fib", 0, Wish(50))
    whole = wholes.chat_json(answer, VIEW, finished(answer))
    assert whole["choices"][0]["message"]["content"] == ""
    assert whole["usage"]["reasoning_tokens"] == 50


def test_the_end_mark_is_a_reasoning_token_and_shows_only_unseparated() -> None:
    answer = answers.answer("fib", 0, Wish(1000))
    whole = wholes.chat_json(answer, VIEW, finished(answer))
    assert "</think>" not in json.dumps(whole)
    assert whole["usage"]["reasoning_tokens"] == answer.thinking_tokens
    glued = wholes.chat_json(answer, with_(separate_reasoning=False), finished(answer))
    message = glued["choices"][0]["message"]
    assert message["reasoning_content"] is None
    assert message["content"].count("</think>") == 1
    assert "<think>" not in message["content"]
    assert glued["usage"]["reasoning_tokens"] == 0


def test_an_abort_ends_a_stream_with_its_own_reason() -> None:
    answer = answers.answer("fib", 0, Wish(1000))
    seq = finished(answer, tokens=10)
    events = stream(wire.ChatEncoder(answer, VIEW, seq), seq, [4])
    assert [e["choices"][0]["finish_reason"] for e in events[-3:-2]] == ["abort"]
    assert events[-2]["usage"]["completion_tokens"] == 10
    assert (
        wholes.Native(float, metrics=True).json(answer, VIEW, seq)["meta_info"]["finish_reason"]["type"]
        == "abort"
    )


def test_extensions_come_before_usage_and_only_if_asked() -> None:
    answer = answers.answer("fib", 0, Wish(5))
    seq = finished(answer)
    assert wire.extensions(VIEW, seq) == {}
    view = with_(spec_details=True, cached_details=True)
    events = stream(wire.ChatEncoder(answer, view, seq), seq, [2])
    found = events[-3]["sglext"]
    assert (events[-3]["choices"], events[-3]["usage"]) == ([], None)
    assert found["cached_tokens_details"] == {"device": 16, "host": 0}
    assert found["spec_tokens_details"]["spec_accept_length"] == 5 / 3
    assert found["spec_tokens_details"]["spec_accept_rate"] == 2 / 24
    seq.verify_steps = 0
    assert "spec_tokens_details" not in wire.extensions(view, seq)


@pytest.mark.parametrize("hostile", ['"}],"x":[{"', "\n\ndata: [DONE]\n\n", "\ud800", "\u2028é"])
def test_a_hostile_rid_or_model_stays_a_string(hostile: str) -> None:
    answer = answers.answer("fib", 0, Wish(5))
    seq = finished(answer)
    view = with_(rid=hostile, model=hostile, include_usage=False)
    for encoder in (wire.ChatEncoder(answer, view, seq), wire.CompletionEncoder(answer, view, seq)):
        events = stream(encoder, seq, [2])
        assert all((e["id"], e["model"]) == (hostile, hostile) for e in events[:-1])
    assert json.loads(wire.dumps(wholes.chat_json(answer, view, seq)))["model"] == hostile


def test_a_frame_is_a_chunk_of_http() -> None:
    assert wire.frame(b"x" * 26) == b"1a\r\n" + b"x" * 26 + b"\r\n"
