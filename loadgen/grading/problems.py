"""The problems an evaluation asks: prompt, entry point, and calls with the answers expected.

Expected answers are read by the comparing side only; they are never sent to the process that runs a program.
"""

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the entry point. `args` and `expected` are JSON-like values (tuples, sets and bytes allowed)."""

    args: tuple[object, ...]
    expected: object


@dataclass(frozen=True, slots=True)
class Problem:
    """`entry_point` is the function's name, or `Class.method` for a method of a class made without arguments."""

    name: str
    prompt: str
    entry_point: str
    calls: tuple[Call, ...]


@dataclass(frozen=True, slots=True)
class ProblemSet:
    name: str
    problems: tuple[Problem, ...]

    @property
    def version(self) -> str:
        """Twelve hex digits that change with any prompt, call or expected answer."""
        return hashlib.sha256(repr(self.problems).encode()).hexdigest()[:12]


def problem_set(name: str) -> ProblemSet:
    """The set of this name; ValueError (naming the known sets) when there is none."""
    if name not in _SETS:
        raise ValueError(f"no problem set {name!r}; known sets: {', '.join(sorted(_SETS))}")
    return ProblemSet(name, _SETS[name])


def _problem(
    signature: str, specification: str, calls: tuple[tuple[tuple[object, ...], object], ...]
) -> Problem:
    name = signature.split("(", maxsplit=1)[0]
    prompt = (
        f"Write a Python function `{signature}`.\n\n{specification}\n\n"
        "Use only the standard library. Answer with the complete function, named exactly as above, "
        "in one ```python code block."
    )
    return Problem(name, prompt, name, tuple(Call(args, expected) for args, expected in calls))


_IS_PALINDROME = _problem(
    "is_palindrome(s: str) -> bool",
    "It returns True if the string `s` reads the same forwards and backwards, and False otherwise. Ignore upper and "
    "lower case, and ignore every character that is not a letter or a digit. A string with no letters and no digits, "
    "such as the empty string, is a palindrome.",
    (
        (("racecar",), True),
        (("A man, a plan, a canal: Panama",), True),
        (("hello",), False),
        (("",), True),
        ((" .,!",), True),
        (("No 'x' in Nixon",), True),
        (("0P",), False),
        (("12 3 21",), True),
        (("ab_a",), True),
        (("abca",), False),
    ),
)

_FIB = _problem(
    "fib(n: int) -> int",
    "It returns the n-th Fibonacci number, where fib(0) is 0, fib(1) is 1 and fib(n) is fib(n - 1) + fib(n - 2). "
    "`n` is an integer from 0 to 300; the result must be exact, and computing fib(300) must take well under a second.",
    (
        ((0,), 0),
        ((1,), 1),
        ((2,), 1),
        ((3,), 2),
        ((10,), 55),
        ((30,), 832040),
        ((90,), 2880067194370816120),
        ((300,), 222232244629420445529739893461909967206666939096499764990979600),
    ),
)

_MERGE_SORTED = _problem(
    "merge_sorted(a: list[int], b: list[int]) -> list[int]",
    "`a` and `b` are lists of integers, each in ascending order; either may be empty. It returns one new list in "
    "ascending order with all the elements of both, duplicates kept.",
    (
        (([1, 3, 5], [2, 4, 6]), [1, 2, 3, 4, 5, 6]),
        (([], []), []),
        (([], [1, 2]), [1, 2]),
        (([7], []), [7]),
        (([1, 1, 2], [1, 3]), [1, 1, 1, 2, 3]),
        (([-5, -1, 0], [-4, 0, 9]), [-5, -4, -1, 0, 0, 9]),
        (([10, 20], [1, 2, 3]), [1, 2, 3, 10, 20]),
        (([1, 2], [3, 4]), [1, 2, 3, 4]),
    ),
)

_WORD_COUNT = _problem(
    "word_count(text: str) -> dict[str, int]",
    "It splits `text` on whitespace (any run of spaces, tabs or newlines separates two words), converts each word to "
    "lower case, and returns a dict that maps each distinct word to the number of times it occurs. Punctuation is "
    'part of the word: "end." and "end" are two words. For a text without words it returns an empty dict.',
    (
        (("the cat and the dog",), {"the": 2, "cat": 1, "and": 1, "dog": 1}),
        (("",), {}),
        ((" \t\n ",), {}),
        (("Hello hello HELLO",), {"hello": 3}),
        (("a  b\tb\nc c\nc",), {"a": 1, "b": 2, "c": 3}),
        (("end. end end.",), {"end.": 2, "end": 1}),
        (("it's It's its",), {"it's": 2, "its": 1}),
    ),
)

_GCD = _problem(
    "gcd(a: int, b: int) -> int",
    "It returns the greatest common divisor of the non-negative integers `a` and `b`. gcd(a, 0) is a, gcd(0, b) is b, "
    "and gcd(0, 0) is 0.",
    (
        ((12, 18), 6),
        ((18, 12), 6),
        ((17, 5), 1),
        ((0, 0), 0),
        ((0, 9), 9),
        ((9, 0), 9),
        ((7, 7), 7),
        ((1, 1000000007), 1),
        ((2**61, 2**40 * 3), 2**40),
    ),
)

_SETS = {"classic": (_IS_PALINDROME, _FIB, _MERGE_SORTED, _WORD_COUNT, _GCD)}
