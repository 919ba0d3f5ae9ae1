import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.grading.fences import Block, inner_blocks, open_string, scan

CODE = "def f(x):\n    return x"


@pytest.mark.parametrize(
    ("text", "block"),
    [
        (f"```python\n{CODE}\n```", Block("python", CODE, closed=True)),
        (f"~~~py\n{CODE}\n~~~", Block("py", CODE, closed=True)),
        (f"~~~\n{CODE}\n```\n~~~", Block("", f"{CODE}\n```", closed=True)),
        (f"`````PYTHON title='x'\n{CODE}\n`````", Block("python", CODE, closed=True)),
        (f"```{{.python}}\n{CODE}\n```", Block("", CODE, closed=True)),
        (f"```python\n{CODE}", Block("python", CODE, closed=False)),
        (f"```python\n{CODE}\n```.", Block("python", CODE, closed=True)),
        (f"```python\n{CODE}```", Block("python", CODE, closed=True)),
        (f"Here it is: ```python\n{CODE}\n```", Block("python", CODE, closed=True)),
        ("1. ```python\n   x = 1\n\n   y = 2\n   ```", Block("python", "x = 1\n\ny = 2", closed=True)),
        ("```python x = 1```", Block("python", "x = 1", closed=True)),
    ],
)  # fmt: skip
def test_one_block_however_it_is_fenced(text, block):
    assert scan(text).blocks == (block,)


def test_inline_code_is_no_fence():
    assert scan("```x = 1``` is inline, and so is `y`\n").blocks == ()


@pytest.mark.parametrize("quote", ['"""', "'''"])
def test_a_fence_inside_a_triple_quoted_string_does_not_end_the_block(quote):
    code = f"def f():\n    {quote}Example:\n```python\nf()\n```\n    {quote}\n    return 1"
    assert scan(f"```python\n{code}\n```\nafter").blocks == (Block("python", code, closed=True),)


def test_a_stray_triple_quote_does_not_swallow_the_next_block():
    blocks = scan(f'```\nit\'s """ odd\n```\ntext\n```python\n{CODE}\n```\nand """ again').blocks
    assert blocks[-1] == Block("python", CODE, closed=True)


def test_a_tagged_opener_ends_a_block_that_was_never_closed():
    assert [b.code for b in scan(f"```python\nx = 1\n```python\n{CODE}\n```").blocks] == ["x = 1", CODE]


def test_text_outside_is_kept_in_order():
    assert scan("a\n```\nx\n```\nb\n```\ny\n```").outside == ("a", "b", "")


def test_blocks_inside_a_markdown_block():
    found = inner_blocks(scan(f"````markdown\nLook:\n```python\n{CODE}\n```\n````").blocks)
    assert found == [Block("python", CODE, closed=True)]


@pytest.mark.parametrize(
    ("line", "inside", "after"),
    [
        ('x = """a', None, '"""'),
        ('"""a"""', None, None),
        ('# it\'s """', None, None),
        ('x = \'"""\'', None, None),
        ('a """ b', '"""', None),
        ("a ''' b", '"""', '"""'),
        ('\\""" b', '"""', '"""'),
        ('x = ""', None, None),
    ],
)
def test_open_triple_quotes(line, inside, after):
    assert open_string(line, inside) == after


MARKDOWN = st.lists(
    st.sampled_from(
        ["```", "````", "~~~", "```python", "~~~py", '"""', "'''", "def f():", "    x", "text", "", "- ```", "> ```", "```x```"]
    ),
    max_size=40,
).map("\n".join)  # fmt: skip


@given(st.one_of(MARKDOWN, st.text()))
def test_scanning_never_raises_and_loses_no_word(text):
    found = scan(text)
    assert len(found.outside) == len(found.blocks) + 1
    everything = "".join(found.outside) + "".join(b.code + b.language for b in found.blocks)
    assert everything.count("x") + text.count("```x```") >= text.count("x") - sum(
        "x" in b.language for b in found.blocks
    )


def lines_run(function, text):
    """How many lines of this package run: an operation count that no clock disturbs."""
    count = 0

    def tracer(frame, event, _):
        nonlocal count
        if "grading" not in frame.f_code.co_filename:
            return None
        count += event == "line"
        return tracer

    old = sys.gettrace()
    sys.settrace(tracer)
    try:
        function(text)
    finally:
        sys.settrace(old)
    return count


@pytest.mark.parametrize(
    "unit",
    ["```python\nx = 1\n```\n", '```\n"""\n```\n', "```\n'''\n", "````\n```\n", "text\n", '"""\n```python\n', "```python\n"],
)  # fmt: skip
def test_work_grows_in_proportion_to_the_text(unit):
    small, large = (lines_run(scan, unit * n + "'''") for n in (200, 800))
    assert large < 4 * small * 1.5 + 500
