"""Why this part exists: a harness that took the first code block of thought and answer scored 0 of 5 right answers."""

import re

import pytest

from loadgen.grading.extract import Answer, Extraction, ExtractionKind
from loadgen.grading.grade import Mark, grade_answer
from loadgen.grading.problems import problem_set
from loadgen.grading.sandbox import Limits, Verdict, run_program

CLASSIC = problem_set("classic").problems
RIGHT = {
    "is_palindrome": "def is_palindrome(s):\n    t = [c.lower() for c in s if c.isalnum()]\n    return t == t[::-1]",
    "fib": "def fib(n):\n    a, b = 0, 1\n    for _ in range(n):\n        a, b = b, a + b\n    return a",
    "merge_sorted": "def merge_sorted(a, b):\n    return sorted(a + b)",
    "word_count": (
        "from collections import Counter\n\n\ndef word_count(text):\n    return dict(Counter(text.lower().split()))"
    ),
    "gcd": "def gcd(a, b):\n    while b:\n        a, b = b, a % b\n    return a",
}


def thought_about(problem):
    return (
        f"The user wants {problem.entry_point}. Let me sketch it:\n\n```python\ndef {problem.entry_point}(...)\n"
        "    # loop over it somehow, then\n    return ??\n```\n\nThat is the shape. Now properly."
    )


def answer_to(problem):
    return f"Here is the function:\n\n```python\n{RIGHT[problem.name]}\n```\n\nIt meets the specification."


def with_reasoning_field(problem):
    return Answer(thought_about(problem), answer_to(problem), "stop")


def with_thought_in_content(problem):
    return Answer("", f"{thought_about(problem)}\n</think>\n\n{answer_to(problem)}", "stop")


def the_old_extraction(answer):
    found = re.search(r"```(?:python)?\n(.*?)```", answer.reasoning + answer.content, re.DOTALL)
    return Extraction(ExtractionKind.CODE, "first_block", (), found[1])


@pytest.mark.parametrize("ask", [with_reasoning_field, with_thought_in_content])
def test_the_old_extraction_fails_all_five_right_answers(ask):
    verdicts = [
        run_program(
            the_old_extraction(ask(problem)).program, problem.entry_point, problem.calls, Limits()
        ).verdict
        for problem in CLASSIC
    ]
    assert verdicts == [Verdict.COMPILE_ERROR] * 5


@pytest.mark.parametrize("ask", [with_reasoning_field, with_thought_in_content])
def test_ours_passes_all_five(ask):
    grades = [grade_answer(problem, ask(problem)) for problem in CLASSIC]
    assert [grade.mark for grade in grades] == [Mark.PASS] * 5
    assert [grade.extraction.program for grade in grades] == [RIGHT[problem.name] for problem in CLASSIC]


@pytest.mark.parametrize("problem", CLASSIC, ids=lambda p: p.name)
def test_an_answer_cut_in_its_thought_is_truncated_and_no_failure(problem):
    for cut in (
        Answer(thought_about(problem), "", "length"),
        Answer("", f"<think>\n{thought_about(problem)}", "length"),
        Answer(thought_about(problem), answer_to(problem)[:60], "length"),
    ):
        grade = grade_answer(problem, cut)
        assert (grade.mark, grade.result) == (Mark.TRUNC, None)
        assert "finish_length" in grade.extraction.flags
