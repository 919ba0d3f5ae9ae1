"""Streams that are right and look unusual: other framing, line ends, cuts between sends, compression, sizes."""

import asyncio
import zlib
from dataclasses import replace
from enum import StrEnum

from loadgen.records import Outcome
from loadgen.sim.faults.events import Asked, Event, Kind, joined
from loadgen.sim.faults.scenario import scenario
from loadgen.sim.faults.stage import Framing, Stage

_CRLF = b"\r\n"


class Codec(StrEnum):
    """Content codings of RFC 9110, 8.4.1."""

    GZIP = "gzip"
    DEFLATE = "deflate"


@scenario(Outcome.OK, "All events and all text, as if whole.", shows="parsers that expect an event a read")
async def split_bytes(stage: Stage, pause_s: float = 0.0) -> None:
    """Every byte of the response, head and chunk sizes included, is a send of its own, `pause_s` after the last."""
    stage.pause_s = pause_s
    stage.cut = lambda data: (data[at : at + 1] for at in range(len(data)))
    await stage.stream(stage.events)


@scenario(Outcome.OK, "All events and all text.", shows="vllm bench (buffer parsed again for each read)")
async def split_delimiter(stage: Stage, pause_s: float = 0.002) -> None:
    """Each event is cut between the two newlines that end it, and between CR and LF of the framing, with a pause."""
    stage.pause_s = pause_s
    stage.cut = _delimiters_apart
    await stage.stream(stage.events)


@scenario(
    Outcome.OK,
    "Tokens from usage, not from reads; only the last event of a read has an exact time.",
    shows="sglang PR 19977/21037; clients that count reads or give shared reads gaps of 0",
)
async def merged_events(stage: Stage, count: int = 4) -> None:
    """`count` events in one HTTP chunk and one send."""
    events = stage.events
    groups = [events[at : at + max(1, count)] for at in range(0, len(events), max(1, count))]
    await stage.stream([replace(group[-1], data=joined(group)) for group in groups])


@scenario(
    Outcome.OK,
    "Token counts from usage; a chunk may hold tens of tokens.",
    shows="sglang PR 19977/21037 and sglang#33193 (chunks counted as tokens)",
)
async def backlog(stage: Stage, after: int = 3, hold_s: float = 0.2, held_tokens: int = 40) -> None:
    """After `after` text events the server holds back for `hold_s`; what piled up comes as one event of many tokens."""
    step, total = stage.pace.tokens, stage.asked.answer.total_tokens
    held = after * step + held_tokens
    events = stage.asked.events([*range(step, after * step + 1, step), *range(held, total, step)])
    await stage.begin()
    await stage.play(event for event in events if event.tokens <= after * step)
    await asyncio.sleep(hold_s)
    await stage.play(event for event in events if event.tokens > after * step)
    await stage.end()


@scenario(Outcome.OK, "All events and all text.", shows="line parsers that know only LF")
async def crlf(stage: Stage) -> None:
    """Lines end in CR LF, as the standard for event streams allows."""
    await stage.stream([replace(event, data=event.data.replace(b"\n", _CRLF)) for event in stage.events])


@scenario(
    Outcome.OK,
    "Comments are no events and no tokens; they do hold off the idle limit.",
    shows="clients that fail on, or count, keep-alive lines",
)
async def comments(stage: Stage) -> None:
    """A comment line (`: keep-alive`) before each event, in a chunk of its own."""
    pause = Event(Kind.OTHER, b": keep-alive\n\n", 0)
    await stage.stream([shown for event in stage.events for shown in (pause, event)])


@scenario(
    Outcome.OK,
    "Fields other than data are ignored, data lines of one event are joined, the blank after the colon may be missing.",
    shows="parsers that look for `data: ` at the start of an event",
)
async def event_fields(stage: Stage) -> None:
    """Each event has `event:`, `id:` and `retry:` lines, and `data:` without the blank."""
    fields = b"event: message\nid: 7\nretry: 1000\ndata:"
    await stage.stream([replace(event, data=fields + event.data[6:]) for event in stage.events])


@scenario(Outcome.OK, "Ignored.", shows="hand-written chunk parsers")
async def chunk_extensions(stage: Stage) -> None:
    """Each HTTP chunk has an extension and leading zeros in its size (RFC 9112, 7.1.1)."""
    stage.frame = lambda data: b'%08X;name="a;b"\r\n%b\r\n' % (len(data), data)
    await stage.stream(stage.events)


