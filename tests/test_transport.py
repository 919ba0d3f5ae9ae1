"""Both transports against real sockets: each way in which an exchange can end, and what was sent."""

import asyncio
import os
import socket
from contextlib import suppress
from typing import Any

import pytest
from scripted_server import (
    CHUNKED_HEAD,
    Peer,
    Request,
    Script,
    closed_port,
    delta,
    scripted,
    whole_answer,
)
from transport_fixtures import KINDS, PATIENT, S, ask, asking, limits, once, record_of, serving
from transport_scripts import (
    byte_by_byte,
    closes_before_length,
    closes_in_a_size_line,
    closes_mid_chunks,
    closes_unframed,
    dies_in_stream,
    endless_header,
    good,
    half_a_head,
    half_json,
    hangs_up,
    hangs_up_in_the_head,
    headers_only,
    no_content,
    no_token,
    old_protocol,
    open_after_done,
    queue_full_in_stream,
    redirects,
    resets_at_once,
    resets_before_length,
    resets_mid_chunks,
    says_continue_first,
    says_no,
    silent,
    speaks_ssh,
    stalls_after_three,
    too_many,
    trickles,
    two_lengths,
    unframed,
    with_trailers,
)

from loadgen.records import Outcome
from loadgen.transport import raw
from loadgen.transport.exchange import Exchange, TimeLimits
from loadgen.transport.pick import exchange_once

both = pytest.mark.parametrize("kind", KINDS)


ENDINGS: list[tuple[Script, TimeLimits, Outcome]] = [
    (good, PATIENT, Outcome.OK),
    (unframed, PATIENT, Outcome.OK),
    (old_protocol, PATIENT, Outcome.OK),
    (says_continue_first, PATIENT, Outcome.OK),
    (with_trailers, PATIENT, Outcome.OK),
    (byte_by_byte, PATIENT, Outcome.OK),
    (open_after_done, PATIENT, Outcome.OK),
    (silent, limits(first_byte_s=0.1), Outcome.TIMEOUT_FIRST_BYTE),
    (half_a_head, limits(first_byte_s=0.1), Outcome.TIMEOUT_FIRST_BYTE),
    (headers_only, limits(idle_s=0.1), Outcome.IDLE_TIMEOUT),
    (stalls_after_three, limits(idle_s=0.1), Outcome.IDLE_TIMEOUT),
    (trickles, limits(total_s=0.2), Outcome.TOTAL_TIMEOUT),
    (silent, limits(total_s=0.1), Outcome.TOTAL_TIMEOUT),
    (says_no, PATIENT, Outcome.HTTP_ERROR),
    (redirects, PATIENT, Outcome.HTTP_ERROR),
    (no_content, PATIENT, Outcome.HTTP_ERROR),
    (too_many, PATIENT, Outcome.REJECTED),
    (queue_full_in_stream, PATIENT, Outcome.REJECTED),
    (dies_in_stream, PATIENT, Outcome.IN_STREAM_ERROR),
    (closes_mid_chunks, PATIENT, Outcome.TRUNCATED_STREAM),
    (closes_in_a_size_line, PATIENT, Outcome.TRUNCATED_STREAM),
    (closes_before_length, PATIENT, Outcome.TRUNCATED_STREAM),
    (closes_unframed, PATIENT, Outcome.TRUNCATED_STREAM),
    (no_token, PATIENT, Outcome.EMPTY_STREAM),
    (speaks_ssh, PATIENT, Outcome.MALFORMED),
    (endless_header, PATIENT, Outcome.MALFORMED),
    (two_lengths, PATIENT, Outcome.MALFORMED),
    (half_json, PATIENT, Outcome.MALFORMED),
    (hangs_up, PATIENT, Outcome.RESET),
    (hangs_up_in_the_head, PATIENT, Outcome.RESET),
    (resets_at_once, PATIENT, Outcome.RESET),
    (resets_mid_chunks, PATIENT, Outcome.RESET),
    (resets_before_length, PATIENT, Outcome.RESET),
]
WITHOUT_WORDS = (Outcome.OK, Outcome.EMPTY_STREAM)


