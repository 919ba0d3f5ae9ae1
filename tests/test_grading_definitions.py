import ast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.grading.definitions import (
    MAX_PROGRAM_CHARS,
    code_in_prose,
    defines,
    mentions,
    parse,
    with_helpers,
)


@pytest.mark.parametrize(
    "code",
    [
        "def f(x):\n    return x",
        "async def f(x):\n    return x",
        "f = lambda x: x",
        "f: object = lambda x: x",
        "f = cache(g)",
        "if True:\n    def f(x):\n        return x",
        "try:\n    import fast\nexcept ImportError:\n    def f(x):\n        return x",
        "class f:\n    def __init__(self, x):\n        self.x = x",
        'def f(x):\n    """Doc."""\n    return x',
    ],
)
def test_definitions(code):
    assert defines(ast.parse(code), "f")


@pytest.mark.parametrize(
    "code",
    [
        "from m import f",
        "f(1)",
        "x = f",
        "f = 3",
        "def f(x): ...",
        "def f(x):\n    pass",
        'def f(x):\n    """Doc."""',
        "def f(x):\n    raise NotImplementedError('later')",
        "def g():\n    def f(x):\n        return x",
        "class Solution:\n    def f(self, x):\n        return x",
    ],
)
def test_what_is_no_definition(code):
    assert not defines(ast.parse(code), "f")


def test_a_method_is_found_by_its_dotted_name():
    tree = ast.parse("class Solution:\n    def f(self, x):\n        return x\n    def g(self): ...")
    assert defines(tree, "Solution.f")
    assert not defines(tree, "Solution.g")


@pytest.mark.parametrize(
    ("line", "found"), [("def f(", True), ("f = lam", True), ("def ff(", False), ("f == 1", False)]
)
def test_begun_definitions(line, found):
    assert mentions(f"x\n  {line}", "f") is found


def test_helpers_come_from_other_blocks_only_for_lacking_names_and_stand_first():
    code = "from __future__ import annotations\ndef f(x):\n    return a(x) + len(x)"
    other = "def b(x):\n    return 1\n@wraps\ndef a(x):\n    return b(x)\ndef unused(): pass\nlen = 3\nprint(f([1]))"
    names = "from functools import wraps"
    parts = [(ast.parse(text), text) for text in (names, other)]
    helpers = f"{names}\ndef b(x):\n    return 1\n@wraps\ndef a(x):\n    return b(x)\n"
    future, body = code.split("\n", 1)
    assert with_helpers(ast.parse(code), code, parts) == f"{future}\n{helpers}{body}"


def test_code_in_prose_keeps_the_statements():
    text = "Here is the code:\n\n@cache\ndef f(x):\n    if x:\n        return 1\n\n    return 2\n\nHope it helps!\n"
    assert code_in_prose(text).strip() == text.split("\n\n", 1)[1].rsplit("Hope", 1)[0].strip()


@pytest.mark.parametrize(
    "text",
    ["-" * 100_000 + "1", "(" * 50_000, "a" + ".b" * 90_000, "\0", "\ud800", "x\n" * MAX_PROGRAM_CHARS],
)
def test_text_that_is_too_deep_or_too_large_is_no_program(text):
    assert parse(text) is None


@given(st.text())
def test_reading_any_text_never_raises(text):
    tree = parse(text)
    if tree is not None:
        defines(tree, "f")
        with_helpers(tree, text, [(tree, text)])
    code_in_prose(text)
    mentions(text, "f")
