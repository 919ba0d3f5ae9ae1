"""What a server tells of tokens and text: counts that are missing, doubled or unlike the request's, odd text."""

from dataclasses import replace
from typing import Any

from loadgen.records import Outcome
from loadgen.sim import wire
from loadgen.sim.faults.events import Asked, Event, Kind, edited, without
from loadgen.sim.faults.scenario import scenario
from loadgen.sim.faults.stage import Stage

_ASTRAL = "\\ud83d\\ude00"  # one emoji as JSON may write it: two escapes


@scenario(
    Outcome.OK,
    "Tokens exact by the total; how they spread over the chunks is labelled, and the check is raised.",
    shows="dynamo#11708, smg#2555",
)
async def usage_ignored(stage: Stage) -> None:
    """`continuous_usage_stats` is accepted and ignored: usage only at the end."""
    await stage.stream(stage.asked.seen(continuous_usage=False, include_usage=True).paced(stage.pace.tokens))


@scenario(
    Outcome.OK,
    "Tokens null and the check `tokens_unknown`: never the length that was asked for, never the chunks.",
    shows="sglang bench_serving (takes the length asked for)",
)
async def no_usage(stage: Stage) -> None:
    """No usage at all, whatever the request asks for."""
    await stage.stream(stage.asked.seen(continuous_usage=False, include_usage=False).paced(stage.pace.tokens))


@scenario(
    Outcome.OK,
    "Taken wherever it stands.",
    shows="vllm bench (usage beside choices is ignored), llmperf (fails on an event without choices)",
)
async def usage_with_choices(stage: Stage) -> None:
    """The total is on the event of the finish reason, which also has choices; there is no event for it alone."""
    events = stage.asked.seen(continuous_usage=False, include_usage=False).paced(stage.pace.tokens)
    await stage.stream([_with_usage(stage, e) if e.kind is Kind.FINISH else e for e in events])


@scenario(
    Outcome.OK,
    "The last count is the total; nothing is added up.",
    shows="clients that add up usage events",
)
async def usage_twice(stage: Stage) -> None:
    """Usage on the first text event (of the tokens so far), and the total twice, the second after [DONE]."""
    events = stage.asked.seen(continuous_usage=False, include_usage=True).paced(stage.pace.tokens)
    first = next(at for at, event in enumerate(events) if event.kind is not Kind.ROLE)
    events[first] = _with_usage(stage, events[first])
    total = [event for event in events if event.kind is Kind.USAGE]
    await stage.stream([*events, *total])


@scenario(
    Outcome.OK,
    "Counted as a chunk of no tokens: no division by it, no token gap of its own.",
    shows="sglang bench_serving (division by zero), inference-perf#564",
)
async def zero_token_chunk(stage: Stage) -> None:
    """Each text event is followed by one with a text (a combining accent) whose running count stays the same."""
    events: list[Event] = []
    for event in stage.events:
        events.append(event)
        if event.kind is Kind.TEXT:
            events.append(edited(event, lambda value: _set_text(value, "\u0301")))
    await stage.stream(events)


@scenario(
    Outcome.OK,
    "TTFT at the first reasoning; TTFA null; graded as truncated in the reasoning, not as a wrong answer.",
    shows="litellm-docs#559, inference-perf#592, sglang#35438, guidellm#737",
)
async def reasoning_only(stage: Stage) -> None:
    """All of max_tokens goes into the reasoning: finish reason `length`, no content."""
    answer = stage.asked.answer
    asked = stage.asked.seen(separate_reasoning=True).answered(
        thinking_tokens=answer.total_tokens + 1, finish_reason="length", matched_stop=None
    )
    await stage.stream(asked.paced(stage.pace.tokens))


@scenario(Outcome.OK, "No token and no text in them.", shows="clients that fail on null, or count it")
async def null_content(stage: Stage) -> None:
    """Between all text events stand ones with content null and finish reason null."""
    empty = {"index": 0, "delta": {"content": None}, "finish_reason": None}
    blank = Event(Kind.OTHER, wire.event({"object": "chat.completion.chunk", "choices": [empty]}), 0)
    await stage.stream(
        [
            shown
            for event in stage.events
            for shown in (event, blank)
            if event.kind is Kind.TEXT or shown is event
        ]
    )


