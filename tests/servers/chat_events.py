"""Events of a chat stream: what each is for, and what a stream of them says. Prompts and keys of the conformance tests."""

from typing import Any

from live_server import DONE

CODING = (
    "Write a Python function fib(n) that returns the n-th Fibonacci number, with fib(0) = 0 and fib(1) = 1."
)
PROSE = "Tell me about the river that runs through your town."
USAGE = {"include_usage": True}
RUNNING_USAGE = {"include_usage": True, "continuous_usage_stats": True}

CHUNK_KEYS = {"id", "object", "created", "model", "choices"}
CHOICE_KEYS = {"index", "delta", "logprobs", "finish_reason", "matched_stop"}
USAGE_KEYS = {
    "prompt_tokens", "completion_tokens", "total_tokens", "prompt_tokens_details", "reasoning_tokens",
    "completion_tokens_details",
}  # fmt: skip
ROLE_DELTA = {"role": "assistant", "content": "", "reasoning_content": None}
FINISH_DELTA = {"reasoning_content": None}


def kind(event: Any) -> str:
    """What an event is for: role, reasoning, answer, finish, sglext, usage or done."""
    if event == DONE:
        return "done"
    if not event["choices"]:
        return "sglext" if "sglext" in event else "usage"
    choice = event["choices"][0]
    if choice["finish_reason"] is not None:
        return "finish"
    if "role" in choice["delta"]:
        return "role"
    return "answer" if choice["delta"].get("content") else "reasoning"


def order(events: list[Any]) -> list[str]:
    """The kinds of the events in order, each run of equal ones once."""
    kinds = [kind(event) for event in events]
    return [k for k, before in zip(kinds, [None, *kinds], strict=False) if k != before]


def deltas(events: list[Any], wanted: str) -> list[dict[str, Any]]:
    return [event["choices"][0]["delta"] for event in events if kind(event) == wanted]


def text(events: list[Any], wanted: str) -> str:
    field = "content" if wanted == "answer" else "reasoning_content"
    return "".join(delta[field] for delta in deltas(events, wanted))


def usage(events: list[Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(event["usage"] for event in events if kind(event) == "usage")
    return found


def finish(events: list[Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(event["choices"][0] for event in events if kind(event) == "finish")
    return found


def salted(prompt: str, salt: int) -> str:
    return f"({salt * 7919}) {prompt}"
