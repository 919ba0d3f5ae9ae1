"""Answers to grades: the program in the answer, its verdict, and the mark that a report prints. Rows for `grades`."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pyarrow as pa

from loadgen.grading.extract import Answer, Extraction, ExtractionKind, extract
from loadgen.grading.problems import Problem, ProblemSet
from loadgen.grading.sandbox import Limits, ProgramResult, Verdict, run_program
from loadgen.grading.thinking import has_end_mark
from loadgen.records import Outcome

END_OF_THINKING = "</think>"
DEFAULT_LIMITS = Limits()
_KEY = ("cell_id", "repeat", "request_index")
_NO_RESPONSE = Extraction(ExtractionKind.NO_RESPONSE, None, (), None)


class Mark(StrEnum):
    """One word for one answer. Only PASS and FAIL speak of a program that ran."""

    PASS = "PASS"  # noqa: S105 - no password
    FAIL = "FAIL"
    TRUNC = "TRUNC"
    NONE = "NONE"
    UNGRADED = "UNGRADED"
    ERROR = "ERROR"


@dataclass(frozen=True, slots=True)
class Grade:
    """`result` is None when no program was run."""

    extraction: Extraction
    result: ProgramResult | None

    @property
    def mark(self) -> Mark:
        kind = self.extraction.kind
        if self.result is not None:
            return _MARK_OF_VERDICT.get(self.result.verdict, Mark.FAIL)
        return _MARK_OF_KIND.get(kind, Mark.NONE)


_MARK_OF_VERDICT = {Verdict.PASS: Mark.PASS, Verdict.UNGRADED: Mark.UNGRADED}
_MARK_OF_KIND = {ExtractionKind.TRUNCATED: Mark.TRUNC, ExtractionKind.NO_RESPONSE: Mark.ERROR}


def grade_answer(
    problem: Problem, answer: Answer, limits: Limits = DEFAULT_LIMITS, *, thinking_expected: bool = False
) -> Grade:
    """Extracts the program and runs it in the sandbox. `thinking_expected` as in `extract`."""
    extraction = extract(
        answer, problem.entry_point, end_of_thinking=END_OF_THINKING, thinking_expected=thinking_expected
    )
    if extraction.program is None:
        return Grade(extraction, None)
    return Grade(extraction, run_program(extraction.program, problem.entry_point, problem.calls, limits))


def grade_rows(
    problem_set: ProblemSet, responses: pa.Table, requests: pa.Table, limits: Limits = DEFAULT_LIMITS
) -> list[dict[str, Any]]:
    """One row of `grades` for each request that asked a problem, in the order of `requests`.

    A cell is taken as a thinking model's without a reasoning parser when an answer carries the end-of-thinking mark
    in its content; and also when nothing speaks against it, because every answer was cut: then what looks like a
    program may be a draft of an unfinished thought. A request that failed is graded only if it left a whole program.
    Raises ValueError for a problem that is not in the set.
    """
    problems = {problem.name: problem for problem in problem_set.problems}
    answers = {_key(row): row for row in responses.to_pylist()}
    thinking = {
        cell_id for cell_id, rows in _by_cell(answers.values()).items() if _may_think_in_content(rows)
    }
    graded = []
    for request in requests.to_pylist():
        if request["problem"] is None:
            continue
        if request["problem"] not in problems:
            raise ValueError(f"problem {request['problem']!r} is not in the set {problem_set.name!r}")
        problem = problems[request["problem"]]
        grade = _grade(problem, request, answers.get(_key(request)), limits, request["cell_id"] in thinking)
        graded.append(_row(problem, request, grade))
    return graded


def _key(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in _KEY)


def _by_cell(responses: Iterable[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    cells: dict[str, list[Mapping[str, Any]]] = {}
    for response in responses:
        cells.setdefault(response["cell_id"], []).append(response)
    return cells


def _may_think_in_content(responses: Sequence[Mapping[str, Any]]) -> bool:
    return any(map(_thinks_in_content, responses)) or not any(map(_is_whole_without_thought, responses))


def _is_whole_without_thought(response: Mapping[str, Any]) -> bool:
    """An answer that shows where this model's thought is not: it has a field of its own, or there is none."""
    ended = response["finish_reason"] not in (None, "length", "abort")
    return bool(response["reasoning"].strip()) or (ended and bool(response["content"].strip()))


def _thinks_in_content(response: Mapping[str, Any]) -> bool:
    return not response["reasoning"].strip() and has_end_mark(response["content"], END_OF_THINKING)


def _grade(
    problem: Problem,
    request: Mapping[str, Any],
    response: Mapping[str, Any] | None,
    limits: Limits,
    thinking_expected: bool,
) -> Grade:
    if response is None:
        return Grade(_NO_RESPONSE, None)
    answer = Answer(response["reasoning"], response["content"], response["finish_reason"])
    grade = grade_answer(problem, answer, limits, thinking_expected=thinking_expected)
    failed = request["outcome"] != Outcome.OK
    return Grade(_NO_RESPONSE, None) if failed and grade.result is None else grade


def _row(problem: Problem, request: Mapping[str, Any], grade: Grade) -> dict[str, Any]:
    extraction, result = grade.extraction, grade.result
    return {
        **{name: request[name] for name in _KEY},
        "problem": problem.name,
        "simulated": request["simulated"],
        "extraction_kind": str(extraction.kind),
        "extraction_rule": extraction.rule,
        "flags": list(extraction.flags),
        "program": extraction.program,
        "verdict": None if result is None else str(result.verdict),
        "mark": str(grade.mark),
        "message": _message(request, grade),
        "tests_passed": None if result is None else result.tests_passed,
        "tests_total": len(problem.calls),
        "run_ms": None if result is None else result.run_ms,
        "output_tokens": request["output_tokens"],
        "output_tps": _output_tps(request),
        "sandbox": None if result is None else result.sandbox,
    }


def _message(request: Mapping[str, Any], grade: Grade) -> str | None:
    if grade.result is not None:
        return grade.result.message
    if grade.mark is Mark.ERROR:
        return ": ".join(text for text in (request["outcome"], request["error"]) if text)
    return None


def _output_tps(request: Mapping[str, Any]) -> float | None:
    """Tokens over the whole request, prefill included, in the server's time; None where a part is unknown."""
    tokens, sent_ns, done_ns = request["output_tokens"], request["sent_ns"], request["done_ns"]
    if tokens is None or sent_ns is None or done_ns is None or done_ns <= sent_ns:
        return None
    return float(tokens / ((done_ns - sent_ns) * request["time_scale"] / 1e9))
