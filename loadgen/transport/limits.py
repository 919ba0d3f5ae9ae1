"""Time limits of an exchange in flight, told from its stamps. Shared by the transports."""

from loadgen.records import Outcome
from loadgen.transport.exchange import READ, Exchange, TimeLimits

# An event stream's last event; a server may leave the connection open behind it.
_DONE = b"data: [DONE]"
_TAIL_BYTES = 64
_AFTER_DONE_NS = 500_000_000
MAX_RESPONSE_BYTES = 1 << 28


def last_read_ns(exchange: Exchange) -> int | None:
    """Our stamp of the latest read of a body byte, or of the head; None before."""
    if exchange.reads:
        user_ns: int = READ.unpack_from(exchange.reads, len(exchange.reads) - READ.size)[2]
        return user_ns
    return exchange.headers_ns


def is_answered(exchange: Exchange, now_ns: int) -> bool:
    """Whether the stream's end mark came some time ago, and nothing after it."""
    last_ns = last_read_ns(exchange)
    return last_ns is not None and now_ns - last_ns > _AFTER_DONE_NS and _DONE in exchange.body[-_TAIL_BYTES:]


def broken_limit(exchange: Exchange, limits: TimeLimits, now_ns: int) -> tuple[Outcome, str] | None:
    """The outcome of an exchange that broke a limit, with the words for it; None while it keeps them."""
    sent_ns = exchange.sent_ns
    if sent_ns is None:
        return None
    if now_ns - sent_ns > limits.total_ns:
        return Outcome.TOTAL_TIMEOUT, f"longer than {limits.total_ns / 1e9:g} s in all"
    if len(exchange.body) > MAX_RESPONSE_BYTES:
        return Outcome.MALFORMED, f"a response of more than {MAX_RESPONSE_BYTES >> 20} MiB"
    last_ns = last_read_ns(exchange)
    if last_ns is not None:
        is_idle = now_ns - last_ns > limits.idle_ns
        return (Outcome.IDLE_TIMEOUT, f"nothing for {limits.idle_ns / 1e9:g} s") if is_idle else None
    if now_ns - sent_ns > limits.first_byte_ns:
        return Outcome.TIMEOUT_FIRST_BYTE, f"no response within {limits.first_byte_ns / 1e9:g} s"
    return None
