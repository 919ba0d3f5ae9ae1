"""All fits for one tokenizer and one text: the lengths of a server's cells side by side, known ones from disk."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Any

from loadgen.plan import Cell
from loadgen.prompts.bodies import behind_salt, load_message
from loadgen.prompts.cache import DiskCache
from loadgen.prompts.corpus import TextSource
from loadgen.prompts.counting import Counter
from loadgen.prompts.fit import Fit, fit_text, fit_words
from loadgen.prompts.salts import Alphabet, SaltKey, find_alphabet
from loadgen.prompts.settings import LengthSource
from loadgen.prompts.sources import Source

VARIANTS = 4  # different texts in one cell
TURN_TEXTS = 8  # different texts of later turns
SHARED_VARIANT = VARIANTS
FIRST_TURN_VARIANT = VARIANTS + 1
_NEAR_SHARED_TOKENS = 1
_VERSION = 1  # of what is kept on disk
_SALTS = SaltKey("fit", "", 0, 0)


@dataclass(frozen=True, slots=True)
class Fitted:
    """Words and fillers of one length's texts, and how they were found."""

    alphabet: Alphabet
    length_source: LengthSource
    variants: tuple[Fit, ...] = ()
    shared_words: int = 0
    turns: tuple[Fit, ...] = ()


class Fitter:
    """Fits lengths of one source. `known` names everything that the fits depend on."""

    def __init__(
        self, counter: Counter, alphabet: Alphabet, texts: TextSource, cache: DiskCache, known: dict[str, Any]
    ) -> None:
        self._counter = counter
        self._alphabet = alphabet
        self._texts = texts
        self._cache = cache
        self._known = known

    @classmethod
    async def make(cls, counter: Counter, source: Source, seed: int, cache: DiskCache) -> "Fitter":
        """Finds the words of salts. Raises RunFailed as the counter does."""
        known = {"version": _VERSION, "counter": counter.identity}
        alphabet = await _alphabet(counter, cache, known)
        known |= {"text": source.digest, "seed": seed}
        return cls(counter, alphabet, TextSource(source.paragraphs, seed), cache, known)

    async def fit(self, cell: Cell) -> Fitted:
        """Everything that the cell's length needs. Raises RunFailed when it is too small for template and salt."""
        context, settings = cell.context_tokens, cell.prompts
        assert context is not None, "the prompts of a dataset have lengths of their own"
        shared_tokens = settings.shared_tokens(context)
        shared_words = (await self._shared(shared_tokens)).words if shared_tokens else 0
        variants = [self._prompt(number, context, shared_words) for number in range(VARIANTS)]
        later = range(TURN_TEXTS if settings.turns > 1 else 0)
        turns = [self._turn(number, settings.turn_tokens) for number in later]
        return Fitted(
            self._alphabet,
            self._counter.source,
            tuple(await asyncio.gather(*variants)),
            shared_words,
            tuple(await asyncio.gather(*turns)),
        )

    async def _shared(self, tokens: int) -> Fit:
        salt = _SALTS.salt(0, self._alphabet)

        async def count(text: str) -> int:
            return await self._counter.count(f"{salt} {text}")

        text = self._text_of(SHARED_VARIANT)
        near = max(_NEAR_SHARED_TOKENS, self._counter.allowed_off(tokens))
        return await self._cached(
            {"what": "shared", "tokens": tokens}, lambda: fit_words(text, tokens, count, near)
        )

    async def _prompt(self, number: int, tokens: int, shared_words: int) -> Fit:
        salt = _SALTS.salt(number, self._alphabet)
        shared = self._texts.text(SHARED_VARIANT, shared_words)

        async def count(text: str) -> int:
            return await self._counter.count(behind_salt(salt, load_message(text).content, salt, shared))

        text, allowed = self._text_of(number), self._counter.allowed_off(tokens)
        return await self._cached(
            {"what": "prompt", "number": number, "tokens": tokens, "shared_words": shared_words},
            lambda: fit_text(text, tokens, count, allowed),
        )

    async def _turn(self, number: int, tokens: int) -> Fit:
        text = self._text_of(FIRST_TURN_VARIANT + number)
        return await self._cached(
            {"what": "turn", "number": number, "tokens": tokens},
            lambda: fit_text(text, tokens, self._counter.count_text),
        )

    def _text_of(self, variant: int) -> Callable[[int], str]:
        return lambda words: self._texts.text(variant, words)

    async def _cached(self, what: dict[str, Any], find: Callable[[], Awaitable[Fit]]) -> Fit:
        key = {**self._known, **what}
        kept = self._cache.get(key)
        if kept is not None:
            return Fit(**kept)
        fit = await find()
        self._cache.put(key, asdict(fit))
        return fit


async def _alphabet(counter: Counter, cache: DiskCache, known: dict[str, Any]) -> Alphabet:
    key = {**known, "what": "salts"}
    kept = cache.get(key)
    if kept is not None:
        return Alphabet(tuple(kept["words"]), kept["is_even"])
    text = load_message("and so it went on").content
    found = await find_alphabet(lambda salt: counter.count(behind_salt(salt, text)))
    cache.put(key, asdict(found))
    return found