@both
@pytest.mark.parametrize(
    ("script", "time_limits", "outcome"), ENDINGS, ids=lambda value: getattr(value, "__name__", "")
)
def test_each_ending_has_its_outcome(
    kind: str, script: Script, time_limits: TimeLimits, outcome: Outcome
) -> None:
    exchange = asyncio.run(ask(kind, script, time_limits))
    record = record_of(exchange)
    assert record.outcome is outcome
    assert 0 < exchange.sent_ns <= exchange.done_ns
    if script not in (closes_unframed, open_after_done):
        assert (record.error is None) == (outcome in WITHOUT_WORDS)


def test_every_outcome_that_a_socket_can_produce_is_among_the_endings() -> None:
    elsewhere = {Outcome.CLIENT_LOST, Outcome.CONNECT_ERROR, Outcome.CUT}
    assert {outcome for _, _, outcome in ENDINGS} == set(Outcome) - elsewhere


@pytest.mark.parametrize("body", [b"zz\r\nab\r\n", b"2\r\nabcdef\r\n", b"-" * 21])
def test_a_chunk_size_that_is_none_ends_the_exchange_at_once(body: bytes) -> None:
    async def garbage(peer: Peer, _: Request) -> None:
        await peer.send(CHUNKED_HEAD)
        await asyncio.sleep(0.02)  # a read of its own
        await peer.send(body + (b"\n" if body.startswith(b"-") else b""))
        await peer.wait_for_end()

    exchange = asyncio.run(ask("raw", garbage, limits(idle_s=5)))
    assert (exchange.failure, record_of(exchange).outcome) == (Outcome.MALFORMED, Outcome.MALFORMED)


@both
def test_nobody_listening_is_a_connect_error(kind: str) -> None:
    exchange = exchange_once(f"http://127.0.0.1:{closed_port()}", (b"{}",), PATIENT, kind=kind)
    assert exchange.failure is Outcome.CONNECT_ERROR
    assert (exchange.status, exchange.headers_ns, exchange.body) == (None, None, b"")
    assert record_of(exchange).error


@both
def test_a_name_that_nobody_has_is_a_connect_error(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(*_: Any, **__: Any) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    exchange = exchange_once("http://nowhere.invalid:80", (b"{}",), PATIENT, kind=kind)
    assert exchange.failure is Outcome.CONNECT_ERROR


def test_a_host_that_does_not_answer_is_a_connect_error_after_its_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(raw, "_PROBE_S", 0.05)
    with socket.socket() as full, socket.socket() as first, socket.socket() as second:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        for sock in (first, second):  # a full backlog drops what asks next
            sock.setblocking(False)
            sock.connect_ex(full.getsockname())
        url = f"http://127.0.0.1:{full.getsockname()[1]}"
        exchange = exchange_once(url, (b"{}",), limits(connect_s=0.2))
    assert (exchange.failure, exchange.error) == (Outcome.CONNECT_ERROR, "not connected within 0.2 s")
    assert (exchange.connected_ns, exchange.written_ns) == (None, None)


# -- one request, seen from the server


@both
def test_the_request_is_plain_json_without_compression(kind: str) -> None:
    async def work() -> list[Request]:
        async with scripted(good) as server:
            await once(kind, server.url, PATIENT, b'{"a"', b":", b"", memoryview(b"1}"))
            return server.requests

    (request,) = asyncio.run(work())
    assert (request.method, request.path, request.body) == ("POST", "/v1/chat/completions", b'{"a":1}')
    assert request.headers["content-type"] == "application/json"
    assert request.headers["accept-encoding"] == "identity"
    assert request.headers["content-length"] == "7"
    assert "authorization" not in request.headers


@both
def test_a_key_is_in_the_header_and_nowhere_else(kind: str) -> None:
    async def work() -> tuple[Request, Exchange, Exchange]:
        async with scripted(says_no) as server, asking(kind, server.url, api_key="k-1") as asker:
            answered = await asker.post(b"{}")
            server.refuse_connections()
        async with asking(kind, server.url, api_key="k-1") as asker:
            return server.requests[0], answered, await asker.post(b"{}")

    request, *exchanges = asyncio.run(work())
    assert request.headers["authorization"] == "Bearer k-1"
    assert "k-1" not in request.path + request.body.decode()
    assert not any("k-1" in str(exchange.error) for exchange in exchanges)
    assert [exchange.failure for exchange in exchanges] == [None, Outcome.CONNECT_ERROR]


@both
def test_a_url_adds_no_header(kind: str) -> None:
    async def work() -> list[Request]:
        async with scripted(good) as server:
            with suppress(ValueError):
                await once(kind, f"{server.url}\r\nX-Evil:1")
            return server.requests

    assert not any("x-evil" in request.headers for request in asyncio.run(work()))


@both
def test_one_event_of_20_mb_is_read(kind: str) -> None:
    thought = "x" * 20_000_000

    async def huge(peer: Peer, _: Request) -> None:
        await peer.stream(delta(reasoning=thought, tokens=9), delta("a", finish="stop", tokens=10))

    record = record_of(asyncio.run(ask(kind, huge)))
    assert record.outcome is Outcome.OK
    assert len(record.reasoning) == len(thought)
    assert record.response_bytes > len(thought)


@both
def test_a_size_line_may_be_cut_anywhere(kind: str) -> None:
    answer = whole_answer(12)
    body = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in answer)

    async def cut_lines(peer: Peer, _: Request) -> None:
        await peer.send(CHUNKED_HEAD)
        start = 0
        for number, part in enumerate(answer):
            await peer.send(body[start : start + 1 + number % 5])
            await asyncio.sleep(0.002)
            end = start + len(part) + len(b"%x" % len(part)) + 4
            await peer.send(body[start + 1 + number % 5 : end])
            start = end
        await peer.end()

    record = record_of(asyncio.run(ask(kind, cut_lines)))
    assert (record.outcome, len(record.chunk_ns), record.output_tokens) == (Outcome.OK, 12, 12)


