"""From an answer to the program in it, or to the reason why there is none. Pure, linear in the length of the answer.

Policies: the last complete block that defines the entry point is the program, whatever its language tag; a draft in
the reasoning is never graded; `class Solution` does not stand in for a plain function that the prompt named (it is
found when the entry point says `Solution.method`); text is not repaired (odd spaces and quotes reach the compiler);
code at module level beside the definition is kept and runs.
"""

import ast
import re
from dataclasses import dataclass
from enum import StrEnum

from loadgen.grading.definitions import code_in_prose, defines, mentions, parse, with_helpers
from loadgen.grading.fences import Block, Scan, inner_blocks, scan
from loadgen.grading.thinking import split

_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_SPECIAL_TOKEN = re.compile(r"<[|\uff5c][\w\u2581]{1,40}[|\uff5c]>|\[(?:BEGIN|DONE)\]")
_PYTHON = ("python", "py", "python3", "pycon")
_NOT_CODE = ("think", "thinking", "thought", "reasoning")
_LENGTH = ("length", "max_tokens")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a request brought. `reasoning`: text of the reasoning field(s); `finish_reason` None: none came."""

    reasoning: str
    content: str
    finish_reason: str | None


class ExtractionKind(StrEnum):
    CODE = "code"
    NO_CODE = "no_code"
    NO_ENTRY_POINT = "no_entry_point"
    TRUNCATED = "truncated"
    EMPTY_ANSWER = "empty_answer"
    ANSWER_IN_REASONING = "answer_in_reasoning"
    NO_RESPONSE = "no_response"


@dataclass(frozen=True, slots=True)
class Extraction:
    """`rule`: which rule chose the program; `flags`: finish_length, in_reasoning, delimiter_missing,
    code_in_reasoning_only, unparsed. `program` is set if and only if the kind is code.
    """

    kind: ExtractionKind
    rule: str | None
    flags: tuple[str, ...]
    program: str | None


def extract(
    answer: Answer, entry_point: str, *, end_of_thinking: str = "</think>", thinking_expected: bool = False
) -> Extraction:
    """The program of an answer.

    `thinking_expected` says that this model's thought comes inside the content (other answers of it show the end
    mark). Then an answer without the mark is flagged delimiter_missing, and is all thought if it was cut by length.
    Never raises for any text.
    """
    message = split(_clean(answer.reasoning), _clean(answer.content), end_of_thinking)
    flags = ["finish_length"] if answer.finish_reason in _LENGTH else []
    missing = message.unfinished or (thinking_expected and not message.reasoning.strip())
    if missing and answer.content.strip():
        flags.append("delimiter_missing")
    cut = answer.finish_reason is None or answer.finish_reason in (*_LENGTH, "abort")
    if message.unfinished or not message.answer.strip():
        return _without_answer(message.reasoning, entry_point, flags, cut=cut)
    if missing and cut:
        return _none(ExtractionKind.TRUNCATED, [*flags, "in_reasoning"])
    return _Chooser(scan(message.answer), entry_point, flags, cut=cut).choose()


def _clean(text: str) -> str:
    """Line ends made one newline each; terminal colours taken out."""
    return _ANSI.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))


def _none(kind: ExtractionKind, flags: list[str]) -> Extraction:
    return Extraction(kind, None, tuple(flags), None)


def _without_answer(reasoning: str, entry_point: str, flags: list[str], *, cut: bool) -> Extraction:
    if cut:
        return _none(ExtractionKind.TRUNCATED, [*flags, "in_reasoning"] if reasoning.strip() else flags)
    if _Chooser(scan(reasoning), entry_point, [], cut=False).choose().kind is ExtractionKind.CODE:
        return _none(ExtractionKind.ANSWER_IN_REASONING, [*flags, "code_in_reasoning_only"])
    return _none(ExtractionKind.EMPTY_ANSWER, flags)


@dataclass(frozen=True, slots=True)
class _Candidate:
    code: str
    tree: ast.Module | None
    block: Block

    def defines(self, entry_point: str) -> bool:
        return self.tree is not None and defines(self.tree, entry_point)


class _Chooser:
    """Chooses the program among the blocks of one answer text."""

    def __init__(self, found: Scan, entry_point: str, flags: list[str], *, cut: bool) -> None:
        self._entry_point = entry_point
        self._flags = flags
        self._cut = cut
        self._outside = [_without_tokens(piece) for piece in found.outside]
        self._candidates = [
            _candidate(block) for block in inner_blocks(found.blocks) if block.language not in _NOT_CODE
        ]

    def choose(self) -> Extraction:
        if self._cut and self._cut_inside_definition():
            return _none(ExtractionKind.TRUNCATED, self._flags)
        return self._from_blocks() or self._from_prose() or self._without_definition()

    def _cut_inside_definition(self) -> bool:
        """Whether the answer ends inside a definition of the entry point: what came before it is withdrawn."""
        last = self._candidates[-1] if self._candidates else None
        in_block = last is not None and not last.block.closed and mentions(last.code, self._entry_point)
        return in_block or mentions(self._outside[-1], self._entry_point)

    def _from_blocks(self) -> Extraction | None:
        for candidate in reversed(self._candidates):
            if candidate.defines(self._entry_point):
                rule = "last_defining_block" if candidate.block.closed else "unclosed_block"
                return self._program(rule, candidate)
        return None

    def _from_prose(self) -> Extraction | None:
        """Code outside fences, or behind an opener that nothing closed and prose followed."""
        pieces = [("unfenced_code", piece) for piece in self._outside]
        pieces += [("unclosed_block", c.code) for c in self._candidates if not c.block.closed]
        for rule, piece in reversed(pieces):
            if mentions(piece, self._entry_point):
                code = code_in_prose(piece)
                candidate = _Candidate(code, parse(code), Block("", code, closed=True))
                if candidate.defines(self._entry_point):
                    return self._program(rule, candidate)
        return None

    def _program(self, rule: str, chosen: _Candidate) -> Extraction:
        assert chosen.tree is not None
        others = [(c.tree, c.code) for c in self._candidates if c is not chosen and c.tree is not None]
        program = with_helpers(chosen.tree, chosen.code, others)
        return Extraction(ExtractionKind.CODE, rule, tuple(self._flags), program)

    def _without_definition(self) -> Extraction:
        if self._cut:
            return _none(ExtractionKind.TRUNCATED, self._flags)
        unparsed = [c for c in self._candidates if c.tree is None and self._is_meant(c)]
        if unparsed:
            flags = (*self._flags, "unparsed")
            return Extraction(ExtractionKind.CODE, "unparsed", flags, unparsed[-1].code)
        has_python = any(c.tree is not None and c.tree.body and self._is_python(c) for c in self._candidates)
        return _none(ExtractionKind.NO_ENTRY_POINT if has_python else ExtractionKind.NO_CODE, self._flags)

    def _is_meant(self, candidate: _Candidate) -> bool:
        sole = len(self._candidates) == 1 and candidate.block.language in _PYTHON
        return sole or mentions(candidate.code, self._entry_point)

    def _is_python(self, candidate: _Candidate) -> bool:
        return candidate.block.language in _PYTHON or candidate.block.language == ""


def _candidate(block: Block) -> _Candidate:
    code = _without_tokens(block.code) if not block.closed else block.code
    code = _without_prompts(code)
    return _Candidate(code, parse(code), block)


def _without_tokens(text: str) -> str:
    return _SPECIAL_TOKEN.sub("\n", text)


def _without_prompts(code: str) -> str:
    """The input lines of an interactive session, whose output lines are dropped; other code as it is."""
    if not code.lstrip().startswith(">>> "):
        return code
    lines = [line.strip() for line in code.split("\n")]
    return "\n".join(line[4:] for line in lines if line.startswith((">>> ", "... ", "...")))
