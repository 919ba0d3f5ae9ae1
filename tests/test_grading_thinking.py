import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.grading.thinking import has_end_mark, split

END = "</think>"
DRAFT = "Hm.\n```python\ndraft\n```\n"


@pytest.mark.parametrize(
    "content",
    [
        f"{DRAFT}</think>final",  # the template prefilled the start
        f"<think>{DRAFT}</think>final",
        f"<THINK>{DRAFT}</THINK>final",
        f"{DRAFT}A mention of </think> and on.\n{DRAFT}</think>final",
        "```python\nnever closed\n</think>final",
        "```python\nnever closed, I am done.</think>\nfinal",
        f"[THINK]{DRAFT}[/THINK]final",
        f"◁think▷{DRAFT}◁/think▷final",
        "<|channel|>analysis<|message|>draft<|end|><|start|>assistant<|channel|>final<|message|>final<|return|>",
    ],
)
def test_the_answer_is_what_follows_the_thought(content):
    found = split("", content, END)
    assert found.answer.strip() == "final"
    assert "draft" in found.reasoning or "closed" in found.reasoning
    assert not found.unfinished


def test_the_configured_mark_counts_though_it_is_unknown():
    assert split("", "draft<<end>>final", "<<end>>").answer == "final"


@pytest.mark.parametrize(
    "content",
    [
        '```python\ndef f(t):\n    return "<think>" + t + "</think>"\n```',
        "I strip `</think>` first.",
        "no mark at all",
    ],
)
def test_a_mark_in_code_or_quotes_is_no_mark(content):
    assert split("", content, END).answer == content
    assert not has_end_mark(content, END)


def test_with_a_reasoning_field_the_content_is_the_answer():
    content = 'Uses "</think>" in\ntext </think>\nas well'
    assert split("thought", content, END).answer == content


@pytest.mark.parametrize("content", ["</think>final", "\n<think>thought</think>final"])
def test_a_thought_repeated_in_the_content_is_taken_out(content):
    found = split("thought", content, END)
    assert (found.reasoning, found.answer) == ("thought", "final")


@pytest.mark.parametrize("content", ["<think>\nstill", "<|channel|>analysis<|message|>still"])
def test_a_thought_that_does_not_end_leaves_no_answer(content):
    found = split("", content, END)
    assert found.unfinished
    assert not found.answer.strip()


def test_a_thought_begun_after_the_answer_is_cut_off():
    found = split("", "final\n<think>\nwait", END)
    assert found.answer == "final\n"
    assert not found.unfinished


PIECES = st.lists(
    st.sampled_from(["</think>", "<think>", "```", "\n", "a", "`", "<|channel|>", "final", "<|message|>"])
)


@given(st.text() | PIECES.map("".join), st.text() | PIECES.map("".join))
def test_never_raises_and_answers_with_text_of_the_content(reasoning, content):
    assert split(reasoning, content, END).answer in content
