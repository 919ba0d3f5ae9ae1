"""The prefix cache: what is held, what is dropped first."""

from hypothesis import given
from hypothesis import strategies as st

from loadgen.sim.prefix_cache import PAGE_TOKENS, PrefixCache

PLENTY = 10**9


def ids(start: int, pages: int) -> list[int]:
    return list(range(start, start + pages * PAGE_TOKENS))


def test_only_whole_pages_match_and_one_token_is_always_computed() -> None:
    cache = PrefixCache()
    prompt = ids(0, 4)
    assert cache.match(prompt) == 0
    cache.insert(prompt, PLENTY)
    assert cache.match(prompt) == 3 * PAGE_TOKENS
    assert cache.match([*prompt, 1]) == 4 * PAGE_TOKENS
    assert cache.match([*prompt[:-1], -1, -2]) == 3 * PAGE_TOKENS
    assert cache.match([-1, *prompt]) == 0


def test_a_page_counts_only_behind_its_own_beginning() -> None:
    cache = PrefixCache()
    cache.insert(ids(0, 1) + ids(500, 1), PLENTY)
    assert cache.match([*ids(900, 1), *ids(500, 1), 1]) == 0


def test_the_least_recently_used_goes_first_and_a_beginning_goes_last() -> None:
    cache = PrefixCache()
    old, new = ids(0, 3), ids(10_000, 3)
    cache.insert(old, PLENTY)
    cache.insert(new, 4 * PAGE_TOKENS)
    assert cache.tokens == 4 * PAGE_TOKENS
    assert cache.match([*new, 1]) == 3 * PAGE_TOKENS
    assert cache.match([*old, 1]) == PAGE_TOKENS


def test_clear_forgets_all() -> None:
    cache = PrefixCache()
    cache.insert(ids(0, 3), PLENTY)
    cache.clear()
    assert cache.tokens == 0
    assert cache.match(ids(0, 3)) == 0


@given(st.lists(st.lists(st.integers(0, 1), min_size=1, max_size=70), max_size=8), st.integers(0, 6))
def test_a_match_is_the_longest_common_beginning_of_anything_inserted(
    seen: list[list[int]], limit: int
) -> None:
    cache, small = PrefixCache(), PrefixCache()
    for index, prompt in enumerate(seen):
        pages = (len(prompt) - 1) // PAGE_TOKENS
        want = 0
        for earlier in seen[:index]:
            common = 0
            while common < min(pages, len(earlier) // PAGE_TOKENS):
                end = (common + 1) * PAGE_TOKENS
                if prompt[:end] != earlier[:end]:
                    break
                common += 1
            want = max(want, common)
        assert cache.match(prompt) == want * PAGE_TOKENS
        cache.insert(prompt, PLENTY)
        small.insert(prompt, limit * PAGE_TOKENS)
        assert small.tokens <= limit * PAGE_TOKENS
