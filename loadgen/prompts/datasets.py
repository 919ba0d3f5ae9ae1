"""Datasets of chats: JSON lines, or one JSON list, in the shapes that datasets are found in.

An item is a text, or an object with one of: `messages` (OpenAI: role, content), `conversations` (ShareGPT: from,
value), `turns` (MT-Bench: what the user says, in order), or `prompt`, `question`, `instruction`, `text` (one prompt).
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from loadgen.errors import BadInput

_ROLES = {
    "system": "system",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bot": "assistant",
    "model": "assistant",
}
_PROMPTS = ("prompt", "question", "instruction", "text")
_SHAPES = "messages, conversations, turns, prompt, question, instruction, text"


@dataclass(frozen=True, slots=True)
class Message:
    """One message of a chat. `role` is system, user or assistant."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Chat:
    """Messages in order; at least one is the user's. The data's answers are kept, and are not what a server answers."""

    messages: tuple[Message, ...]

    @classmethod
    def of_prompt(cls, text: str) -> "Chat":
        """A chat of one prompt."""
        return cls((Message("user", text),))

    @property
    def opening(self) -> tuple[Message, ...]:
        """The messages up to the user's first."""
        first = next(number for number, item in enumerate(self.messages) if item.role == "user")
        return self.messages[: first + 1]

    @property
    def user_turns(self) -> tuple[str, ...]:
        """What the user says, turn by turn."""
        return tuple(item.content for item in self.messages if item.role == "user")


def parse_dataset(text: str, name: str) -> tuple[Chat, ...]:
    """The chats of a dataset; items in which a user says nothing are left out.

    Raises BadInput, with the number of the line or item, for what is no JSON or no chat, and when nothing is left.
    """
    chats = [chat for where, item in _items(text, name) if (chat := _chat(item, where)) is not None]
    if not chats:
        raise BadInput(f"prompt_source {name}: no item has a user's message; name another file, or builtin")
    return tuple(chats)


def _items(text: str, name: str) -> Iterator[tuple[str, Any]]:
    where = f"prompt_source {name}"
    if text.lstrip().startswith("["):
        values = _parse(text, where)
        yield from ((f"{where}: item {number}", item) for number, item in enumerate(values, 1))
        return
    # not splitlines(): a JSON string may hold other line ends than \n
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield f"{where}:{number}", _parse(line, f"{where}:{number}")


def _parse(text: str, where: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise BadInput(f"{where}: the JSON is nested too deep; write plain messages") from None
    except ValueError as error:
        raise BadInput(f"{where}: not JSON ({error}); write one JSON value a line, or one list") from error


def _chat(item: Any, where: str) -> Chat | None:
    if isinstance(item, str):
        messages = [Message("user", _whole(item))]
    elif isinstance(item, dict):
        messages = list(_messages(item, where))
    else:
        raise BadInput(f"{where}: an item is a text, or an object with one of {_SHAPES}")
    messages = [message for message in messages if message.content.strip()]
    return Chat(tuple(messages)) if any(message.role == "user" for message in messages) else None


def _messages(item: Mapping[str, Any], where: str) -> Iterator[Message]:
    for key, role_key, content_key in (("messages", "role", "content"), ("conversations", "from", "value")):
        if isinstance(item.get(key), list):
            yield from (_message(entry, role_key, content_key, f"{where}: {key}") for entry in item[key])
            return
    if isinstance(item.get("turns"), list):
        yield from (Message("user", _text(turn, f"{where}: turns")) for turn in item["turns"])
        return
    name = next((key for key in _PROMPTS if key in item), None)
    if name is None:
        raise BadInput(f"{where}: the object has none of {_SHAPES}; name its text with one of these")
    yield Message("user", _text(item[name], f"{where}: {name}"))


def _message(entry: Any, role_key: str, content_key: str, where: str) -> Message:
    if not isinstance(entry, dict):
        raise BadInput(f"{where}: a message is an object with {role_key} and {content_key}")
    role = entry.get(role_key)
    if not isinstance(role, str) or role not in _ROLES:
        raise BadInput(
            f"{where}: {role_key} is {str(role)[:40]!r}; use system, user (human) or assistant (gpt)"
        )
    return Message(_ROLES[role], _text(entry.get(content_key), f"{where}: {content_key}"))


def _text(value: Any, where: str) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return _whole(value)
    if isinstance(value, list):  # OpenAI's content parts; only text can be asked here
        return "".join(_part(part, where) for part in value)
    raise BadInput(f"{where}: it is no text; only text can be asked")


def _part(part: Any, where: str) -> str:
    if not isinstance(part, dict) or not isinstance(part.get("text"), str):
        raise BadInput(f"{where}: a part is no text; only text can be asked")
    return _whole(part["text"])


def _whole(text: str) -> str:
    """`text` without lone halves of surrogate pairs, which JSON can spell and no request can carry."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
