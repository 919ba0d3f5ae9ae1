"""Untimed calls: real answers, servers that know less, and servers that answer nonsense."""

import asyncio
import json
import math
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_server import Peer, Request, Script, closed_port, scripted
from sim_fixtures import SimServer

from loadgen.endpoint import Endpoint, open_endpoint, parse_metrics
from loadgen.errors import RunFailed

SGLANG = Path(__file__).parent / "fixtures" / "captures" / "sglang-0.5.23"
T = TypeVar("T")
Ask = Callable[[Endpoint], Awaitable[T]]


def answers(**by_path: Any) -> Script:
    """A server that answers a path (its slashes written as __) with a value, or a (status, value); else 404."""

    async def script(peer: Peer, request: Request) -> None:
        path = request.path.partition("?")[0].strip("/").replace("/", "__")
        found = by_path.get(path, (404, {"detail": "Not Found"}))
        status, value = found if isinstance(found, tuple) else (200, found)
        await peer.answer(value, status)

    return script


def ask(script: Script, question: Ask[T], api_key: str | None = None) -> tuple[T, list[Request]]:
    async def work() -> tuple[T, list[Request]]:
        async with scripted(script) as server, open_endpoint(server.url, api_key) as endpoint:
            return await question(endpoint), server.requests

    return asyncio.run(work())


def asked(question: Ask[T], **by_path: Any) -> T:
    return ask(answers(**by_path), question)[0]


def test_real_answers_of_sglang_are_read() -> None:
    real = {
        "v1__models": (SGLANG / "models.json").read_bytes(),
        "tokenize": (SGLANG / "tokenize.json").read_bytes(),
        "v1__chat__completions": (SGLANG / "chat_nonstream.json").read_bytes(),
        "metrics": (SGLANG / "metrics.txt").read_bytes(),
        "server_info": (SGLANG / "server_info_keys.json").read_bytes(),
        "flush_cache": (SGLANG / "flush.txt").read_bytes(),
    }

    async def all_of_them(endpoint: Endpoint) -> None:
        assert await endpoint.models() == ["kimi-k2.6"]
        assert len(await endpoint.tokenize("hello", "kimi-k2.6") or []) == 5
        assert (await endpoint.complete("hi", "m", 5, 10))["usage"]["completion_tokens"] > 0
        assert (await endpoint.metrics())["sglang:generation_tokens_total"] == 153 + 436
        assert "max_running_requests" in str(await endpoint.server_info())
        assert await endpoint.flush_cache(1)
        assert await endpoint.slots() is None

    ask(answers(**real), all_of_them)


def test_the_simulator_answers_all_that_sglang_does() -> None:
    async def work(url: str) -> None:
        async with open_endpoint(url) as endpoint:
            assert await endpoint.models() == ["m"]
            assert await endpoint.tokenize("hello there", "m")
            completion = await endpoint.complete("hi", "m", 3, 10)
            assert completion["usage"]["completion_tokens"] == 3
            assert '"simulated": true' in json.dumps(await endpoint.server_info())
            assert (await endpoint.metrics())["sglang:generation_tokens_total"] >= 3
            assert await endpoint.flush_cache(1)
            await endpoint.abort_all()

    with SimServer("--served-model-name", "m", "--enable-metrics", "--time-scale", "50") as server:
        asyncio.run(work(f"http://127.0.0.1:{server.port}"))


def test_what_a_server_does_not_know_is_none() -> None:
    async def all_of_them(endpoint: Endpoint) -> list[Any]:
        return [
            await endpoint.server_info(),
            await endpoint.tokenize("x", "m"),
            await endpoint.slots(),
            await endpoint.metrics(),
            await endpoint.flush_cache(0),
        ]

    assert asked(all_of_them) == [None, None, None, None, False]


def test_an_older_server_gives_its_settings_elsewhere() -> None:
    assert asked(lambda e: e.server_info(), get_server_info={"version": "0.4"}) == {"version": "0.4"}


def test_llamacpp_says_how_many_slots_it_has() -> None:
    assert asked(lambda e: e.slots(), props={"total_slots": 4}) == 4


DEEP = b"[" * 100_000


