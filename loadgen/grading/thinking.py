"""Separates what a thinking model thought from what it answered. Pure; looks for marks, never at code.

Chat templates prefill the opening mark, so often only the end mark shows in the content.
"""

import re
from dataclasses import dataclass

from loadgen.grading.fences import Fence, closes, opening

# Marks of models seen without a reasoning parser before them; the configured end mark comes on top.
_END_MARKS = (
    "</think>", "</thinking>", "</thought>", "</reasoning>", "</seed:think>", "</mm:think>", "[/THINK]", "◁/think▷",
)  # fmt: skip
_THOUGHT_BLOCKS = ("think", "thinking", "thought", "reasoning")
_QUOTES = "`\"'"
_HARMONY_CHANNEL = "<|channel|>"
_HARMONY_MESSAGE = "<|message|>"


@dataclass(frozen=True, slots=True)
class Split:
    """`unfinished`: the thought had begun and no end of it was seen, so there is no answer after it."""

    reasoning: str
    answer: str
    unfinished: bool = False


@dataclass(frozen=True, slots=True)
class _Marks:
    ends: re.Pattern[str]
    starts: re.Pattern[str]


def split(reasoning: str, content: str, end_of_thinking: str) -> Split:
    """Thought and answer of one message.

    With a reasoning field the content is the answer, but for a thought repeated at its head. Else the answer is what
    follows the last end mark outside a fenced block; a start mark never ended makes all after it thought.
    """
    marks = _marks(end_of_thinking)
    if reasoning.strip():
        head = content.lstrip()
        repeated = marks.starts.match(head) or marks.ends.match(head)
        return Split(reasoning, _by_marks(content, marks).answer if repeated else content)
    if _HARMONY_CHANNEL in content:
        return _by_harmony(content)
    return _by_marks(content, marks)


def has_end_mark(content: str, end_of_thinking: str) -> bool:
    """Whether a thought ends inside this content."""
    return _answer_start(content, _marks(end_of_thinking)) is not None


def _marks(end_of_thinking: str) -> _Marks:
    ends = dict.fromkeys((end_of_thinking, *_END_MARKS))
    starts = [end.replace("/", "", 1) for end in ends if "/" in end]
    return _Marks(
        re.compile("|".join(re.escape(mark) for mark in ends), re.IGNORECASE),
        re.compile("|".join(re.escape(mark) for mark in starts), re.IGNORECASE),
    )


def _by_marks(content: str, marks: _Marks) -> Split:
    start = _answer_start(content, marks) or 0
    thought, answer = content[:start], content[start:]
    reopened = _unended_start(answer, marks)
    if reopened is None:
        return Split(thought, answer)
    before = answer[:reopened]
    return Split(thought + answer[reopened:], before, unfinished=not before.strip())


def _by_harmony(content: str) -> Split:
    """OpenAI's harmony format, leaked: the answer is the message of the last `final` channel."""
    start = content.rfind(f"{_HARMONY_CHANNEL}final")
    message = content.find(_HARMONY_MESSAGE, start) if start >= 0 else -1
    if message < 0:
        return Split(content, "", unfinished=True)
    answer = content[message + len(_HARMONY_MESSAGE) :].split("<|", 1)[0]
    return Split(content[:start], answer)


def _answer_start(content: str, marks: _Marks) -> int | None:
    """Offset just after the last end mark that is one: outside a fence, or at the head of its line (a thought may end
    in an open block). Fences are counted anew after each, for a thought need not balance its own.
    """
    if marks.ends.search(content) is None:
        return None
    found: int | None = None
    fence: Fence | None = None
    offset = 0
    for line in content.split("\n"):
        end = _end_in_line(line, marks, fence)
        if end is not None:
            found, fence = offset + end, opening(line[end:])
        else:
            fence = _fence_after(line, fence)
        offset += len(line) + 1
    return _last_plain_end(content, marks) if found is None else found


def _end_in_line(line: str, marks: _Marks, fence: Fence | None) -> int | None:
    ends = [match for match in marks.ends.finditer(line) if not _quoted(line, match)]
    if not ends or (fence is not None and fence.language in _THOUGHT_BLOCKS):
        return None
    if fence is not None and line[: ends[0].start()].strip():
        return None
    return ends[-1].end()


def _fence_after(line: str, fence: Fence | None) -> Fence | None:
    if fence is None:
        return opening(line)
    return None if closes(line, fence) else fence


def _quoted(line: str, match: re.Match[str]) -> bool:
    before, after = line[match.start() - 1 : match.start()], line[match.end() : match.end() + 1]
    return bool(before) and before in _QUOTES and after == before


def _last_plain_end(content: str, marks: _Marks) -> int | None:
    """Where all end marks lie in fences: the last that ends a line of prose, for then a block was left open before it."""
    plain = [m.end() for m in marks.ends.finditer(content) if content[m.end() : m.end() + 1] in ("\n", "")]
    return plain[-1] if plain else None


def _unended_start(answer: str, marks: _Marks) -> int | None:
    """Offset of a start mark at the head of a line outside fences; the text has no end mark after it."""
    fence: Fence | None = None
    offset = 0
    for line in answer.split("\n"):
        if fence is None and marks.starts.match(line.lstrip()):
            return offset
        fence = _fence_after(line, fence)
        offset += len(line) + 1
    return None
