"""Both transports: IPv6, names with several addresses, TLS."""

import asyncio
import socket
import ssl
import subprocess
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from scripted_server import (
    Peer,
    Request,
    Script,
    delta,
    scripted,
)
from transport_fixtures import KINDS, ask, asking, once, record_of, serving
from transport_scripts import byte_by_byte, closes_mid_chunks, good, hangs_up, unframed

from loadgen.records import Outcome
from loadgen.transport.exchange import Exchange

both = pytest.mark.parametrize("kind", KINDS)


@both
def test_ipv6(kind: str) -> None:
    async def work() -> tuple[Outcome | None, str]:
        async with scripted(good, host="::1") as server:
            return record_of(await once(kind, server.url)).outcome, server.requests[0].headers["host"]

    outcome, host = asyncio.run(work())
    assert outcome is Outcome.OK
    assert host.startswith("[::1]:")


@both
def test_a_name_whose_first_address_does_not_listen(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def first_ipv6(_host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        stream = (socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
        return [
            (socket.AF_INET6, *stream, ("::1", port, 0, 0)),
            (socket.AF_INET, *stream, ("127.0.0.1", port)),
        ]

    async def work() -> tuple[list[Outcome | None], set[str]]:
        async with scripted(good) as server:
            monkeypatch.setattr(socket, "getaddrinfo", first_ipv6)
            url = server.url.replace("127.0.0.1", "localhost")
            async with asking(kind, url) as asker:
                outcomes = [record_of(await asker.post()).outcome for _ in range(3)]
            return outcomes, {request.headers["host"] for request in server.requests if request.headers}

    outcomes, hosts = asyncio.run(work())
    assert outcomes == [Outcome.OK] * 3
    assert all(host.startswith("localhost:") for host in hosts)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Key and certificate of localhost in one file; who trusts it trusts the server."""
    folder = tmp_path_factory.mktemp("tls")
    options = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    names = "subjectAltName=DNS:localhost,IP:127.0.0.1"
    files = ["-keyout", folder / "key.pem", "-out", folder / "cert.pem"]
    subprocess.run(["openssl", *options.split(), "-addext", names, *files], check=True, capture_output=True)
    return folder


@pytest.fixture
def server_tls(certificate: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert.pem", certificate / "key.pem")
    return context


@pytest.fixture
def _trusted(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate / "cert.pem"))
    # aiohttp reads the variable when it is imported
    monkeypatch.setattr(aiohttp.connector, "_SSL_CONTEXT_VERIFIED", ssl.create_default_context())


@both
@pytest.mark.usefixtures("_trusted")
def test_tls(kind: str, server_tls: ssl.SSLContext) -> None:
    thought = "x" * 3_000_000

    async def streams(peer: Peer, _: Request) -> None:
        await peer.stream(
            delta(reasoning=thought, tokens=9), delta("a", finish="stop", tokens=10), pause_s=0.02
        )

    async def work() -> tuple[list[Exchange], list[bytes]]:
        async with scripted(streams, tls=server_tls) as server, asking(kind, server.url) as asker:
            if kind == "raw":
                await asker.call(lambda: asker.transport.open(2))
            posts = [asker.post(b"a" * 5_000_000), asker.post(b"b"), asker.post(b"c")]
            exchanges = [*await asyncio.gather(*posts), await asker.post(b"d")]
            return exchanges, [request.body for request in server.requests]

    exchanges, bodies = asyncio.run(work())
    records = [record_of(exchange) for exchange in exchanges]
    assert {record.outcome for record in records} == {Outcome.OK}
    assert {len(record.reasoning) for record in records} == {len(thought)}
    assert max(bodies, key=len) == b"a" * 5_000_000
    assert exchanges[3].is_on_reused_connection


@pytest.mark.usefixtures("_trusted")
@pytest.mark.parametrize(
    ("script", "outcome"),
    [
        (closes_mid_chunks, Outcome.TRUNCATED_STREAM),
        (hangs_up, Outcome.RESET),
        (byte_by_byte, Outcome.OK),
        (unframed, Outcome.OK),
    ],
)
def test_endings_over_tls(script: Script, outcome: Outcome, server_tls: ssl.SSLContext) -> None:
    assert record_of(asyncio.run(ask("raw", script, tls=server_tls))).outcome is outcome


@both
def test_a_certificate_that_nobody_trusts_is_a_connect_error(kind: str, server_tls: ssl.SSLContext) -> None:
    exchange = asyncio.run(ask(kind, good, tls=server_tls))
    assert exchange.failure is Outcome.CONNECT_ERROR
    assert "certificate" in exchange.error.lower()


@both
def test_tls_to_a_server_that_speaks_none_is_a_connect_error(kind: str) -> None:
    async def work() -> Exchange:
        async def says_plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(10)
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        async with serving(says_plain) as url:
            return await once(kind, url.replace("http:", "https:"))

    assert asyncio.run(work()).failure is Outcome.CONNECT_ERROR
