"""A prompt source as it was read: paragraphs to cut prompts from, or the chats of a dataset."""

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from loadgen.errors import BadInput
from loadgen.prompts.corpus import builtin_paragraphs, paragraphs_of
from loadgen.prompts.datasets import Chat, parse_dataset

BUILTIN = "builtin"
_DATASET_ENDINGS = (".json", ".jsonl")


@dataclass(frozen=True, slots=True)
class Source:
    """What `read_source` found; only the builtin text is not carried along, since every worker has it."""

    name: str = BUILTIN
    own_paragraphs: tuple[str, ...] = ()
    chats: tuple[Chat, ...] = ()

    @property
    def paragraphs(self) -> tuple[str, ...]:
        """Text to cut prompts from: of a dataset, what its users say."""
        return builtin_paragraphs() if self.name == BUILTIN else self.own_paragraphs

    @property
    def digest(self) -> str:
        """Changes with the text and its order."""
        return _digest(self.paragraphs)


@lru_cache(maxsize=8)
def _digest(paragraphs: tuple[str, ...]) -> str:
    return hashlib.sha256("\n".join(paragraphs).encode()).hexdigest()


def read_source(name: str) -> Source:
    """`builtin`, a dataset (a .json or .jsonl file), or a UTF-8 text file: prose, a paragraph (or a prompt) a line.

    Raises BadInput when the file cannot be read, or holds nothing to ask.
    """
    if name == BUILTIN:
        return Source()
    text = _read(name)
    if name.lower().endswith(_DATASET_ENDINGS):
        chats = parse_dataset(text, name)
        said = (message.content for chat in chats for message in chat.messages if message.role == "user")
        return Source(name, tuple(line for content in said for line in paragraphs_of(content)), chats)
    paragraphs = paragraphs_of(text)
    if not paragraphs:
        raise BadInput(f"prompt_source {name}: the file has no words; name another, or builtin")
    return Source(name, paragraphs, tuple(Chat.of_prompt(line) for line in paragraphs))


def _read(name: str) -> str:
    try:
        return Path(name).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise BadInput(
            f"prompt_source {name}: cannot be read ({reason}); name a text file, or builtin"
        ) from error
