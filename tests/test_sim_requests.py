"""Request bodies: SGLang's checks and words, the chat template, and no crash on any JSON."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.sim import requests, tokenizer
from loadgen.sim.prefix_cache import PAGE_TOKENS
from loadgen.sim.requests import BadRequestError

CONTEXT = 1000
CHAT = {"model": "m", "messages": [{"role": "user", "content": "hello"}]}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
FIELDS = (
    "messages", "max_tokens", "max_completion_tokens", "temperature", "top_p", "n", "stop", "rid", "seed", "stream",
    "stream_options", "chat_template_kwargs", "ignore_eos", "min_tokens", "model", "prompt", "text", "input_ids",
    "sampling_params",
)  # fmt: skip


def refused(body: dict[str, Any], read: Any = requests.chat) -> BadRequestError:
    with pytest.raises(BadRequestError) as error:
        read(body, CONTEXT)
    return error.value


def test_defaults_of_a_chat_request() -> None:
    got = requests.chat(CHAT, CONTEXT)
    assert (got.stream, got.separate_reasoning, got.stream_reasoning, got.wish.thinking) == (
        False,
        True,
        True,
        True,
    )
    assert got.asked == "hello"
    assert got.wish.max_tokens == CONTEXT - len(got.prompt_ids)
    assert len(got.rid) == 32
    assert requests.chat({**CHAT, "rid": "mine"}, CONTEXT).rid == "mine"
    assert requests.chat({**CHAT, "unknown_option": 1, "max_tokens": 7}, CONTEXT).wish.max_tokens == 7
    assert requests.chat({**CHAT, "max_completion_tokens": 5, "max_tokens": 7}, CONTEXT).wish.max_tokens == 5


def test_the_template_prefills_the_thought_and_its_beginning_is_whole_cache_pages() -> None:
    text = tokenizer.decode(requests.chat(CHAT, CONTEXT).prompt_ids)
    before, after = text.split("hello")
    assert len(tokenizer.encode(before)) == PAGE_TOKENS
    assert after.endswith("<think>")
    for key in ("thinking", "enable_thinking"):
        instant = requests.chat({**CHAT, "chat_template_kwargs": {key: False}}, CONTEXT)
        assert not instant.wish.thinking
        assert tokenizer.decode(instant.prompt_ids).endswith("<think></think>")
    system = [{"role": "system", "content": "Be brief."}, *CHAT["messages"]]
    assert "Be brief." in tokenizer.decode(requests.chat({"messages": system}, CONTEXT).prompt_ids)


def test_content_may_be_parts() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "image_url"}, {"type": "text", "text": "b"}]
    assert requests.chat({"messages": [{"role": "user", "content": parts}]}, CONTEXT).asked == "a\nb"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"messages": []}, "Messages cannot be empty."),
        ({"max_tokens": -3}, "max_new_tokens must be at least 0, got -3."),
        ({"temperature": -1}, "temperature must be a non-negative finite number, got -1.0."),
        ({"temperature": float("nan")}, "temperature must be a non-negative finite number, got nan."),
        ({"top_p": 0}, "top_p must be in (0, 1], got 0.0."),
        ({"n": 2}, "one choice"),
        ({"max_tokens": 5000}, "You requested a total of 5023 tokens: 23 tokens from the input messages and 5000"),
        ({"messages": [{"role": "user", "content": "x " * 2000}]}, "is longer than the model's context length (1000 tokens)."),
    ],
)  # fmt: skip
def test_refusals(change: dict[str, Any], message: str) -> None:
    error = refused({**CHAT, **change})
    assert message in error.message
    assert error.kind == "BadRequestError"


@pytest.mark.parametrize(
    "change",
    [
        {"messages": None}, {"messages": "hi"}, {"messages": [1]}, {"messages": [{"role": "user", "content": 1}]},
        {"stream": "yes"}, {"max_tokens": 1.5}, {"max_tokens": True}, {"seed": "x"}, {"rid": 1}, {"stop": [1]},
        {"temperature": "hot"}, {"stream_options": []}, {"chat_template_kwargs": 3},
    ],
)  # fmt: skip
def test_wrong_types_are_validation_errors(change: dict[str, Any]) -> None:
    error = refused({**CHAT, **change})
    assert error.message.startswith("1 validation error:\n")
    assert error.kind == "Bad Request"


def test_completions_and_generate() -> None:
    got = requests.completion({"prompt": ["Once upon"], "max_tokens": 3}, CONTEXT)
    assert (got.asked, got.wish.max_tokens, got.wish.thinking) == ("Once upon", 3, False)
    assert requests.completion({"prompt": got.prompt_ids}, CONTEXT).asked == "Once upon"
    assert requests.completion({"prompt": "Q <think>\n"}, CONTEXT).wish.thinking
    sampling = {"max_new_tokens": 9, "ignore_eos": True, "temperature": 0, "stop": "x"}
    native = requests.generate(
        {"input_ids": got.prompt_ids, "sampling_params": sampling, "stream": True}, CONTEXT
    )
    assert native.stream
    assert (native.wish.max_tokens, native.wish.ignore_eos, native.wish.stop) == (9, True, ("x",))
    assert requests.generate({"text": "a"}, CONTEXT).wish.max_tokens == 128
    for body in ({}, {"text": 5}, {"input_ids": []}, {"input_ids": [True]}):
        assert refused(body, requests.generate).kind == "Bad Request"
    assert "no token id" in refused({"input_ids": [7]}, requests.generate).message


@pytest.mark.parametrize("raw", [b"", b"{", b'{"a":', b"\xff", b"[" * 100_000, b"[1]", b"null"])
def test_bad_json(raw: bytes) -> None:
    with pytest.raises(BadRequestError) as error:
        requests.parse_json(raw)
    assert error.value.kind == "Bad Request"


def test_texts_for_the_tokenizer() -> None:
    assert requests.prompt_texts({"prompt": "a"}) == "a"
    assert requests.prompt_texts({"prompt": ["a", "b"]}) == ["a", "b"]
    assert requests.token_text({"tokens": tokenizer.encode("a b")}) == "a b"
    assert requests.token_text({"tokens": []}) == ""
    for body in ({}, {"prompt": 1}, {"prompt": [1]}):
        with pytest.raises(BadRequestError):
            requests.prompt_texts(body)
    for body in ({}, {"tokens": "a"}, {"tokens": ["a"]}, {"tokens": [-5]}):
        with pytest.raises(BadRequestError):
            requests.token_text(body)


@given(st.dictionaries(st.sampled_from(FIELDS), json_values))
def test_any_json_is_read_or_refused(body: dict[str, Any]) -> None:
    whole = requests.parse_json(json.dumps({**CHAT, "prompt": "p", "text": "t", **body}).encode())
    for read in (requests.chat, requests.completion, requests.generate):
        try:
            got = read(whole, CONTEXT)
        except BadRequestError:
            continue
        assert 0 < got.wish.max_tokens <= CONTEXT
