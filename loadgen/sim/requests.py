"""Request bodies of the generation endpoints, checked with SGLang 0.5.23's rules and told in its words.

Unknown fields are ignored and the model's name is only echoed, as in SGLang.
"""

import json
import math
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from loadgen.sim import tokenizer
from loadgen.sim.answers import Wish

_SYSTEM = "You are Kimi, an AI model."  # with the marks around it one cache page, shared by all prompts
_ROLES = {"user": "<|im_user|>", "assistant": "<|im_assistant|>"}


class BadRequestError(Exception):
    """The client's fault: HTTP 400. `kind` is SGLang's `type` field."""

    def __init__(self, message: str, kind: str = "BadRequestError") -> None:
        super().__init__(message)
        self.message = message
        self.kind = kind


@dataclass(frozen=True, slots=True)
class Generation:
    """One request, whatever its endpoint."""

    rid: str
    model: str
    prompt_ids: list[int]
    asked: str  # the text that decides the answer
    wish: Wish
    seed: int | None
    stream: bool
    include_usage: bool
    continuous_usage: bool
    separate_reasoning: bool
    stream_reasoning: bool
    spec_details: bool
    cached_details: bool


def parse_json(raw: bytes) -> dict[str, Any]:
    """The body as an object. Raises BadRequestError."""
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError) as error:
        at = getattr(error, "pos", 0)
        detail = {
            "type": "json_invalid",
            "loc": ("body", at),
            "msg": "JSON decode error",
            "input": {},
            "ctx": {"error": getattr(error, "msg", "malformed")},
        }
        raise _validation(detail) from None
    if not isinstance(value, dict):
        raise _validation(
            {"type": "model_attributes_type", "loc": ("body",), "msg": "Input should be an object"}
        )
    return value


def chat(body: Mapping[str, Any], context_tokens: int) -> Generation:
    """A chat completion. Raises BadRequestError."""
    messages = _field(body, "messages", list, required=True)
    if not messages:
        raise BadRequestError("Messages cannot be empty.")
    turns = [_turn(message, index) for index, message in enumerate(messages)]
    thinking = _thinking(body)
    limit = body.get("max_completion_tokens")
    if limit is None:
        limit = body.get("max_tokens")
    asked = next((text for role, text in reversed(turns) if role == "user"), turns[-1][1])
    ids = tokenizer.encode(_template(turns, thinking=thinking))
    return _generation(body, ids, asked, thinking, limit, context_tokens)


def completion(body: Mapping[str, Any], context_tokens: int) -> Generation:
    """A text completion. Raises BadRequestError."""
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str):
        prompt = prompt[0]
    ids, text = _prompt(prompt, "prompt")
    return _generation(body, ids, text, _ends_in_thought(text), body.get("max_tokens", 16), context_tokens)


def generate(body: Mapping[str, Any], context_tokens: int) -> Generation:
    """SGLang's own /generate. Raises BadRequestError."""
    ids, text = _prompt(body.get("input_ids") if body.get("text") is None else body["text"], "text")
    sampling = _field(body, "sampling_params", dict) or {}
    whole = {**sampling, **{key: body[key] for key in ("rid", "stream") if key in body}}
    limit = sampling.get("max_new_tokens", 128)
    return _generation(whole, ids, text, _ends_in_thought(text), limit, context_tokens)


def prompt_texts(body: Mapping[str, Any]) -> str | list[str]:
    """The `prompt` of /tokenize: a text or a list of texts. Raises BadRequestError."""
    prompt = body.get("prompt")
    if isinstance(prompt, str) or (isinstance(prompt, list) and all(isinstance(p, str) for p in prompt)):
        return prompt
    raise _wrong_type("prompt", "a string or a list of strings")


def token_text(body: Mapping[str, Any]) -> str:
    """The text of /detokenize's `tokens`. Raises BadRequestError."""
    tokens = _field(body, "tokens", list, required=True)
    return _prompt(tokens, "tokens")[1] if tokens else ""


def _generation(
    body: Mapping[str, Any], ids: list[int], asked: str, thinking: bool, limit: Any, context_tokens: int
) -> Generation:
    _check_sampling(body)
    options = _field(body, "stream_options", dict) or {}
    rid = _field(body, "rid", str)
    return Generation(
        rid=rid or uuid.uuid4().hex,
        model=_field(body, "model", str) or "default",
        prompt_ids=ids,
        asked=asked,
        wish=Wish(
            max_tokens=_output_limit(limit, len(ids), context_tokens),
            min_tokens=_field(body, "min_tokens", int) or _field(body, "min_new_tokens", int) or 0,
            ignore_eos=_flag(body, "ignore_eos"),
            stop=_stops(body.get("stop")),
            thinking=thinking,
        ),
        seed=_field(body, "seed", int),
        stream=_flag(body, "stream"),
        include_usage=_flag(options, "include_usage"),
        continuous_usage=_flag(options, "continuous_usage_stats"),
        separate_reasoning=_flag(body, "separate_reasoning", default=True),
        stream_reasoning=_flag(body, "stream_reasoning", default=True),
        spec_details=_flag(body, "return_spec_tokens_details"),
        cached_details=_flag(body, "return_cached_tokens_details"),
    )


