"""What the simulated model answers, decided when the request arrives: its whole token sequence and where it ends.

Coding prompts are recognised by the function's name; to all others it goes on in prose, from the text shipped with
the package. The same prompt and seed always give the same answer.
"""

import bisect
import functools
import importlib.resources
import itertools
import random
import re
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from loadgen.sim import tokenizer
from loadgen.sim.coding_answers import BY_FUNCTION

_FUNCTION = re.compile(rf"\b({'|'.join(BY_FUNCTION)})\b")
_OPENINGS = (
    "",
    "Let me think this through before I write anything.\n\n",
    "Okay, let me look at the task.\n\n",
)
_PROSE_TOKENS = (200, 800)
_PROSE_REASONING = "The user gives me a passage. I should go on in the same tone, and keep the story moving."


@dataclass(frozen=True, slots=True)
class Wish:
    """What the request says about the length of its answer."""

    max_tokens: int
    min_tokens: int = 0
    ignore_eos: bool = False
    stop: tuple[str, ...] = ()
    thinking: bool = True


@dataclass(frozen=True, slots=True)
class Answer:
    """The tokens of one answer. `ends[i]` is where token i ends in `text`; an end-of-turn token has no text.

    `thinking_tokens` counts the reasoning with its end mark (0: none). Text after `visible` is not shown: it
    belongs to a stop string.
    """

    text: str
    ends: Sequence[int]
    total_tokens: int
    thinking_tokens: int
    visible: int
    finish_reason: str
    matched_stop: int | str | None
    ids: Sequence[int]


def answer(prompt: str, seed: int, wish: Wish) -> Answer:
    """The answer to `prompt` (the last user message)."""
    rng = random.Random(zlib.crc32(prompt.encode("utf-8", "surrogatepass")) ^ (seed << 32))
    found = _FUNCTION.search(prompt)
    parts = _coding(found[1], rng) if found else _prose(rng)
    reasoning, rest = parts if wish.thinking else ([], parts[1])
    thinking = [*reasoning, tokenizer.END_OF_THINKING] if reasoning else []
    tokens = [*thinking, *rest]
    wanted = wish.max_tokens if wish.ignore_eos else min(wish.min_tokens, wish.max_tokens)
    if len(tokens) < wanted:
        tokens += _story(rng.randrange(len(_story_tokens())), wanted - len(tokens))
    return _cut(tokens, len(thinking), wish)


def _cut(tokens: list[str], thinking_tokens: int, wish: Wish) -> Answer:
    whole = len(tokens) < wish.max_tokens and not wish.ignore_eos
    tokens = tokens[: wish.max_tokens]
    ends = list(itertools.accumulate(map(len, tokens)))
    text = "".join(tokens)
    ids = tokenizer.ids_of(tokens)
    stops = [(at, stop) for stop in wish.stop if (at := text.find(stop)) >= 0]
    if stops:
        at, stop = min(stops)
        count = bisect.bisect_left(ends, at + len(stop)) + 1
        return Answer(text, ends, count, thinking_tokens, at, "stop", stop, ids)
    if not whole:
        return Answer(text, ends, len(tokens), thinking_tokens, len(text), "length", None, ids)
    ids.append(tokenizer.END_OF_TURN_ID)
    ends.append(len(text))
    return Answer(text, ends, len(ids), thinking_tokens, len(text), "stop", tokenizer.END_OF_TURN_ID, ids)


def _coding(function: str, rng: random.Random) -> tuple[list[str], list[str]]:
    known = BY_FUNCTION[function]
    reasoning = rng.choice(_OPENINGS) + known.reasoning
    closing = rng.choice(("", *known.closings))
    return _known(reasoning), _known(known.answer + closing)


def _prose(rng: random.Random) -> tuple[list[str], list[str]]:
    total = rng.randint(*_PROSE_TOKENS)
    reasoning = _known(_PROSE_REASONING) + _story(rng.randrange(len(_story_tokens())), total // 4)
    return reasoning, _story(rng.randrange(len(_story_tokens())), total - len(reasoning))


def _story(start: int, count: int) -> list[str]:
    """`count` tokens of the story from token `start` on, round and round."""
    whole = _story_tokens()
    rounds = (start + count) // len(whole) + 1
    return (whole if rounds == 1 else whole * rounds)[start : start + count]


@functools.cache
def _known(text: str) -> list[str]:
    """Tokens of one of our own texts: a few dozen in all."""
    return tokenizer.pieces(text)


@functools.cache
def _story_tokens() -> list[str]:
    text = importlib.resources.files("loadgen").joinpath("data", "alice.txt").read_text(encoding="utf-8")
    return tokenizer.pieces(text)


def load() -> None:
    """Reads the story ahead of the first request."""
    _story_tokens()
