"""What the simulated model says: programs that are right, drafts that are not, lengths and stops."""

import math
import re

import pytest

from loadgen.sim import answers, tokenizer
from loadgen.sim.answers import Answer, Wish
from loadgen.sim.coding_answers import BY_FUNCTION

LONG = Wish(max_tokens=10_000)
FENCE = re.compile(r"```python\n(.*?)```", re.DOTALL)


def split(answer: Answer) -> tuple[str, str]:
    reasoning, _, rest = answer.text.partition(tokenizer.END_OF_THINKING)
    return reasoning, rest


def works(function: str, program: str) -> bool:
    """Runs our own text, not a stranger's."""
    names: dict[str, object] = {}
    try:
        exec(program, names)
        call = names[function]
        calls = {
            "is_palindrome": lambda: (
                [call(s) for s in ("", "a", "Aba", "A man, a plan, a canal: Panama", "race a car", "0P")]
                == [True, True, True, True, False, False]
            ),
            "fib": lambda: all(  # the wrong draft fails on the first, and would never end on the last
                call(n) == value for n, value in ((0, 0), (1, 1), (2, 1), (10, 55), (90, 2880067194370816120))
            ),
            "merge_sorted": lambda: (
                call([1, 2, 9], [3]) == [1, 2, 3, 9] and call([], [1, 1]) == [1, 1] and call([], []) == []
            ),
            "word_count": lambda: (
                call("The the\tCAT  saw\n") == {"the": 2, "cat": 1, "saw": 1} and call("") == {}
            ),
            "gcd": lambda: (
                all(call(a, b) == math.gcd(a, b) for a in range(1, 20) for b in range(1, 20))
                and [call(0, 0), call(0, 7), call(7, 0)] == [0, 7, 7]
            ),
        }
        return calls[function]()
    except (SyntaxError, KeyError):
        return False


@pytest.mark.parametrize("function", BY_FUNCTION)
@pytest.mark.parametrize("seed", range(6))
def test_a_coding_answer_thinks_long_errs_first_and_ends_right(function: str, seed: int) -> None:
    answer = answers.answer(f"Write a Python function {function} that ...", seed, LONG)
    reasoning, rest = split(answer)
    assert 300 <= answer.total_tokens <= 600
    assert answer.thinking_tokens > answer.total_tokens / 2
    assert (answer.finish_reason, answer.matched_stop) == ("stop", tokenizer.END_OF_TURN_ID)
    drafts = FENCE.findall(reasoning)
    program, *examples = FENCE.findall(rest)
    assert works(function, program)
    assert all(function in example and "def " not in example for example in examples)
    assert drafts


@pytest.mark.parametrize("function", sorted(BY_FUNCTION.keys() - {"gcd"}))
def test_drafts_of_the_reasoning_are_wrong(function: str) -> None:
    assert not all(works(function, draft) for draft in FENCE.findall(BY_FUNCTION[function].reasoning))


def test_the_drafts_of_gcd_never_end_or_divide_by_zero() -> None:
    endless, endless_recursion = FENCE.findall(BY_FUNCTION["gcd"].reasoning)
    assert "while a != b" in endless
    with pytest.raises(ZeroDivisionError):
        works("gcd", endless_recursion)


def test_the_same_prompt_and_seed_give_the_same_answer_and_others_another() -> None:
    told = [
        answers.answer(prompt, seed, LONG).text for prompt, seed in (("a", 1), ("a", 1), ("b", 1), ("a", 2))
    ]
    assert told[0] == told[1]
    assert len(set(told)) == 3


def test_prose_has_a_natural_length_or_just_what_is_asked() -> None:
    natural = [answers.answer(f"prompt {i}", 0, LONG) for i in range(40)]
    assert all(200 <= answer.total_tokens <= 802 for answer in natural)
    assert len({answer.total_tokens for answer in natural}) > 20
    for tokens in (1, 5, 256, 50_000):
        fixed = answers.answer("prompt", 0, Wish(tokens, ignore_eos=True))
        assert (fixed.total_tokens, fixed.finish_reason) == (tokens, "length")
        assert len(fixed.ids) == len(fixed.ends) == tokens
    assert answers.answer("prompt", 0, Wish(1000, min_tokens=950)).total_tokens == 951
    short = answers.answer("prompt", 0, Wish(20))
    assert (short.total_tokens, short.finish_reason, short.matched_stop) == (20, "length", None)


def test_without_thinking_there_is_only_the_answer() -> None:
    answer = answers.answer("fib", 0, Wish(1000, thinking=False))
    assert answer.thinking_tokens == 0
    assert tokenizer.END_OF_THINKING not in answer.text
    assert works("fib", FENCE.findall(answer.text)[0])


def test_a_stop_string_ends_the_answer_before_itself() -> None:
    answer = answers.answer("fib", 0, Wish(1000, stop=("nowhere in it", "def fib")))
    assert (answer.finish_reason, answer.matched_stop) == ("stop", "def fib")
    assert answer.text.startswith("def fib", answer.visible)
    assert "def fib" not in answer.text[: answer.visible]
    assert (
        answer.ends[answer.total_tokens - 2]
        < answer.visible + len("def fib")
        <= answer.ends[answer.total_tokens - 1]
    )
    assert answers.answer("fib", 0, Wish(10, stop=("def fib",))).finish_reason == "length"
