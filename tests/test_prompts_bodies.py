"""Bodies in pieces: the bytes that a request would have, without a copy of what is shared."""

import json
import mmap
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.chat_request import ChatOptions, chat_body
from loadgen.prompts.bodies import ASK, LoadPrompts, Parts, behind_salt, hold, load_message
from loadgen.prompts.datasets import Message
from loadgen.prompts.salts import DEFAULT_ALPHABET, SaltKey

KEY = SaltKey("run", "cell", 0, 1)
OPTIONS = ChatOptions("kimi", 32, 0)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)


def body(parts: Parts) -> Any:
    return json.loads(b"".join(parts))


def prompts(*texts: str, **more: Any) -> LoadPrompts:
    return LoadPrompts([(load_message(text),) for text in texts], OPTIONS, KEY, DEFAULT_ALPHABET, **more)


def test_a_request_is_the_same_wherever_it_is_made_and_begins_with_its_salt() -> None:
    made = [prompts("text A", "text B") for _ in range(2)]
    for index in range(6):
        parts = made[0].parts(index)
        assert b"".join(parts) == b"".join(made[1].parts(index))
        message = f"{KEY.salt(index)} text {'AB'[index % 2]}{ASK}"
        assert b"".join(parts) == chat_body(OPTIONS, message)
        assert made[0].messages(index) == (Message("user", message),)
        assert made[0].body_bytes(index) == sum(map(len, parts))


@given(TEXTS, TEXTS, st.integers(0, 10**6))
def test_any_text_survives_with_or_without_a_shared_part(text: str, shared: str, index: int) -> None:
    for made in (prompts(text), prompts(text, shared=shared)):
        sent = body(made.parts(index))
        assert [Message(**message) for message in sent["messages"]] == list(made.messages(index))
        assert sent["model"] == "kimi"
        assert text in sent["messages"][0]["content"]


def test_a_shared_part_comes_first_behind_the_salt_of_the_cell() -> None:
    made = prompts("A", "B", shared="in common")
    first, second = (made.messages(index)[0].content for index in range(2))
    common = f"{KEY.shared()} in common\n"
    assert (
        first
        == f"{common}{KEY.salt(0)} A{ASK}"
        == behind_salt(KEY.salt(0), f"A{ASK}", KEY.shared(), "in common")
    )
    assert second.startswith(f"{common}{KEY.salt(1)} B")
    other = LoadPrompts(
        [(load_message("A"),)], OPTIONS, SaltKey("run", "other", 0, 1), DEFAULT_ALPHABET, "in common"
    )
    assert other.messages(0)[0].content.split()[:3] != first.split()[:3]


def test_a_chat_of_a_dataset_has_its_salt_at_the_very_start() -> None:
    chats = [
        (Message("system", "Be brief."), Message("user", 'say "hi"')),
        (Message("user", "hello\n"),),
    ]
    made = LoadPrompts(chats, OPTIONS, KEY, DEFAULT_ALPHABET)
    assert body(made.parts(0))["messages"] == [
        {"role": "system", "content": f"{KEY.salt(0)} Be brief."},
        {"role": "user", "content": 'say "hi"'},
    ]
    assert body(made.parts(1))["messages"] == [{"role": "user", "content": f"{KEY.salt(1)} hello\n"}]


def test_more_messages_may_follow_on_the_same_bytes() -> None:
    made = prompts("A")
    parts = (*made.open_parts(0), made.close([Message("assistant", "a"), Message("user", "u")]))
    sent = body(parts)
    assert [message["role"] for message in sent["messages"]] == ["user", "assistant", "user"]
    assert b"".join(parts).startswith(b"".join(made.open_parts(0)))


def test_template_options_and_fields_of_a_user_are_sent() -> None:
    options = ChatOptions(
        "m", 8, 0, thinking=False, template_kwargs={"thinking": True, "effort": "low"}, extra={"top_p": 0.9}
    )
    sent = body(LoadPrompts([(load_message("x"),)], options, KEY, DEFAULT_ALPHABET).parts(0))
    assert sent["chat_template_kwargs"] == {"thinking": True, "enable_thinking": False, "effort": "low"}
    assert sent["top_p"] == 0.9


def test_no_request_copies_the_text_that_it_shares() -> None:
    made = prompts("x" * 500_000, shared="y" * 400_000)
    heads = {id(made.parts(index)[0]) for index in range(20)}
    texts = [made.parts(index)[2] for index in range(20)]
    assert len(heads) == 1
    assert all(isinstance(text, memoryview) and text.obj is texts[0].obj for text in texts)  # type: ignore[union-attr]
    assert made.body_bytes(0) > 900_000


@given(st.lists(st.binary(max_size=50), max_size=20), st.sampled_from([0, 1, 100, 10_000]))
def test_pieces_are_held_as_they_were(pieces: list[bytes], budget: int) -> None:
    views = hold(pieces, budget)
    assert [bytes(view) for view in views] == pieces
    assert all(view.readonly for view in views)


@pytest.mark.parametrize(("budget", "kind"), [(1000, bytes), (999, mmap.mmap)])
def test_above_the_budget_they_lie_in_a_mapped_file(budget: int, kind: type) -> None:
    views = hold([b"a" * 400, b"b" * 600], budget)
    assert {type(view.obj) for view in views} == {kind}
    made = prompts("A" * 2000, "B", budget_bytes=budget)
    assert b"".join(made.parts(0)) == b"".join(prompts("A" * 2000, "B").parts(0))
