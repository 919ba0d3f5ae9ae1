"""Prompts of an exact token length from real text, each with a salt of its own at the very beginning.

Real text, because random tokens falsify the acceptance of speculative decoding. The salt is a function of run, cell,
repeat, seed and request index: no two requests share a prefix beyond the chat template and a character or two, whatever
host sends them, so that a prefix cache cannot make a cell look fast.
"""

import hashlib
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from loadgen.errors import BadInput, RunFailed
from loadgen.wire import ChatOptions, chat_body

VARIANTS = 4  # different texts in one cell
_ASK = "\n\nContinue this text."
_MARK = "@SALT@"
_TRIES = 8

CountTokens = Callable[[str], Awaitable[int]]


@dataclass(frozen=True, slots=True)
class SaltKey:
    """What a salt depends on beside the request's index."""

    run_id: str
    cell_id: str
    repeat: int
    seed: int

    def salt(self, index: int) -> str:
        """A dozen characters, another dozen for any other request."""
        text = f"{self.run_id}/{self.cell_id}/{self.repeat}/{self.seed}/{index}"
        return hashlib.blake2b(text.encode(), digest_size=6).hexdigest()


def read_corpus(source: str) -> tuple[str, ...]:
    """Paragraphs of a prompt source: `builtin` (Lewis Carroll's Alice of 1865, in the public domain) or the path of a UTF-8 text file.

    Raises BadInput when the file cannot be read or has no words.
    """
    if source == "builtin":
        return _paragraphs((files("loadgen") / "data" / "alice.txt").read_text(encoding="utf-8"))
    try:
        paragraphs = _paragraphs(Path(source).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise BadInput(
            f"prompt_source {source}: cannot be read ({reason}); name a text file, or builtin"
        ) from error
    if not paragraphs:
        raise BadInput(f"prompt_source {source}: the file has no words; name another, or builtin")
    return paragraphs


def _paragraphs(text: str) -> tuple[str, ...]:
    return tuple(line.strip() for line in text.splitlines() if line.strip())


class TextSource:
    """Endless text in a seeded order of paragraphs, one order for each variant."""

    def __init__(self, paragraphs: Sequence[str], seed: int) -> None:
        self._paragraphs = paragraphs
        self._seed = seed
        self._words: dict[int, list[str]] = {}

    def text(self, variant: int, words: int) -> str:
        """The first `words` words of a variant; paragraphs come again, in a new order, when they run out."""
        have = self._words.setdefault(variant, [])
        while len(have) < words:
            order = list(self._paragraphs)
            # seeded by what is there, so that a text does not depend on which lengths were asked for before
            random.Random(f"{self._seed}/{variant}/{len(have)}").shuffle(order)
            have.extend(word for paragraph in order for word in f"{paragraph}\n".split(" "))
        return " ".join(have[:words])


def user_message(salt: str, text: str) -> str:
    """The message of a load request: salt, text, and what to do with it."""
    return f"{salt} {text}{_ASK}"


async def fit_words(text: Callable[[int], str], target_tokens: int, count: CountTokens) -> int:
    """How many words of `text` make a prompt of `target_tokens`, or of as few less as the tokenizer allows.

    `count` says how long a text is with everything around it. Each try is where a straight line says, between the most
    words that fitted and the fewest that did not. Raises RunFailed when even one word is too long.
    """
    fewest = await count(text(1))
    if fewest > target_tokens:
        raise RunFailed(
            f"context_tokens {target_tokens} is too small: chat template, salt and one word take {fewest} tokens"
        )
    fits, too_long = 1, None
    words = max(2, round((target_tokens - fewest) * 0.7))
    for _ in range(_TRIES):
        tokens = await count(text(words))
        if tokens > target_tokens:
            too_long = words
        else:
            fits = words
        if tokens == target_tokens or too_long == fits + 1:
            break
        tokens_per_word = max(tokens - fewest, 1) / (words - 1)
        words += round((target_tokens - tokens) / tokens_per_word)
        words = max(words, fits + 1) if too_long is None else min(max(words, fits + 1), too_long - 1)
    return fits


@dataclass(frozen=True, slots=True)
class LoadPrompts:
    """Bodies of one cell's requests, ready but for their salt."""

    messages: tuple[str, ...]
    bodies: tuple[tuple[bytes, bytes], ...]
    key: SaltKey

    @classmethod
    def make(cls, texts: Sequence[str], options: ChatOptions, key: SaltKey) -> "LoadPrompts":
        messages = tuple(user_message(_MARK, text) for text in texts)
        bodies = tuple(_split(chat_body(options, message)) for message in messages)
        return cls(messages, bodies, key)

    def body(self, index: int) -> bytes:
        """The request's bytes."""
        head, tail = self.bodies[index % len(self.bodies)]
        return b"".join((head, self.key.salt(index).encode(), tail))

    def message(self, index: int) -> str:
        """The request's user message, as text."""
        return self.messages[index % len(self.messages)].replace(_MARK, self.key.salt(index), 1)


def _split(body: bytes) -> tuple[bytes, bytes]:
    head, _, tail = body.partition(_MARK.encode())
    return head, tail