@pytest.mark.parametrize(
    "nonsense", [b"", b"<html>", b"[]", b"null", DEEP, b"\xff\xfe", b'{"data":null,"tokens":"x"}']
)
def test_nonsense_is_none_or_a_clear_failure(nonsense: bytes) -> None:
    async def all_of_them(endpoint: Endpoint) -> None:
        assert await endpoint.tokenize("x", "m") is None
        assert await endpoint.slots() is None
        with pytest.raises(RunFailed, match="a plain completion failed \\(200\\)"):
            await endpoint.complete("x", "m", 1, 5)
        assert await endpoint.server_info() in (None, {"data": None, "tokens": "x"})

    paths = ("tokenize", "props", "v1__chat__completions", "server_info")
    ask(answers(**dict.fromkeys(paths, nonsense)), all_of_them)


@pytest.mark.parametrize("data", [None, "x", 5, [1, None, {"x": 1}, {"id": "m"}]])
def test_a_list_of_models_of_any_shape(data: Any) -> None:
    assert asked(lambda e: e.models(), v1__models={"data": data}) == (["m"] if isinstance(data, list) else [])


@pytest.mark.parametrize("nonsense", [b"<html>", b"[]", DEEP])
def test_a_list_of_models_that_is_no_object_is_a_failure(nonsense: bytes) -> None:
    with pytest.raises(RunFailed, match="/v1/models answered 200: ") as caught:
        asked(lambda e: e.models(), v1__models=nonsense)
    assert len(str(caught.value)) < 400


def test_a_refusal_is_told_in_the_servers_words() -> None:
    body = (SGLANG / "err_maxtok_big.json").read_bytes()
    with pytest.raises(RunFailed, match=r"a plain completion failed \(400\): Requested token count exceeds"):
        asked(lambda e: e.complete("x", "m", 40_000, 5), v1__chat__completions=(400, body))
    with pytest.raises(RunFailed, match=r"/v1/models answered 401: Unauthorized"):
        asked(lambda e: e.models(), v1__models=(401, {"error": "Unauthorized"}))


def test_a_server_that_is_not_there_or_silent_or_hangs_up_is_a_run_failure() -> None:
    async def silent(peer: Peer, _: Request) -> None:
        await peer.wait_for_end()

    async def hangs_up(peer: Peer, _: Request) -> None:
        peer.close()

    async def half(peer: Peer, _: Request) -> None:
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{")
        peer.close()

    with pytest.raises(RunFailed, match=r"/v1/chat/completions: no answer within 0\.1 s"):
        ask(silent, lambda e: e.complete("x", "m", 1, 0.1))
    for script in (hangs_up, half):
        with pytest.raises(RunFailed, match="cannot be reached"):
            ask(script, lambda e: e.models())

    async def nobody() -> None:
        async with open_endpoint(f"http://127.0.0.1:{closed_port()}") as endpoint:
            await endpoint.models()

    with pytest.raises(RunFailed, match="cannot be reached"):
        asyncio.run(nobody())


def test_a_flush_that_fails_is_no_exception() -> None:
    async def hangs_up(peer: Peer, _: Request) -> None:
        peer.close()

    assert ask(hangs_up, lambda e: e.flush_cache(0))[0] is False
    assert asked(lambda e: e.flush_cache(2), flush_cache=(400, b"busy")) is False


def test_the_key_is_sent_with_every_call() -> None:
    _, requests = ask(answers(v1__models={"data": []}), lambda e: e.models(), api_key="k-1")
    assert requests[0].headers["authorization"] == "Bearer k-1"
    _, requests = ask(answers(), lambda e: e.flush_cache(2.5))
    assert (requests[0].method, requests[0].path) == ("POST", "/flush_cache?timeout=2.5")
    assert "authorization" not in requests[0].headers


def test_both_spellings_of_the_text_are_sent_to_tokenize() -> None:
    _, requests = ask(answers(), lambda e: e.tokenize("café", "m"))
    assert requests[0].json == {"model": "m", "prompt": "café", "content": "café"}


def test_metrics_are_summed_over_labels() -> None:
    page = (
        "# HELP a total\n# TYPE a counter\n"
        'a{x="1",y="} 9"} 2\na{x="2"} 3.5\n\n'
        "b 1e3\nc_total 7 1700000000000\n"
        'd{path="/v1 {x}"} 4 1700000000000\n'
        "broken\nworse{x\nnot_a_number x\ninfinite +Inf\n"
    )
    assert parse_metrics(page) == {"a": 5.5, "b": 1000, "c_total": 7, "d": 4, "infinite": math.inf}


@given(st.text())
def test_no_text_whatever_breaks_the_metrics(text: str) -> None:
    assert all(isinstance(value, float) for value in parse_metrics(text).values())
