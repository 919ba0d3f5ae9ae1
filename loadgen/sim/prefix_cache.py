"""The prefix cache: which prompts begin alike, in pages of 16 tokens, least recently used out first.

A page is known by the hash of its own tokens and of the page before it, so one dictionary holds the whole tree.
"""

from collections import OrderedDict
from collections.abc import Sequence

PAGE_TOKENS = 16


class PrefixCache:
    """Pages of token ids seen so far. Sizes are in tokens and always whole pages."""

    def __init__(self) -> None:
        self._pages: OrderedDict[int, None] = OrderedDict()

    @property
    def tokens(self) -> int:
        """Tokens held."""
        return len(self._pages) * PAGE_TOKENS

    def match(self, ids: Sequence[int]) -> int:
        """How many leading tokens of the prompt `ids` are held. At least one token is always left to compute."""
        found = []
        for page in _pages(ids, (len(ids) - 1) // PAGE_TOKENS):
            if page not in self._pages:
                break
            found.append(page)
        self._touch(found)
        return len(found) * PAGE_TOKENS

    def insert(self, ids: Sequence[int], limit_tokens: int) -> None:
        """Holds the whole pages of `ids`, then drops the least recently used until `limit_tokens` are left."""
        self._touch(list(_pages(ids, len(ids) // PAGE_TOKENS)))
        while len(self._pages) * PAGE_TOKENS > limit_tokens and self._pages:
            self._pages.popitem(last=False)

    def clear(self) -> None:
        """Forgets everything."""
        self._pages.clear()

    def _touch(self, chain: list[int]) -> None:
        # Deepest page first, so that a beginning is always younger than what follows it and goes last.
        for page in reversed(chain):
            self._pages[page] = None
            self._pages.move_to_end(page)


def _pages(ids: Sequence[int], count: int) -> "list[int]":
    chain = 0
    result = []
    for start in range(0, count * PAGE_TOKENS, PAGE_TOKENS):
        chain = hash((chain, *ids[start : start + PAGE_TOKENS]))
        result.append(chain)
    return result