@scenario(
    Outcome.OK,
    "Halves in neighbouring chunks join, a lone one becomes U+FFFD; tables and files stay readable.",
    shows="clients that fail when they write such a text",
)
async def lone_surrogate(stage: Stage) -> None:
    """An emoji as two JSON escapes, cut between two events, and a lone half after it."""
    events = stage.events
    halves = [_escaped(events, half) for half in (_ASTRAL[:6], _ASTRAL[6:], _ASTRAL[:6])]
    await stage.stream(_after_role(events, halves))


@scenario(Outcome.OK, "Kept as sent.", shows="sglang bench_serving (text that encodes to no token)")
async def combining(stage: Stage) -> None:
    """The first text is a combining accent that has no letter before it, the second a NUL character."""
    events = stage.events
    await stage.stream(_after_role(events, [_escaped(events, odd) for odd in ("\\u0301", "\\u0000")]))


@scenario(
    Outcome.OK,
    "The tokens that came, not those asked for.",
    shows="sglang bench_serving (with `usage=0` it assumes the length asked for)",
)
async def early_eos(stage: Stage, length: int = 43, usage: int = 1) -> None:
    """The model ends after `length` tokens with finish reason `stop`; `usage=0`: and no usage."""
    asked = _shortened(stage.asked, length)
    if not usage:
        asked = asked.seen(include_usage=False, continuous_usage=False)
    await stage.stream(asked.paced(stage.pace.tokens))


@scenario(
    Outcome.OK,
    "43 tokens, and the check on output lengths.",
    shows="vllm#13333",
)
async def ignore_eos_ignored(stage: Stage) -> None:
    """`ignore_eos` is accepted and ignored: 43 tokens, then finish reason `stop`."""
    await stage.stream(_shortened(stage.asked, 43).paced(stage.pace.tokens))


@scenario(
    Outcome.OK,
    "The server's count of the prompt on the row, its distance from the target as a check.",
    shows="vllm#42532 (1000 asked for, 5128 sent), sglang#15732 (92 % wrong)",
)
async def prompt_recounted(stage: Stage, factor: float = 1.128) -> None:
    """usage.prompt_tokens is `factor` times what was sent, as from a tokenizer that merges otherwise (below 1: shorter)."""
    count = max(1, round(len(stage.asked.prompt_ids) * factor))
    await stage.stream([_recounted(event, count) for event in stage.events])


def _shortened(asked: Asked, length: int) -> Asked:
    total = min(max(1, length), asked.answer.total_tokens)
    visible = asked.answer.ends[total - 1]
    return asked.answered(
        total_tokens=total,
        finish_reason="stop",
        matched_stop=None,
        visible=min(visible, asked.answer.visible),
        thinking_tokens=min(asked.answer.thinking_tokens, total + 1),
    )


def _usage(stage: Stage, tokens: int) -> dict[str, int]:
    prompt = len(stage.asked.prompt_ids)
    return {"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens}


def _with_usage(stage: Stage, event: Event) -> Event:
    return edited(event, lambda value: value.update(usage=_usage(stage, event.tokens)))


def _recounted(event: Event, prompt_tokens: int) -> Event:
    def change(value: dict[str, Any]) -> None:
        if usage := value.get("usage"):
            usage.update(prompt_tokens=prompt_tokens, total_tokens=prompt_tokens + usage["completion_tokens"])
        if "meta_info" in value:
            value["meta_info"]["prompt_tokens"] = prompt_tokens

    return event if event.kind is Kind.DONE else edited(event, change)


def _set_text(value: dict[str, Any], text: str) -> None:
    """Another text in the place where the event has one; a cumulative text grows."""
    if "meta_info" in value:
        value["text"] += text
        return
    choice = value["choices"][0]
    if "delta" in choice:
        name = "content" if choice["delta"].get("content") else "reasoning_content"
        choice["delta"][name] = text
    else:
        choice["text"] = text


def _escaped(events: list[Event], escape: str) -> Event:
    """The first text event with `escape` as its text, a JSON escape as it stands."""
    first = next(event for event in events if event.kind in (Kind.TEXT, Kind.FINISH))
    marked = edited(first, lambda value: _set_text(value, "@@"))
    return replace(marked, kind=Kind.OTHER, tokens=0, data=marked.data.replace(b"@@", escape.encode()))


def _after_role(events: list[Event], more: list[Event]) -> list[Event]:
    roles = [event for event in events if event.kind is Kind.ROLE]
    return [*roles, *more, *without(events, Kind.ROLE)]