@scenario(
    Outcome.OK,
    "Read and ignored; the connection is good for the next request.",
    shows="hand-written chunk parsers",
)
async def trailers(stage: Stage) -> None:
    """Trailer fields after the last chunk (RFC 9112, 7.1.2)."""
    await stage.begin({"trailer": "x-checksum"})
    await stage.play(stage.events)
    await stage.end(b"x-checksum: 1f\r\nx-time: 3\r\n")


@scenario(
    Outcome.OK,
    "They are no response: the headers' time is that of the final one.",
    shows="clients that take the first head for the answer",
)
async def interim(stage: Stage) -> None:
    """100 Continue and 103 Early Hints before the response (RFC 9110, 15.2)."""
    await stage.send(b"HTTP/1.1 100 Continue\r\n\r\n")
    await stage.send(b"HTTP/1.1 103 Early Hints\r\nlink: </style.css>; rel=preload\r\n\r\n")
    await stage.stream(stage.events)


@scenario(
    Outcome.OK,
    "Unpacked; times are those of the packed bytes.",
    shows="clients that ask for identity and trust it",
)
async def compressed(stage: Stage, codec: Codec = Codec.GZIP) -> None:
    """The body is compressed (`codec`: gzip, deflate) though identity was asked for; each event is flushed."""
    bits = zlib.MAX_WBITS | 16 if codec is Codec.GZIP else zlib.MAX_WBITS
    packer = zlib.compressobj(wbits=bits)
    packed = [
        replace(event, data=packer.compress(event.data) + packer.flush(zlib.Z_SYNC_FLUSH))
        for event in stage.events
    ]
    end = Event(Kind.OTHER, packer.flush(), 0)
    await stage.stream([*packed, end], {"content-encoding": codec.value})


@scenario(
    Outcome.OK,
    "The end marks say that it is whole; the connection is not used again.",
    shows="clients that know only chunked bodies",
)
async def http10(stage: Stage) -> None:
    """HTTP/1.0: no chunks, the body ends when the server closes."""
    await stage.begin(framing=Framing.CLOSE, version="1.0")
    await stage.play(stage.events)
    stage.close()


@scenario(Outcome.OK, "As any other stream.", shows="clients that know only chunked bodies")
async def content_length(stage: Stage) -> None:
    """The stream has a Content-Length, and still comes event by event."""
    events = stage.events
    await stage.begin({"content-length": str(len(joined(events)))}, framing=Framing.LENGTH)
    await stage.play(events)
    stage.entry.end("whole")


@scenario(
    Outcome.OK,
    "The next request takes a new connection.",
    shows="clients whose pool takes a connection that the server said it closes",
)
async def connection_close(stage: Stage) -> None:
    """A whole stream with `Connection: close`, after which the server closes."""
    await stage.begin({"connection": "close"})
    await stage.play(stage.events)
    await stage.end()
    stage.close()


@scenario(
    Outcome.OK,
    "The whole text; no limit on a line.",
    shows="TRT-LLM#13952 and open-webui#24928 (aiohttp's 128 KB); Kimi sends a whole reasoning in one event",
)
async def big_event(stage: Stage, size: int = 300_000) -> None:
    """The whole answer in one event of about `size` bytes."""
    await stage.stream(_padded(stage.asked, size))


@scenario(
    Outcome.OK,
    "The whole text, in time linear in its size.",
    shows="sglang#6737/#7301 and inference-perf#283 (Chunk too big); vllm bench (quadratic)",
)
async def huge_event(stage: Stage, size: int = 20_000_000) -> None:
    """The whole answer in one event of about `size` bytes."""
    await stage.stream(_padded(stage.asked, size))


def _padded(asked: Asked, size: int) -> list[Event]:
    """The stream in one text event whose first token is blown up to `size` characters: usage is as it was."""
    answer = asked.answer
    extra = max(0, size - len(answer.text))
    text = "a" * extra + answer.text
    ends = [end + extra for end in answer.ends]
    thinking = asked.answered(text=text, ends=ends, visible=answer.visible + extra)
    return thinking.events([])


def _delimiters_apart(data: bytes) -> list[bytes]:
    pieces = data.replace(b"\n\n", b"\n\0\n").replace(_CRLF, b"\r\0\n").split(b"\0")
    return [piece for piece in pieces if piece]
