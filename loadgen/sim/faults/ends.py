"""How a stream can end that does not end well."""

from dataclasses import replace
from typing import Any

from loadgen.records import Outcome
from loadgen.sim.faults.events import Event, Kind, edited, joined, until, without
from loadgen.sim.faults.scenario import scenario
from loadgen.sim.faults.stage import Framing, Stage


@scenario(Outcome.OK, "Tokens equal usage; the baseline of all others.")
async def healthy(stage: Stage) -> None:
    """A whole stream: role, text, finish reason, usage if asked for, [DONE], last chunk."""
    await stage.stream(stage.events)


@scenario(
    Outcome.IDLE_TIMEOUT,
    "Ended by the client's own idle limit; all other requests and their rows stay, the cell ends in time.",
    shows="vllm#51030 (6 h without a result), sglang#32578 (1023 of 1024 done, then 2.25 h)",
)
async def stall(stage: Stage, after: int = 3) -> None:
    """`after` text events, then silence on an open connection."""
    await stage.begin()
    await stage.play(until(stage.events, after))
    await stage.hang()


@scenario(
    Outcome.IDLE_TIMEOUT,
    "Headers are no token: TTFT is null, the idle limit ends it.",
    shows="vllm#51030; tools whose only limit is on the headers",
)
async def stall_after_headers(stage: Stage) -> None:
    """A good response head, then silence."""
    await stage.begin()
    await stage.hang()


@scenario(
    Outcome.RESET,
    "The connection broke; what came before is kept on the row but is in no latency figure.",
    shows="guidellm#444 (failures in the latencies)",
)
async def reset(stage: Stage, after: int = 3) -> None:
    """`after` text events, then a RST."""
    await stage.begin()
    await stage.play(until(stage.events, after))
    await stage.reset()


@scenario(
    Outcome.RESET,
    "Not resent: the request was read, so a second one would be work nobody planned.",
    shows="clients that retry silently and report the second try",
)
async def reset_before_headers(stage: Stage) -> None:
    """The request is read and answered with a RST."""
    await stage.reset()


@scenario(
    Outcome.TRUNCATED_STREAM,
    "The end of the connection is not the end of the answer.",
    shows="vllm#54628, ragflow#19498",
)
async def truncate(stage: Stage, after: int = 3) -> None:
    """`after` text events, then a FIN: no finish reason, no [DONE], no last chunk."""
    await stage.begin()
    await stage.play(until(stage.events, after))
    stage.close()


@scenario(
    Outcome.TRUNCATED_STREAM,
    "A whole HTTP body is not a whole answer: the finish reason is missing.",
    shows="vllm#54628",
)
async def truncate_whole_body(stage: Stage, after: int = 3) -> None:
    """`after` text events and the last chunk: HTTP says that all is well, but there is no finish reason and no [DONE]."""
    await stage.stream(until(stage.events, after))


@scenario(
    Outcome.TRUNCATED_STREAM,
    "Without framing only the end marks tell; they are missing.",
    shows="vllm#54628",
)
async def truncate_unframed(stage: Stage, after: int = 3) -> None:
    """`after` text events in a body that ends by closing, then a FIN."""
    await stage.begin(framing=Framing.CLOSE)
    await stage.play(until(stage.events, after))
    stage.close()


@scenario(Outcome.TRUNCATED_STREAM, "Fewer bytes than promised.", shows="vllm#54628")
async def truncate_length(stage: Stage, after: int = 3) -> None:
    """A Content-Length of the whole stream, `after` text events, then a FIN."""
    events = stage.events
    await stage.begin({"content-length": str(len(joined(events)))}, framing=Framing.LENGTH)
    await stage.play(until(events, after))
    stage.close()


@scenario(
    Outcome.TRUNCATED_STREAM,
    "The half event is not an event; the count of tokens is that of the whole ones.",
    shows="vllm#54628; parsers that flush a half line at the end",
)
async def cut_chunk(stage: Stage, after: int = 3) -> None:
    """`after` text events, then a FIN in the midst of an HTTP chunk and of its event."""
    events = stage.events
    begun = until(events, after)
    await stage.begin()
    await stage.play(begun)
    framed = stage.frame(events[len(begun)].data)
    await stage.send(framed[: len(framed) // 2])
    stage.close()


@scenario(
    Outcome.OK,
    "ok from a server that never sends the mark, as preflight finds out; truncated_stream if its other streams have it.",
    shows="clients that wait for [DONE], or count any end as a good one",
)
async def no_done(stage: Stage) -> None:
    """A whole stream and last chunk, but no [DONE]."""
    await stage.stream(without(stage.events, Kind.DONE))


@scenario(
    Outcome.TRUNCATED_STREAM,
    "[DONE] alone does not say that the answer is whole.",
    shows="vllm#54628",
)
async def no_finish(stage: Stage) -> None:
    """All text, usage, [DONE] and last chunk, but no finish reason."""
    await stage.stream(_with_reason(stage.events, None))


@scenario(
    Outcome.OK,
    "Its end marks say that the answer is whole; the client does not wait for more, and does not use the connection again.",
    shows="vllm#51030; clients that wait for the end of the response for ever",
)
async def done_but_open(stage: Stage) -> None:
    """The whole stream with [DONE], but no last chunk: the connection stays open and silent."""
    await stage.begin()
    await stage.play(stage.events)
    await stage.hang()


@scenario(
    Outcome.OK,
    "Its end marks say that the answer is whole; how the connection ended stands beside it.",
    shows="clients that stop reading at [DONE] and reuse a dead connection",
)
async def done_then_closed(stage: Stage) -> None:
    """The whole stream with [DONE], then a FIN instead of the last chunk."""
    await stage.begin()
    await stage.play(stage.events)
    stage.close()


@scenario(
    Outcome.EMPTY_STREAM,
    "A failure, and TTFT null: never a success with TTFT 0.",
    shows="vllm#54708",
)
async def empty_stream(stage: Stage) -> None:
    """The role, [DONE] and last chunk: no token at all."""
    shown = [event for event in stage.events if event.kind in (Kind.ROLE, Kind.DONE)]
    await stage.stream(replace(event, tokens=0) for event in shown)


@scenario(Outcome.EMPTY_STREAM, "As empty_stream.", shows="vllm#54708")
async def empty_body(stage: Stage) -> None:
    """A good head and the last chunk: no event at all."""
    await stage.stream([])


@scenario(
    Outcome.IN_STREAM_ERROR,
    "Aborted by the server: no success, its tokens are in no throughput.",
    shows="clients for which any finish reason is a success",
)
async def abort(stage: Stage, after: int = 3) -> None:
    """`after` text events, then finish reason `abort` and [DONE], as SGLang ends a request that /abort_request names."""
    events = stage.events
    aborted = [event for event in _with_reason(events, "abort") if event.kind in (Kind.FINISH, Kind.DONE)]
    await stage.stream([*until(events, after), *(replace(event, tokens=0) for event in aborted)])


def _with_reason(events: list[Event], reason: str | None) -> list[Event]:
    """The stream with another finish reason (None: null)."""

    def change(value: dict[str, Any]) -> None:
        if "meta_info" in value:
            value["meta_info"]["finish_reason"] = {"type": reason} if reason else None
        else:
            value["choices"][0].update(finish_reason=reason, matched_stop=None)

    return [edited(event, change) if event.kind is Kind.FINISH else event for event in events]
