import ast
from dataclasses import replace

import pytest

from loadgen.grading.problems import ProblemSet, problem_set
from loadgen.grading.sandbox import Limits, Verdict, run_program

REFERENCE = """
from collections import Counter
from heapq import merge
import math

def is_palindrome(s):
    kept = [c.lower() for c in s if c.isalnum()]
    return kept == kept[::-1]

def fib(n):
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a

def merge_sorted(a, b):
    return list(merge(a, b))

def word_count(text):
    return Counter(text.lower().split())

gcd = math.gcd
"""
CLASSIC = problem_set("classic").problems


@pytest.mark.parametrize("problem", CLASSIC, ids=lambda p: p.name)
def test_a_right_program_passes_every_call(problem):
    result = run_program(REFERENCE, problem.entry_point, problem.calls, Limits())
    assert (result.verdict, result.message) == (Verdict.PASS, None)
    assert result.tests_passed == len(problem.calls) == result.tests_total


@pytest.mark.parametrize("problem", CLASSIC, ids=lambda p: p.name)
def test_a_prompt_names_the_function_and_asks_for_a_block(problem):
    signature = problem.prompt.split("`")[1]
    ast.parse(f"def {signature}: pass")
    assert signature.startswith(f"{problem.entry_point}(")
    assert "```python" in problem.prompt
    assert 6 <= len(problem.calls) <= 10


WRONG = {
    "is_palindrome": "def is_palindrome(s): return s.lower() == s.lower()[::-1]",
    "fib": "def fib(n):\n    a, b = 1, 1\n    for _ in range(n):\n        a, b = b, a + b\n    return a",
    "merge_sorted": "def merge_sorted(a, b): return sorted(set(a + b))",
    "word_count": "def word_count(t): return {w: t.split().count(w) for w in t.split()}",
    "gcd": "def gcd(a, b):\n    while a != b:\n        a, b = min(a, b), max(a, b) - min(a, b)\n        if a == 0: return 0\n    return a",
}


@pytest.mark.parametrize("problem", CLASSIC, ids=lambda p: p.name)
def test_a_plausible_wrong_program_does_not_pass(problem):
    result = run_program(WRONG[problem.name], problem.entry_point, problem.calls, Limits(wall_s=3, cpu_s=1))
    assert result.verdict in (Verdict.WRONG_ANSWER, Verdict.TIMEOUT)
    assert result.tests_passed < result.tests_total


def test_the_version_changes_with_any_expected_answer():
    first, *rest = CLASSIC
    call = replace(first.calls[0], expected=False)
    changed = ProblemSet("classic", (replace(first, calls=(call, *first.calls[1:])), *rest))
    assert changed.version != problem_set("classic").version == problem_set("classic").version


def test_an_unknown_set_is_refused_with_the_known_names():
    with pytest.raises(ValueError, match="classic"):
        problem_set("humaneval-9000")
