"""The body of a streaming chat request, as SGLang 0.5.x, vLLM and llama.cpp read it.

A running usage on the chunks (`stream_options.continuous_usage_stats`) gives exact counts for each of them.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_THINKING_KWARGS = ("thinking", "enable_thinking")  # Kimi's and DeepSeek's name; Qwen's


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """Everything of a chat request but its message."""

    model: str
    max_tokens: int
    temperature: float
    ignore_eos: bool = False
    thinking: bool | None = None
    template_kwargs: Mapping[str, Any] = field(default_factory=dict)  # of the chat template, over `thinking`
    extra: Mapping[str, Any] = field(default_factory=dict)  # more fields of the request


def chat_body(options: ChatOptions, message: str) -> bytes:
    """The JSON body of a streaming chat request with one user message; the message comes first."""
    body: dict[str, Any] = {
        "messages": [{"role": "user", "content": message}],
        "model": options.model,
        "max_tokens": options.max_tokens,
        "temperature": options.temperature,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
        "return_spec_tokens_details": True,
    }
    if options.ignore_eos:
        body["ignore_eos"] = True
    return json.dumps(body | template_fields(options), ensure_ascii=False).encode()


def template_fields(options: ChatOptions) -> dict[str, Any]:
    """The fields of a request that may change its prompt beside its message: template options, and what a user adds."""
    switch = {} if options.thinking is None else dict.fromkeys(_THINKING_KWARGS, options.thinking)
    template_kwargs = {**switch, **options.template_kwargs}
    return {**({"chat_template_kwargs": template_kwargs} if template_kwargs else {}), **options.extra}
