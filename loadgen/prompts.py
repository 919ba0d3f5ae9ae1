"""Prompts of an exact token length from real text, each with a salt of its own at the very beginning.

Real text, because random tokens falsify the acceptance of speculative decoding. The salt is a function of run, cell,
repeat, seed and request index: no two requests share a prefix beyond the chat template, whatever host sends them, so
that a prefix cache cannot make a cell look fast.
"""

import hashlib
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import cache
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
        """About a dozen characters that differ from the first on between any two requests."""
        text = f"{self.run_id}/{self.cell_id}/{self.repeat}/{self.seed}/{index}"
        return hashlib.blake2b(text.encode(), digest_size=5).hexdigest()


def read_corpus(source: str) -> tuple[str, ...]:
    """Paragraphs of a prompt source: `builtin` (a public-domain novel) or the path of a UTF-8 text file.

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
        rng = random.Random(f"{self._seed}/{variant}/{len(have)}")
        while len(have) < words:
            order = list(self._paragraphs)
            rng.shuffle(order)
            have.extend(word for paragraph in order for word in f"{paragraph}\n".split(" "))
        return " ".join(have[:words])


def user_message(salt: str, text: str) -> str:
    """The message of a load request: salt, text, and what to do with it."""
    return f"{salt} {text}{_ASK}"


async def fit_words(text: Callable[[int], str], target_tokens: int, count: CountTokens) -> int:
    """How many words of `text` make a prompt of `target_tokens`, or of as few less as the tokenizer allows.

    `count` says how long a text is with everything around it. Raises RunFailed when even one word is too long.
    """
    words = max(1, round(target_tokens * 0.7))
    best: tuple[int, int] | None = None
    tried: dict[int, int] = {}
    for _ in range(_TRIES):
        if words in tried:
            break
        tokens = tried[words] = await count(text(words))
        if tokens <= target_tokens and (best is None or tokens > best[0]):
            best = (tokens, words)
        if tokens == target_tokens:
            break
        missing = target_tokens - tokens
        step = round(missing * words / max(tokens, 1)) or (1 if missing > 0 else -1)
        words = max(1, words + step)
    if best is None:
        shortest = await count(text(1))
        if shortest > target_tokens:
            raise RunFailed(
                f"context_tokens {target_tokens} is too small: chat template, salt and one word take {shortest} tokens"
            )
        return 1
    return best[1]


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


@cache
def builtin_corpus() -> tuple[str, ...]:
    """The shipped text."""
    return read_corpus("builtin")
