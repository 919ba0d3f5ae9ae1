"""Faults of the connection around a request that is answered well, or cannot be sent at all."""

import asyncio

from loadgen.clock import monotonic_ns
from loadgen.records import Outcome
from loadgen.sim.door import Door
from loadgen.sim.faults.house import House
from loadgen.sim.faults.scenario import scenario
from loadgen.sim.faults.stage import Stage


@scenario(
    Outcome.OK,
    "The next request takes another connection; sent once.",
    shows="aiohttp-based clients (ServerDisconnectedError on a reused connection)",
)
async def idle_close(stage: Stage, after_s: float = 0.2) -> None:
    """A whole stream; `after_s` later the server closes the idle connection."""
    await stage.stream(stage.events)
    if not await stage.arrival(after_s):
        stage.close()


@scenario(
    Outcome.OK,
    "Both requests ok: the second, found dead before any byte came, is sent once more and that is on its row.",
    shows="the same, at the moment when it hurts: uvicorn closes idle connections after 5 s",
)
async def idle_race(stage: Stage) -> None:
    """A whole stream; the server closes the connection when the next request arrives on it, unread: the client gets a RST."""
    await stage.stream(stage.events)
    await stage.arrival()
    stage.close()


@scenario(
    Outcome.RESET,
    "Connections over the limit fail, the others are measured; that the limit was the server's is said.",
    shows="inference-perf#50, mlcommons/endpoints#386/#407/#411; guidellm#487",
    is_server_wide=True,
)
async def connection_limit(_house: House, door: Door, connections: int = 8) -> None:
    """At most `connections` connections at once: one more is accepted and reset at once."""
    door.limit = connections
    await asyncio.Event().wait()


@scenario(
    Outcome.CONNECT_ERROR,
    "Not sent, and counted: they are in the failure rate, in no latency.",
    shows="clients that count only what was answered",
    is_server_wide=True,
)
async def refuse(house: House, door: Door, every_s: float = 10.0, lasts_s: float = 2.0) -> None:
    """The port is closed for `lasts_s` at the end of each `every_s`; open connections go on."""
    while True:
        await asyncio.sleep(max(0.0, every_s - lasts_s))
        from_ns = monotonic_ns()
        door.shut()
        await asyncio.sleep(lasts_s)
        await door.open()
        house.log.fault("refuse", from_ns, monotonic_ns())
