"""Bytes that are no stream: whatever the bytes, exactly one failure and never an exception."""

import random

from loadgen.records import Outcome
from loadgen.sim.faults.events import until
from loadgen.sim.faults.scenario import scenario
from loadgen.sim.faults.stage import Framing, Stage

_ONE_FAILURE = "One failure, never ok and never an exception."
_SHOWS = "clients that skip what they cannot parse and report a success"


@scenario(Outcome.MALFORMED, _ONE_FAILURE, shows=_SHOWS)
async def not_events(stage: Stage) -> None:
    """A text that is no event stream, with the content type of one."""
    await stage.begin()
    await stage.send(stage.frame(b"upstream connect error or disconnect/reset before headers\n\n" * 3))
    await stage.end()


@scenario(Outcome.MALFORMED, _ONE_FAILURE, shows=_SHOWS)
async def broken_json(stage: Stage, after: int = 3) -> None:
    """`after` text events, then one whose JSON breaks off, then the rest of the stream."""
    events = stage.events
    begun = until(events, after)
    await stage.begin()
    await stage.play(begun)
    await stage.send(stage.frame(events[len(begun)].data[:60] + b"\n\n"))
    await stage.play(events[len(begun) + 1 :])
    await stage.end()


@scenario(Outcome.MALFORMED, _ONE_FAILURE, shows=_SHOWS)
async def binary(stage: Stage, size: int = 4096) -> None:
    """`size` random bytes as the body, the same ones each time."""
    await stage.begin()
    await stage.send(stage.frame(random.Random(0).randbytes(size)))
    await stage.end()


@scenario(Outcome.MALFORMED, _ONE_FAILURE, shows=_SHOWS)
async def invalid_utf8(stage: Stage, after: int = 3) -> None:
    """`after` text events, then one whose text holds half a character (bytes that are no UTF-8), then the rest."""
    events = stage.events
    begun = until(events, after)
    spoiled = events[len(begun)].data.replace(b'"id":"', b'"id":"\xf0\x9f', 1)
    await stage.begin()
    await stage.play(begun)
    await stage.send(stage.frame(spoiled))
    await stage.play(events[len(begun) + 1 :])
    await stage.end()


@scenario(Outcome.MALFORMED, _ONE_FAILURE, shows="hand-written chunk parsers that stop quietly")
async def bad_chunk_size(stage: Stage, after: int = 3) -> None:
    """`after` text events, then an HTTP chunk whose size is no number."""
    await stage.begin()
    await stage.play(until(stage.events, after))
    await stage.send(b"zz\r\ndata: {}\n\n\r\n")
    stage.close()


@scenario(Outcome.MALFORMED, _ONE_FAILURE, shows=_SHOWS)
async def bad_status_line(stage: Stage) -> None:
    """Something that is no HTTP in place of the response."""
    await stage.send(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")
    stage.close()


@scenario(Outcome.MALFORMED, _ONE_FAILURE, shows="clients that take the last value, or the first")
async def two_lengths(stage: Stage) -> None:
    """Two different Content-Length values in one head (RFC 9112, 6.3: not to be trusted)."""
    await stage.begin({"content-length": "10", "Content-Length": "20"}, framing=Framing.LENGTH)
    await stage.send(b"data: {}\n\n")
    stage.close()