def _turn(message: Any, index: int) -> tuple[str, str]:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise _wrong_type(f"messages.{index}", "a message with a role")
    content = message.get("content")
    if isinstance(content, list):
        parts = [
            part.get("text") for part in content if isinstance(part, dict) and part.get("type") == "text"
        ]
        if not all(isinstance(part, str) for part in parts):
            raise _wrong_type(f"messages.{index}.content", "a list of text parts")
        content = "\n".join(str(part) for part in parts)
    if content is None:
        content = ""
    if not isinstance(content, str):
        raise _wrong_type(f"messages.{index}.content", "a string")
    return message["role"], content


def _template(turns: list[tuple[str, str]], *, thinking: bool) -> str:
    """A Kimi-style chat template. It prefills the opening <think>, so only </think> shows in the output."""
    if turns[0][0] != "system":
        turns = [("system", _SYSTEM), *turns]
    told = "".join(
        f"{_ROLES.get(role, '<|im_system|>')}{role}<|im_middle|>{text}{tokenizer.END_OF_TURN}"
        for role, text in turns
    )
    return f"{told}<|im_assistant|>assistant<|im_middle|>{'<think>' if thinking else '<think></think>'}"


def _thinking(body: Mapping[str, Any]) -> bool:
    kwargs = _field(body, "chat_template_kwargs", dict) or {}
    return kwargs.get("thinking") is not False and kwargs.get("enable_thinking") is not False


def _ends_in_thought(text: str) -> bool:
    return text.rstrip().endswith("<think>")


def _prompt(prompt: Any, name: str) -> tuple[list[int], str]:
    if isinstance(prompt, str):
        return tokenizer.encode(prompt), prompt
    if isinstance(prompt, list) and prompt and all(type(number) is int for number in prompt):
        try:
            return prompt, tokenizer.decode(prompt)
        except ValueError as error:
            raise BadRequestError(f"{error}.") from None
    raise _wrong_type(name, "a string or a list of token ids")


def _check_sampling(body: Mapping[str, Any]) -> None:
    temperature = body.get("temperature")
    if temperature is not None:
        value = _number(temperature, "temperature")
        if not (math.isfinite(value) and value >= 0):
            raise BadRequestError(f"temperature must be a non-negative finite number, got {value}.")
    top_p = body.get("top_p")
    if top_p is not None and not 0 < _number(top_p, "top_p") <= 1:
        raise BadRequestError(f"top_p must be in (0, 1], got {_number(top_p, 'top_p')}.")
    count = _field(body, "n", int)
    if count is not None and count != 1:
        raise BadRequestError(f"The simulated server makes one choice a request, got n={count}.")


def _output_limit(limit: Any, prompt_tokens: int, context_tokens: int) -> int:
    if prompt_tokens >= context_tokens:
        raise BadRequestError(
            f"The input ({prompt_tokens} tokens) is longer than the model's context length ({context_tokens} tokens)."
        )
    if prompt_tokens == 0:
        raise BadRequestError("The prompt is empty.")
    if limit is None:
        return context_tokens - prompt_tokens
    if type(limit) is not int:
        raise _wrong_type("max_tokens", "a valid integer")
    if limit < 0:
        raise BadRequestError(f"max_new_tokens must be at least 0, got {limit}.")
    if prompt_tokens + limit > context_tokens:
        raise BadRequestError(
            f"Requested token count exceeds the model's maximum context length of {context_tokens} tokens. You "
            f"requested a total of {prompt_tokens + limit} tokens: {prompt_tokens} tokens from the input messages and "
            f"{limit} tokens for the completion. Please reduce the number of tokens in the input messages or the "
            "completion to fit within the limit."
        )
    return max(limit, 1)


def _stops(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    stops = [value] if isinstance(value, str) else value
    if not isinstance(stops, list) or not all(isinstance(stop, str) for stop in stops):
        raise _wrong_type("stop", "a string or a list of strings")
    return tuple(stop for stop in stops if stop)


def _field(body: Mapping[str, Any], name: str, kind: type, *, required: bool = False) -> Any:
    value = body.get(name)
    if value is None:
        if required:
            raise _validation({"type": "missing", "loc": ("body", name), "msg": "Field required"})
        return None
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise _wrong_type(name, f"a valid {kind.__name__}")
    return value


def _flag(body: Mapping[str, Any], name: str, *, default: bool = False) -> bool:
    value = _field(body, name, bool)
    return default if value is None else bool(value)


def _number(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong_type(name, "a valid number")
    return float(value)


def _wrong_type(name: str, wanted: str) -> BadRequestError:
    return _validation({"type": "type_error", "loc": ("body", name), "msg": f"Input should be {wanted}"})


def _validation(detail: Mapping[str, Any]) -> BadRequestError:
    return BadRequestError(f"1 validation error:\n  {dict(detail)}", kind="Bad Request")
