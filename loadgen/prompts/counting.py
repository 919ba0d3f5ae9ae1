"""How long a message is as a prompt: by the server's tokenizer, by a tokenizer file, or by usage of a completion.

A tokenizer counts the message; what the chat template adds is the same for all messages, and is measured twice, as
usage.prompt_tokens of a completion of one token less the tokenizer's count. Where the two measurements disagree (a
template that depends on the text, another tokenizer's file), usage counts everything.
"""

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from loadgen.chat_request import ChatOptions, template_fields
from loadgen.endpoint import Endpoint
from loadgen.errors import RunFailed
from loadgen.prompts.bodies import behind_salt, load_message
from loadgen.prompts.settings import LengthSource
from loadgen.prompts.tokenizer_file import TokenizerFile

CountTokens = Callable[[str], Awaitable[int]]

_TEXTS_AT_ONCE = 8
_COMPLETIONS_AT_ONCE = 1  # SGLang with a short queue refuses the second of two that come together
_USAGE_TIMEOUT_S = 600.0
_DEAR_TOKENS = 2048
# Words, digits, code and other alphabets: two tokenizers that agree on this are the same for our purpose. They begin
# and end as prompts do, so that a tokenizer that joins text and template does it here as there.
_PROBES = tuple(
    behind_salt("one two", load_message(text).content)
    for text in (
        "Tokens of one tokenizer: 1234567 + 89.01, naïve façade, 東京 мир 🙂; def f(x):\n    return x**2\n\tend.",
        "another, longer probe of plain words so that whatever depends on the text of a message would be seen to differ",
    )
)


@dataclass(frozen=True, slots=True)
class Counter:
    """`count`: tokens of a user message as a prompt, template included; `count_text`: of a text alone (by usage: less
    what the shortest message takes). `identity` names the tokenizer and template by what they were seen to do.
    """

    count: CountTokens
    count_text: CountTokens
    source: LengthSource
    identity: str

    def allowed_off(self, target_tokens: int) -> int:
        """Tokens by which a fit may be off. By usage each count of a long prompt is a prefill: half of the 1 %."""
        is_dear = self.source is LengthSource.USAGE and target_tokens > _DEAR_TOKENS
        return target_tokens // 200 if is_dear else 0


async def make_counter(endpoint: Endpoint, options: ChatOptions, file: TokenizerFile | None) -> Counter:
    """The best counter that this server and the user's file allow. Raises RunFailed when there is none."""
    completions, texts = asyncio.Semaphore(_COMPLETIONS_AT_ONCE), asyncio.Semaphore(_TEXTS_AT_ONCE)

    async def usage(message: str) -> int:
        async with completions:
            return await _by_usage(endpoint, options, message)

    async def text_tokens(text: str) -> int:
        async with texts:
            return len(await _tokens(endpoint, options.model, file, text))

    used = await asyncio.gather(*(usage(probe) for probe in _PROBES))
    counted = await _probe_tokens(endpoint, options.model, file)
    added = {total - len(tokens) for total, tokens in zip(used, counted, strict=True)} if counted else set()
    if len(added) != 1:
        least = await usage("a")
        return _counter(usage, _less(usage, least - 1), LengthSource.USAGE, options, used)
    template_tokens = added.pop()
    source = LengthSource.TOKENIZER if file is None else LengthSource.TOKENIZER_FILE
    return _counter(_less(text_tokens, -template_tokens), text_tokens, source, options, [used, counted])


def _counter(
    count: CountTokens, count_text: CountTokens, source: LengthSource, options: ChatOptions, seen: Any
) -> Counter:
    shown = json.dumps([source, options.model, template_fields(options), seen], sort_keys=True, default=str)
    return Counter(count, count_text, source, hashlib.sha256(shown.encode()).hexdigest())


def _less(count: CountTokens, tokens: int) -> CountTokens:
    async def lessened(text: str) -> int:
        return await count(text) - tokens

    return lessened


async def _probe_tokens(endpoint: Endpoint, model: str, file: TokenizerFile | None) -> list[list[Any]]:
    if file is None and await endpoint.tokenize("a", model) is None:
        return []
    return [await _tokens(endpoint, model, file, probe) for probe in _PROBES]


async def _tokens(endpoint: Endpoint, model: str, file: TokenizerFile | None, text: str) -> list[Any]:
    if file is not None:
        return await asyncio.to_thread(file.encode, text)
    tokens = await endpoint.tokenize(text, model)
    if tokens is None:
        raise RunFailed(
            f"{endpoint.url}/tokenize: it answered before, and refuses a text of {len(text)} characters"
        )
    return tokens


async def _by_usage(endpoint: Endpoint, options: ChatOptions, message: str) -> int:
    more = template_fields(options)
    usage = (await endpoint.complete(message, options.model, 1, _USAGE_TIMEOUT_S, more)).get("usage")
    tokens = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    if not isinstance(tokens, int):
        raise RunFailed(
            f"{endpoint.url}: it gives neither /tokenize nor usage, so no prompt can be made to length"
        )
    return tokens