@both
def test_a_large_body_reaches_a_server_that_reads_slowly(kind: str) -> None:
    body = os.urandom(1 << 20) * 12
    seen: list[bytes] = []

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for _ in range(10):  # more than the kernel's buffers hold is still to come
            seen.append(await reader.read(50_000))
            await asyncio.sleep(0.01)
        seen.append(await reader.readexactly(len(body) - sum(map(len, seen))))
        writer.write(
            CHUNKED_HEAD + b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in whole_answer()) + b"0\r\n\r\n"
        )
        await writer.drain()

    async def work() -> Exchange:
        async with serving(slow) as url:
            return await once(
                kind,
                url,
                PATIENT,
                body[:7],
                b"",
                *(body[n : n + 99_991] for n in range(7, len(body), 99_991)),
            )

    exchange = asyncio.run(work())
    assert b"".join(seen) == body
    assert record_of(exchange).outcome is Outcome.OK
    if kind == "raw":
        assert exchange.written_ns - exchange.sent_ns >= 0.05 * S


@both
@pytest.mark.parametrize("ending", ["open", "closed", "reset"])
def test_an_answer_before_the_body_was_sent_is_read(kind: str, ending: str) -> None:
    async def refuses(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        said = b'{"error":{"message":"too long"}}'
        writer.write(b"HTTP/1.1 413 X\r\nContent-Length: %d\r\n\r\n%s" % (len(said), said))
        await writer.drain()
        if ending == "open":
            await asyncio.sleep(5)
        elif ending == "closed":  # unread bytes make it a reset after the answer
            await asyncio.sleep(0.1)
            writer.close()

    async def work() -> Exchange:
        async with serving(refuses) as url:
            return await once(kind, url, PATIENT, bytes(20 << 20))

    record = record_of(asyncio.run(work()))
    assert (record.outcome, record.http_status, record.error) == (Outcome.HTTP_ERROR, 413, "too long")


@both
def test_a_server_that_dies_while_it_is_sent_to_is_a_reset(kind: str) -> None:
    async def dies(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.transport.abort()

    async def work() -> Exchange:
        async with serving(dies) as url:
            return await once(kind, url, PATIENT, bytes(20 << 20))

    assert asyncio.run(work()).failure is Outcome.RESET
