"""Which transport carries the timed requests."""

import re
import sys
from collections.abc import Callable, Sequence

from loadgen.errors import BadInput
from loadgen.transport.connection import Parts
from loadgen.transport.exchange import Exchange, TimeLimits
from loadgen.transport.fallback import AiohttpTransport
from loadgen.transport.raw import RawTransport

_IN_A_HEADER = re.compile(r"[\x21-\x7e]+")
Transport = RawTransport | AiohttpTransport


def make_transport(
    kind: str,
    urls: Sequence[str],
    limits: TimeLimits,
    on_end: Callable[[Exchange], None],
    *,
    api_key: str | None = None,
) -> Transport:
    """Our own client (`raw`), or aiohttp's (`aiohttp`; always where our own cannot run). The caller closes it.

    Raises BadInput for a key that cannot be sent.
    """
    if api_key and not _IN_A_HEADER.fullmatch(api_key):
        raise BadInput(
            "the API key has characters that no header can carry; look for a line break at its end"
        )
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
