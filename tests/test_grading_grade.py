import pytest

from loadgen.grading.extract import Answer
from loadgen.grading.grade import Mark, grade_answer, grade_rows
from loadgen.grading.problems import problem_set
from loadgen.grading.sandbox import Limits
from loadgen.tables import GRADES, REQUESTS, RESPONSES

CLASSIC = problem_set("classic")
GCD = next(problem for problem in CLASSIC.problems if problem.name == "gcd")
RIGHT = "```python\nfrom math import gcd as _gcd\n\ndef gcd(a, b):\n    return _gcd(a, b)\n```\n"
DRAFT = "```python\ndef gcd(a, b):\n    return 1\n```\n"


@pytest.mark.parametrize(
    ("content", "finish_reason", "mark"),
    [
        (RIGHT, "stop", Mark.PASS),
        (DRAFT, "stop", Mark.FAIL),
        ("```python\ndef gcd(a, b)\n```", "stop", Mark.FAIL),
        ("```python\ndef gcd(a", "length", Mark.TRUNC),
        ("I would rather not.", "stop", Mark.NONE),
        ("```python\nprint(1)\n```", "stop", Mark.NONE),
        ("", "stop", Mark.NONE),
    ],
)
def test_marks(content, finish_reason, mark):
    assert grade_answer(GCD, Answer("", content, finish_reason)).mark is mark


def request(index, problem="gcd", outcome="ok", **more):
    row = {
        "cell_id": "cell", "repeat": 0, "request_index": index, "platform": "p", "server_id": "s", "worker": "w",
        "time_scale": 20.0, "phase": "measure", "problem": problem, "scheduled_ns": 0, "sent_ns": 10**9,
        "done_ns": 2 * 10**9, "outcome": outcome, "max_tokens": 100, "output_tokens": 400, "response_bytes": 1,
        "blocks": 1, "chunk_ns": [], "chunk_kind": [],
    }  # fmt: skip
    return row | more


def response(index, content, finish_reason="stop", **more):
    row = {
        "cell_id": "cell",
        "repeat": 0,
        "request_index": index,
        "problem": "gcd",
        "prompt": "",
        "reasoning": "",
    }
    return row | {"content": content, "finish_reason": finish_reason} | more


def grades(requests, responses):
    rows = grade_rows(CLASSIC, RESPONSES.from_rows(responses), REQUESTS.from_rows(requests), Limits())
    return GRADES.from_rows(rows).to_pylist()


def test_a_row_for_each_request_that_asked_a_problem_as_the_table_wants_it():
    rows = grades(
        [request(0), request(1, problem=None), request(2)], [response(2, DRAFT), response(0, RIGHT)]
    )
    assert [(row["request_index"], row["mark"]) for row in rows] == [(0, "PASS"), (2, "FAIL")]
    right, wrong = rows
    assert (right["verdict"], right["tests_passed"], right["tests_total"]) == ("pass", 9, 9)
    assert (right["extraction_kind"], right["extraction_rule"], right["flags"]) == (
        "code",
        "last_defining_block",
        [],
    )
    assert (wrong["verdict"], wrong["message"]) == ("wrong_answer", "call 1 of 9: returned 1")
    assert right["run_ms"] > 0
    assert "limits" in right["sandbox"]


def test_the_rate_is_in_the_servers_time():
    (row,) = grades([request(0)], [response(0, RIGHT)])
    assert row["output_tps"] == pytest.approx(400 / 20)


@pytest.mark.parametrize("unknown", ["output_tokens", "sent_ns", "done_ns"])
def test_a_rate_is_unknown_where_a_part_is(unknown):
    (row,) = grades([request(0, **{unknown: None})], [response(0, "")])
    assert row["output_tps"] is None


def test_a_failed_request_is_an_error_and_not_a_failed_program():
    failed = [
        request(0, outcome="reset", error="peer"),
        request(1, outcome="idle_timeout"),
        request(2, outcome="cut"),
        request(3),
    ]
    answers = [
        response(1, "```python\ndef gcd(a, b):\n    ret", None),
        response(2, RIGHT, None),
        response(3, RIGHT),
    ]
    rows = grades(failed, answers)[:3]
    assert [(row["mark"], row["extraction_kind"], row["verdict"]) for row in rows] == [
        ("ERROR", "no_response", None),
        ("ERROR", "no_response", None),
        ("PASS", "code", "pass"),  # the program was whole before the request failed
    ]
    assert [row["message"] for row in rows] == ["reset: peer", "idle_timeout", None]


def test_other_answers_of_the_cell_tell_that_thought_comes_in_the_content():
    requests = [request(0), request(1), request(2, cell_id="other")]
    contents = [f"{DRAFT}Better.\n</think>\n{RIGHT}", f"{DRAFT}Wait,"]
    responses = [response(0, contents[0]), response(1, contents[1], "length")]
    plain = [response(2, RIGHT, cell_id="other"), response(3, contents[1], "length", cell_id="other")]
    requests.append(request(3, cell_id="other"))
    rows = grades(requests, [*responses, *plain])
    assert [row["mark"] for row in rows] == ["PASS", "TRUNC", "PASS", "FAIL"]
    assert rows[1]["flags"] == ["finish_length", "delimiter_missing", "in_reasoning"]


def test_where_every_answer_was_cut_a_draft_is_not_taken_for_an_answer():
    cut = f"{DRAFT}Wait,"
    rows = grades([request(0), request(1)], [response(0, cut, "length"), response(1, cut, "length")])
    assert [row["mark"] for row in rows] == ["TRUNC", "TRUNC"]


def test_a_problem_of_another_set_is_refused():
    with pytest.raises(ValueError, match="sudoku"):
        grades([request(0, problem="sudoku")], [])
