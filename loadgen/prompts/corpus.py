"""Text that prompts are cut from: the builtin novels, or a user's; endless, in a seeded order of paragraphs."""

import lzma
import random
from collections.abc import Iterator, Sequence
from functools import cache
from importlib.resources import files


@cache
def builtin_paragraphs() -> tuple[str, ...]:
    """Four English novels in the public domain, about 420,000 words.

    Lewis Carroll's Alice (1865); Jane Austen's Emma, Pride and Prejudice, and Sense and Sensibility (1811 to 1815).
    """
    data = files("loadgen") / "data"
    austen = lzma.decompress((data / "austen.txt.xz").read_bytes()).decode()
    return paragraphs_of((data / "alice.txt").read_text(encoding="utf-8") + austen)


def paragraphs_of(text: str) -> tuple[str, ...]:
    """The lines of `text` that hold words, without the space around them."""
    return tuple(line.strip() for line in text.splitlines() if line.strip())


class TextSource:
    """Endless text in a seeded order of paragraphs, one order for each variant."""

    def __init__(self, paragraphs: Sequence[str], seed: int) -> None:
        self._paragraphs = paragraphs
        self._seed = seed
        self._words: dict[int, list[str]] = {}
        self._rest: dict[int, Iterator[str]] = {}

    def text(self, variant: int, words: int, start: int = 0) -> str:
        """`words` words of a variant from word `start` on; paragraphs come again, in a new order, when they run out.

        A text does not depend on which lengths were asked for before.
        """
        have = self._words.setdefault(variant, [])
        rest = self._rest.setdefault(variant, self._shuffled(variant))
        while len(have) < start + words:
            have.extend(f"{next(rest)}\n".split(" "))
        return " ".join(have[start : start + words])

    def _shuffled(self, variant: int) -> Iterator[str]:
        turn = 0
        while True:
            order = list(self._paragraphs)
            random.Random(f"{self._seed}/{variant}/{turn}").shuffle(order)
            yield from order
            turn += 1
