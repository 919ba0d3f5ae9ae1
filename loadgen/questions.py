"""What a worker asks in a cell, by request index: load prompts of an exact length, a dataset's, or a problem set."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from loadgen.chat_request import ChatOptions, chat_body
from loadgen.grading.problems import ProblemSet
from loadgen.job import CellJob
from loadgen.prompts.bodies import Parts
from loadgen.prompts.conversations import Conversations
from loadgen.prompts.prepare import Prepared
from loadgen.schedule import Shard


@dataclass(slots=True)
class Questions:
    """The requests of the cell as they are asked, by index.

    `parts` are the pieces of a body, sent one after the other and never joined; `body_bytes` is their length in all.
    With `conversations`, these are only the first turns (a conversation's number in place of the index), and
    `message` and `target_prompt_tokens` take a request's index. `length_source` is null for problems.
    """

    parts: Callable[[int], Parts]
    body_bytes: Callable[[int], int]
    message: Callable[[int], str]
    problem: Callable[[int], str | None]
    max_tokens: Callable[[int], int]
    target_prompt_tokens: Callable[[int], int | None]
    indexes: Iterator[int]
    length_source: str | None = None
    conversations: Conversations | None = None


def load_questions(prepared: Prepared, job: CellJob) -> Questions:
    """A shard's requests of a load cell, without end."""
    prompts, talk, context = prepared.prompts, prepared.conversations, job.cell.context_tokens
    turns = talk.turns if talk else 1
    return Questions(
        parts=prompts.parts,
        body_bytes=prompts.body_bytes,
        message=lambda index: (
            talk.user_text(*divmod(index, turns)) if talk else prompts.messages(index)[-1].content
        ),
        problem=lambda _: None,
        max_tokens=lambda _: job.cell.max_tokens,
        target_prompt_tokens=lambda index: context if index % turns == 0 else None,
        indexes=job.shard.indexes(),
        length_source=prepared.length_source,
        conversations=talk,
    )


def eval_questions(problems: ProblemSet, options: ChatOptions, shard: Shard) -> Questions:
    """A shard's requests of an evaluation, one a problem."""
    asked = problems.problems
    bodies = [chat_body(options, problem.prompt) for problem in asked]
    return Questions(
        parts=lambda index: (bodies[index],),
        body_bytes=lambda index: len(bodies[index]),
        message=lambda index: asked[index].prompt,
        problem=lambda index: asked[index].name,
        max_tokens=lambda _: options.max_tokens,
        target_prompt_tokens=lambda _: None,
        indexes=iter(range(shard.number, len(asked), shard.of)),
    )
