"""What a server says instead of an answer: by its status, or inside a stream that began with 200."""

import json
from enum import StrEnum
from typing import Any

from loadgen.records import Outcome
from loadgen.sim import wire
from loadgen.sim.faults.events import until
from loadgen.sim.faults.scenario import scenario
from loadgen.sim.faults.stage import Framing, Stage

_KINDS = {
    400: "BadRequestError",
    429: "RateLimitError",
    500: "InternalServerError",
    503: "SERVICE_UNAVAILABLE",
}


class Shape(StrEnum):
    """SGLang's error event; its error as the event itself; a bare text (llama.cpp and proxies have such)."""

    SGLANG = "sglang"
    BARE = "bare"
    TEXT = "text"


@scenario(
    Outcome.IN_STREAM_ERROR,
    "A failure in spite of HTTP 200.",
    shows="vllm#57519; clients that skip events without choices",
)
async def error_first(stage: Stage, code: int = 500, shape: Shape = Shape.SGLANG) -> None:
    """HTTP 200, then an error event in place of the first token, and [DONE]. `shape`: sglang, bare, text."""
    await stage.begin()
    await _told(stage, code, shape)


@scenario(
    Outcome.IN_STREAM_ERROR,
    "A failure in spite of HTTP 200; its tokens are in no throughput.",
    shows="vllm#57519",
)
async def error_mid(stage: Stage, after: int = 3, code: int = 500, shape: Shape = Shape.SGLANG) -> None:
    """HTTP 200, `after` text events, then an error event and [DONE]. `shape`: sglang, bare, text."""
    await stage.begin()
    await stage.play(until(stage.events, after))
    await _told(stage, code, shape)


@scenario(
    Outcome.REJECTED,
    "Rejected, no token counted.",
    shows="pegainfer#548 (one token counted); SGLang answers a full queue in this way",
)
async def reject_in_stream(stage: Stage, code: int = 503) -> None:
    """HTTP 200, then an error event with `code` 503 or 429, and [DONE]: a full queue as SGLang tells it to a stream."""
    await stage.begin()
    await _told(stage, code, Shape.SGLANG, "The request queue is full.")


@scenario(
    Outcome.REJECTED,
    "Rejected; not sent again within measured load, whatever Retry-After says.",
    shows="clients that retry silently; pegainfer#548",
)
async def rate_limit(stage: Stage, code: int = 429, retry_after_s: int = 1) -> None:
    """Status 429 (or `code=503`) with Retry-After and a JSON error."""
    await _answer(stage, code, {"retry-after": str(retry_after_s)}, _error(code, "Too many requests."))


@scenario(
    Outcome.REJECTED,
    "Rejected: the status counts, not the events.",
    shows="pegainfer#548",
)
async def rate_limit_as_events(stage: Stage, code: int = 503, retry_after_s: int = 1) -> None:
    """Status 503 (or `code=429`) with Retry-After, and a body that is an event stream with an error event."""
    await stage.begin({"retry-after": str(retry_after_s)}, status=code)
    await _told(stage, code, Shape.SGLANG, "Too many requests.")


@scenario(
    Outcome.HTTP_ERROR,
    "The status and the server's words are on the row.",
    shows="clients that check only that there was a response",
)
async def http_error(stage: Stage, code: int = 500) -> None:
    """A status that is an error (`code`), with SGLang's JSON error."""
    await _answer(stage, code, {}, _error(code, "Internal server error."))


@scenario(
    Outcome.HTTP_ERROR,
    "Not followed: the load must not go to a server that nobody asked to measure.",
    shows="clients that follow and time both",
)
async def redirect(stage: Stage, code: int = 307) -> None:
    """A redirect to a port where nothing listens."""
    await stage.begin(
        {"location": "http://127.0.0.1:9/v1/chat/completions", "content-length": "0"},
        status=code,
        framing=Framing.LENGTH,
    )
    stage.entry.end("whole")


@scenario(
    Outcome.MALFORMED,
    "HTTP 200 and no event: a login or error page of something in between.",
    shows="clients that take any 200 for a success",
)
async def html_page(stage: Stage) -> None:
    """HTTP 200 with an HTML page, as a proxy or a login wall sends."""
    page = b"<!doctype html><html><body><h1>Sign in</h1></body></html>\n"
    await _body(stage, 200, {"content-type": "text/html"}, page)


@scenario(
    Outcome.MALFORMED,
    "One JSON object is not a stream: no chunk has a time.",
    shows="clients that report TTFT equal to the whole latency",
)
async def not_streamed(stage: Stage) -> None:
    """`stream: true` is ignored: one JSON completion with content type application/json."""
    answer, view = stage.asked.answer, stage.asked.view
    message = {"role": "assistant", "content": answer.text[: answer.visible]}
    tokens, prompt = answer.total_tokens, len(stage.asked.prompt_ids)
    whole = {
        "id": view.rid,
        "object": "chat.completion",
        "created": view.created,
        "model": view.model,
        "choices": [{"index": 0, "message": message, "finish_reason": answer.finish_reason}],
        "usage": {"prompt_tokens": prompt, "completion_tokens": tokens, "total_tokens": prompt + tokens},
    }
    await _answer(stage, 200, {}, whole)


@scenario(
    Outcome.OK,
    "The bytes are an event stream, whatever they are called.",
    shows="clients that choose their parser by content type",
)
async def wrong_content_type(stage: Stage, kind: str = "application/octet-stream") -> None:
    """A whole stream with another content type (`kind`)."""
    await stage.stream(stage.events, {"content-type": kind})


def _error(code: int, message: str) -> dict[str, Any]:
    kind = _KINDS.get(code, "InternalServerError")
    return {"object": "error", "message": message, "type": kind, "param": None, "code": code}


async def _told(stage: Stage, code: int, shape: Shape, message: str = "CUDA out of memory.") -> None:
    """The error event, [DONE] and the last chunk."""
    error = _error(code, message)
    told: dict[Shape, Any] = {
        Shape.SGLANG: {"error": error},
        Shape.BARE: error,
        Shape.TEXT: {"error": message},
    }
    await stage.send(stage.frame(wire.event(told[shape])))
    await stage.send(stage.frame(wire.DONE))
    await stage.end()


async def _answer(stage: Stage, status: int, headers: dict[str, str], value: Any) -> None:
    await _body(stage, status, {"content-type": "application/json", **headers}, json.dumps(value).encode())


async def _body(stage: Stage, status: int, headers: dict[str, str], body: bytes) -> None:
    length = {"content-length": str(len(body))}
    await stage.begin({**headers, **length}, status=status, framing=Framing.LENGTH)
    await stage.send(body)
    stage.entry.end("whole")
