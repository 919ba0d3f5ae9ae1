import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_grading_fences import lines_run

from loadgen.grading.extract import Answer, ExtractionKind, extract
from loadgen.grading.problems import Call
from loadgen.grading.sandbox import Limits, Verdict, run_program

CASES = sorted((Path(__file__).parent / "fixtures/grading/extraction").glob("*.json"))
CODE = "def add(a, b):\n    return a + b"
BLOCK = f"```python\n{CODE}\n```\n"
DRAFT = "Let me try.\n```python\ndef add(a, b):\n    return a - b\n```\n"


def answer(content, finish_reason="stop", reasoning=""):
    return Answer(reasoning, content, finish_reason)


def message_of(case):
    """(reasoning, content) of a message, or of the deltas that make one."""
    deltas = case["stream_deltas"] if case["message"] is None else [case["message"]]
    reasoning = "".join(d.get("reasoning_content") or d.get("reasoning") or "" for d in deltas)
    return reasoning, "".join(d.get("content") or "" for d in deltas)


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_reported_kinds_of_answers(path):
    case = json.loads(path.read_text())
    expect, config = case["expect"], case.get("config", {})
    reasoning, content = message_of(case)
    got = extract(
        Answer(reasoning, content, case["finish_reason"]),
        case["entry_point"],
        end_of_thinking=config.get("delimiter", "</think>"),
        thinking_expected=config.get("thinking", False),
    )
    kinds = set(expect.get("kind_in", [expect["kind"]]))
    if "no_code" in kinds:
        kinds |= {"empty_answer", "answer_in_reasoning"}
    if "compile_error" in kinds and "unparsed" in got.flags:
        assert run_program(got.program, case["entry_point"], [], Limits()).verdict is Verdict.COMPILE_ERROR
        return
    assert got.kind in kinds
    assert set(expect.get("must_flag", [])) <= set(got.flags)
    assert not any(text in (got.program or "") for text in expect.get("forbidden_substring", []))
    if got.kind is ExtractionKind.CODE:
        calls = [Call(tuple(args), expected) for args, expected in expect["passes_tests"]]
        result = run_program(got.program, case["entry_point"], calls, Limits())
        assert (result.verdict, result.message) == (Verdict.PASS, None)


@pytest.mark.parametrize(
    ("given_answer", "kind", "flags"),
    [
        (answer(""), "empty_answer", ()),
        (answer("", reasoning="I think."), "empty_answer", ()),
        (answer("", reasoning=DRAFT), "answer_in_reasoning", ("code_in_reasoning_only",)),
        (answer("<think>\n" + DRAFT), "answer_in_reasoning", ("delimiter_missing", "code_in_reasoning_only")),
        (answer("", "length", DRAFT), "truncated", ("finish_length", "in_reasoning")),
        (answer("<think>\n" + DRAFT, "length"), "truncated", ("finish_length", "delimiter_missing", "in_reasoning")),
        (answer("", "length"), "truncated", ("finish_length",)),
        (answer("I would add them.", "length", "Hm."), "truncated", ("finish_length",)),
        (answer(DRAFT + "Better:\n```python\ndef add(a", "length"), "truncated", ("finish_length",)),
        (answer(DRAFT + "Better:\ndef add(a", "length"), "truncated", ("finish_length",)),
        (answer(f"{BLOCK}Use:\n```python\nprint(add(", "length"), "code", ("finish_length",)),
        (answer("```python\ndef add(a", None), "truncated", ()),
        (answer("I cannot."), "no_code", ()),
        (answer("```js\nfunction add(a, b) {}\n```"), "no_code", ()),
        (answer("```python\nprint(add(1, 2))\n```"), "no_entry_point", ()),
        (answer("```python\nfrom m import add\n```"), "no_entry_point", ()),
        (answer("```python\nclass Solution:\n    def add(self, a, b): return a + b\n```"), "no_entry_point", ()),
        (answer("```python\ndef add(a, b)\n    return\n```"), "code", ("unparsed",)),
        (answer(BLOCK), "code", ()),
    ],
)  # fmt: skip
def test_kinds_and_flags(given_answer, kind, flags):
    got = extract(given_answer, "add")
    assert (got.kind, got.flags) == (kind, flags)
    assert (got.program is not None) == (got.kind is ExtractionKind.CODE) == (got.rule is not None)


def test_a_draft_is_not_graded_where_thought_was_expected_and_cut():
    assert extract(answer(DRAFT, "length"), "add", thinking_expected=True).kind == "truncated"
    assert extract(answer(DRAFT, "length"), "add").kind == "code"


def test_an_answer_without_the_expected_mark_is_graded_and_flagged():
    got = extract(answer(BLOCK), "add", thinking_expected=True)
    assert (got.program, got.flags) == (CODE, ("delimiter_missing",))


NOISE = st.lists(
    st.sampled_from(["Some prose.", "", "```text\nout\n```", "```python\nprint(add(1, 2))\n```", "> quote", "- item", "`add`", "x"])
).map("\n".join)  # fmt: skip


@given(
    before=NOISE,
    after=NOISE,
    thought=st.sampled_from(["", f"{DRAFT}</think>\n", f"<think>\n{DRAFT}</think>"]),
)
def test_a_known_definition_is_found_in_noise(before, after, thought):
    got = extract(answer(f"{thought}{before}\n{BLOCK}{after}"), "add")
    assert (got.kind, got.program) == ("code", CODE)


PIECES = st.lists(
    st.sampled_from(["```", "~~~", "python", "\n", "def add(a, b):", "    return 1", '"""', "</think>", "<think>", "\r", ">>> ", "x"])
).map("".join)  # fmt: skip


@given(
    PIECES | st.text(), PIECES | st.text(), st.sampled_from(["stop", "length", "abort", None]), st.booleans()
)
def test_never_raises(reasoning, content, finish_reason, expected):
    got = extract(Answer(reasoning, content, finish_reason), "add", thinking_expected=expected)
    assert (got.program is None) == (got.kind is not ExtractionKind.CODE)


@pytest.mark.parametrize(
    "unit",
    ["</think>\n", "<think>\n", DRAFT, "def add(a, b):\n", '```python\n"""\n```\n', "```\n>>> x\n", "helper(x)\n\n", "@a\n"],
)  # fmt: skip
def test_work_grows_in_proportion_to_the_text(unit):
    small, large = (
        lines_run(lambda text: extract(answer(text), "add"), unit * n + BLOCK) for n in (100, 400)
    )
    assert large < 4 * small * 1.5 + 1000
