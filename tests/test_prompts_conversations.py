"""What is asked after an answer."""

import json
from typing import Any

from loadgen.chat_request import ChatOptions
from loadgen.prompts.bodies import ASK, LoadPrompts, Parts, load_message
from loadgen.prompts.conversations import Conversations
from loadgen.prompts.salts import DEFAULT_ALPHABET, SaltKey

KEY = SaltKey("run", "cell", 0, 1)
PROMPTS = LoadPrompts(
    [(load_message("A"),), (load_message("B"),)], ChatOptions("m", 8, 0), KEY, DEFAULT_ALPHABET
)


def said(conversation: int, turn: int) -> str | None:
    return f"c{conversation} t{turn}" if turn < 2 or conversation == 0 else None


TALK = Conversations(PROMPTS, turns=3, later=said, think_time_s=1.5)


def messages(parts: Parts) -> list[Any]:
    whole: dict[str, Any] = json.loads(b"".join(parts))
    assert whole["model"] == "m"
    return whole["messages"]  # type: ignore[no-any-return]


def test_a_conversation_takes_as_many_indexes_as_it_has_turns() -> None:
    assert [TALK.index(c, t) for c in range(2) for t in range(3)] == list(range(6))


def test_the_first_turn_is_an_ordinary_prompt_with_the_conversations_salt() -> None:
    first = f"{KEY.salt(1)} B{ASK}"
    assert messages(TALK.first_body(1)) == [{"role": "user", "content": first}]
    assert TALK.user_text(1, 0) == first


def test_a_later_turn_sends_all_that_was_said_with_the_models_answers() -> None:
    earlier = [(TALK.user_text(0, 0), 'an "answer"\n'), (TALK.user_text(0, 1), "")]
    assert messages(TALK.next_body(0, 2, earlier)) == [
        {"role": "user", "content": f"{KEY.salt(0)} A{ASK}"},
        {"role": "assistant", "content": 'an "answer"\n'},
        {"role": "user", "content": "c0 t1"},
        {"role": "assistant", "content": ""},
        {"role": "user", "content": "c0 t2"},
    ]


def test_a_later_turn_begins_with_the_bytes_of_the_one_before() -> None:
    first = b"".join(PROMPTS.open_parts(1))
    second = b"".join(TALK.next_body(1, 1, [(TALK.user_text(1, 0), "x")]))
    assert second.startswith(first)
    assert b"".join(TALK.first_body(1)).startswith(first)


def test_a_conversation_may_end_early() -> None:
    assert [TALK.has_turn(0, turn) for turn in range(4)] == [True, True, True, False]
    assert [TALK.has_turn(1, turn) for turn in range(4)] == [True, True, False, False]
