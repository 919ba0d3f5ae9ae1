"""Datasets: the shapes they come in, and one clear line for everything else."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.errors import BadInput
from loadgen.prompts.datasets import Chat, Message, parse_dataset


def parsed(*items: Any) -> tuple[Chat, ...]:
    return parse_dataset("\n".join(json.dumps(item) for item in items), "d.jsonl")


def chat(*messages: tuple[str, str]) -> Chat:
    return Chat(tuple(Message(*message) for message in messages))


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ("What is it?", chat(("user", "What is it?"))),
        ({"prompt": "p", "answer": "x"}, chat(("user", "p"))),
        ({"question": "q"}, chat(("user", "q"))),
        ({"turns": ["one", "two"]}, chat(("user", "one"), ("user", "two"))),
        (
            {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]},
            chat(("system", "s"), ("user", "u")),
        ),
        (
            {"conversations": [{"from": "human", "value": "u"}, {"from": "gpt", "value": "a"}], "id": "7"},
            chat(("user", "u"), ("assistant", "a")),
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"text": "b"}]}]},
            chat(("user", "ab")),
        ),
        (
            {"messages": [{"role": "assistant", "content": None}, {"role": "user", "content": "u"}]},
            chat(("user", "u")),
        ),
        ({"text": "\ud800 café"}, chat(("user", "\ufffd café"))),
    ],
)
def test_shapes(item: Any, expected: Chat) -> None:
    assert parsed(item) == (expected,)


def test_lines_and_a_list_are_the_same() -> None:
    items = [{"prompt": "one"}, "two"]
    assert parse_dataset(json.dumps(items, indent=1), "d.json") == parsed(*items)
    assert parse_dataset('"a\u2028b"\r\n\n"c"\n', "d") == (
        Chat.of_prompt("a\u2028b"),
        Chat.of_prompt("c"),
    )


def test_a_chat_knows_its_opening_and_its_turns() -> None:
    whole = chat(("system", "s"), ("user", "u1"), ("assistant", "a1"), ("user", "u2"))
    assert whole.opening == whole.messages[:2]
    assert whole.user_turns == ("u1", "u2")


def test_items_in_which_no_user_speaks_are_left_out() -> None:
    silent = {"conversations": [{"from": "gpt", "value": "hello"}]}
    assert parsed(silent, {"prompt": " "}, "x") == (Chat.of_prompt("x"),)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "d: no item has a user's message"),
        ("[]", "d: no item has a user's message"),
        ('"a"\n{"prompt": ', "d:2: not JSON"),
        ('[{"prompt": "a"}, 5]', "d: item 2: an item is a text, or an object with one of messages"),
        ('{"data": 1}', "d:1: the object has none of messages"),
        ('{"prompt": {"a": 1}}', "d:1: prompt: it is no text"),
        ('{"messages": ["x"]}', "d:1: messages: a message is an object with role and content"),
        ('{"messages": [{"role": "tool", "content": "x"}]}', "d:1: messages: role is 'tool'; use system"),
        ('{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}', "a part is no text"),
        ("[" * 100_000, "d: the JSON is nested too deep"),
    ],
)
def test_what_is_no_dataset_is_told_in_one_line(text: str, said: str) -> None:
    with pytest.raises(BadInput) as caught:
        parse_dataset(text, "d")
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["messages", "conversations", "role", "from", "content", "value", "turns", "text"]
            ),
            inner,
            max_size=3,
        )
    ),
)


@given(st.text() | _JSON.map(json.dumps))
def test_any_text_is_chats_or_one_line(text: str) -> None:
    try:
        chats = parse_dataset(text, "d")
    except BadInput as error:
        chats, said = (), str(error)
    else:
        said = ""
    assert bool(chats) != bool(said)
    assert "\n" not in said
    assert all(chat_.user_turns for chat_ in chats)
    assert all(message.content.encode() for chat_ in chats for message in chat_.messages)


def test_a_large_file_is_read(tmp_path: Path) -> None:
    assert len(parsed(*({"prompt": f"{n} " * 50} for n in range(5000)))) == 5000
