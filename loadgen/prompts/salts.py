"""Salts: a few words at the start of a prompt that no other request has, all of the same length in tokens.

A random string tokenizes to a length that varies with its letters. Words that the tokenizer itself was seen to count
alike do not: whichever ten of them make up a salt, the prompt is as long as with any other ten.
"""

import asyncio
import hashlib
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

SALT_WORDS = 10
_ALPHABET = 32  # words to choose from: five bits a word, fifty a salt
# Three letters each, so that they are alike even to a tokenizer that reads bytes.
_WORDS = (
    "one two six ten red sun sea sky cup box bag bed car cat dog fox hat ice job key leg map net oil pen pig pot "
    "row set tea top van war web day boy man men old new big bad hot low air arm art bar bit bus buy cut eat end "
    "eye far fit fun gas get god got gun hit law lay let lie lot mix own pay put run sad see son tax tie try use "
    "way win yes all and any are but can did few for had has her him his how its may not now off our out say she "
    "the too was who why you"
)
_POOL = tuple(_WORDS.split(" "))


@dataclass(frozen=True, slots=True)
class Alphabet:
    """Words of salts. `is_even`: the tokenizer was seen to count every one alike, at a salt's start and within it."""

    words: tuple[str, ...]
    is_even: bool

    def spell(self, number: int) -> str:
        """The salt of a number below `len(words) ** SALT_WORDS`; another for any other number."""
        words = []
        for _ in range(SALT_WORDS):
            number, digit = divmod(number, len(self.words))
            words.append(self.words[digit])
        return " ".join(words)


# Any words do where nothing is counted, and to measure what is around a salt.
DEFAULT_ALPHABET = Alphabet(_POOL[:_ALPHABET], is_even=False)


async def find_alphabet(count_with: Callable[[str], Awaitable[int]]) -> Alphabet:
    """The first words of the pool that count alike. `count_with` says how long a prompt is with this salt.

    Each word is tried as a whole salt, which shows it in every position. A tokenizer that counts fewer than 16 alike
    gets the default words, marked as uneven.
    """
    alike: dict[int, list[str]] = defaultdict(list)
    for start in range(0, len(_POOL), _ALPHABET):
        batch = _POOL[start : start + _ALPHABET]
        counts = await asyncio.gather(*(count_with(" ".join([word] * SALT_WORDS)) for word in batch))
        for word, count in zip(batch, counts, strict=True):
            alike[count].append(word)
        most = max(alike.values(), key=len)
        if len(most) >= _ALPHABET:
            return Alphabet(tuple(most[:_ALPHABET]), is_even=True)
    if len(most) >= _ALPHABET // 2:
        return Alphabet(tuple(most[: _ALPHABET // 2]), is_even=True)
    return DEFAULT_ALPHABET


@dataclass(frozen=True, slots=True)
class SaltKey:
    """What a salt depends on beside the request's index."""

    run_id: str
    cell_id: str
    repeat: int
    seed: int

    def salt(self, index: int, alphabet: Alphabet = DEFAULT_ALPHABET) -> str:
        """Ten words, another ten for any other index of the cell.

        A keyed permutation (three Feistel rounds) of the index, so that two requests of a cell never meet by chance.
        """
        half = 2 ** ((len(alphabet.words).bit_length() - 1) * SALT_WORDS // 2)
        left, right = divmod(index % (half * half), half)
        for turn in range(3):
            left, right = right, left ^ (self._hash(turn, right) % half)
        return alphabet.spell(left * half + right)

    def shared(self, alphabet: Alphabet = DEFAULT_ALPHABET) -> str:
        """The salt of what all requests of the cell share; another for any other cell."""
        return SaltKey(self.run_id, f"{self.cell_id}/shared", self.repeat, self.seed).salt(0, alphabet)

    def _hash(self, turn: int, value: int) -> int:
        text = f"{self.run_id}/{self.cell_id}/{self.repeat}/{self.seed}/{turn}/{value}"
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())
