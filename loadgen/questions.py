"""What a worker asks in a cell, by request index: load prompts fitted to their length, or a problem set."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from loadgen.endpoint import Endpoint
from loadgen.errors import RunFailed
from loadgen.grading.problems import ProblemSet
from loadgen.prompts import CountTokens, LoadPrompts, user_message
from loadgen.schedule import Shard
from loadgen.wire import ChatOptions, chat_body


@dataclass(slots=True)
class Questions:
    """The requests of the cell as they are asked: body, message, problem, by index."""

    body: Callable[[int], bytes]
    message: Callable[[int], str]
    problem: Callable[[int], str | None]
    indexes: Iterator[int]
    target_prompt_tokens: int | None


def load_questions(prompts: LoadPrompts, shard: Shard, context_tokens: int) -> Questions:
    """A shard's requests of a load cell, without end."""
    return Questions(prompts.body, prompts.message, lambda _: None, shard.indexes(), context_tokens)


def eval_questions(problems: ProblemSet, options: ChatOptions, shard: Shard) -> Questions:
    """A shard's requests of an evaluation, one a problem."""
    asked = problems.problems
    return Questions(
        body=lambda index: chat_body(options, asked[index].prompt),
        message=lambda index: asked[index].prompt,
        problem=lambda index: asked[index].name,
        indexes=iter(range(shard.number, len(asked), shard.of)),
        target_prompt_tokens=None,
    )


async def token_counter(endpoint: Endpoint, model: str, salt: str) -> CountTokens:
    """A function that says how long a text is as a prompt: with salt, question and chat template."""

    async def by_usage(text: str) -> int:
        usage = (await endpoint.complete(user_message(salt, text), model, 1, 600)).get("usage")
        tokens = usage.get("prompt_tokens") if isinstance(usage, dict) else None
        if not isinstance(tokens, int):
            raise RunFailed(
                f"{endpoint.url}: it gives neither /tokenize nor usage, so no prompt can be made to length"
            )
        return tokens

    probe = await endpoint.count_tokens(user_message(salt, "a"), model)
    if probe is None:
        return by_usage
    template_tokens = await by_usage("a") - probe

    async def by_tokenizer(text: str) -> int:
        tokens = await endpoint.count_tokens(user_message(salt, text), model)
        return await by_usage(text) if tokens is None else tokens + template_tokens

    return by_tokenizer
