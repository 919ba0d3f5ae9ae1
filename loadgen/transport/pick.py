"""Which transport carries the timed requests."""

import sys
from collections.abc import Callable, Sequence

from loadgen.transport.connection import Parts
from loadgen.transport.exchange import Exchange, TimeLimits
from loadgen.transport.fallback import AiohttpTransport
from loadgen.transport.raw import RawTransport

Transport = RawTransport | AiohttpTransport


def make_transport(
    kind: str,
    urls: Sequence[str],
    limits: TimeLimits,
    on_end: Callable[[Exchange], None],
    *,
    api_key: str | None = None,
) -> Transport:
    """Our own client (`raw`), or aiohttp's (`aiohttp`; always where our own cannot run). The caller closes it."""
    make = RawTransport if kind == "raw" and sys.platform == "linux" else AiohttpTransport
    return make(urls, limits, on_end, api_key=api_key)


def kind_of(transport: Transport) -> str:
    """Its name: `raw` or `aiohttp`."""
    return "raw" if isinstance(transport, RawTransport) else "aiohttp"


def exchange_once(
    url: str, parts: Parts, limits: TimeLimits, *, api_key: str | None = None, kind: str = "raw"
) -> Exchange:
    """One request and what came of it; blocks until it is over."""
    exchange = Exchange()
    transport = make_transport(kind, [url], limits, lambda _: transport.stop(), api_key=api_key)
    try:
        transport.wake(lambda: transport.send(exchange, parts))
        transport.run()
    finally:
        transport.close()
    return exchange
