"""One look at one server, with and without a reasoning parser: what is shown is what came, and the grades are right."""

import asyncio
import json

import pytest
from scripted_server import CHUNKED_HEAD, Peer, Request, scripted
from sim_fixtures import SimServer

from cluster.single import Asked, evaluate, probe
from loadgen.errors import BadInput, RunFailed


def at(sim: SimServer, **more: str | None) -> Asked:
    return Asked(f"http://127.0.0.1:{sim.port}/", **{"model": None, "api_key_env": None, **more})


@pytest.fixture(scope="module")
def parsed():
    with SimServer("--time-scale", "40", "--reasoning-parser", "kimi_k2") as sim:
        yield sim


@pytest.fixture(scope="module")
def unparsed():
    with SimServer("--time-scale", "40") as sim:
        yield sim


def fact(lines: list[str], name: str) -> str:
    (line,) = [line for line in lines if line.startswith(name)]
    return line[len(name) :].strip()


def test_probe_shows_where_reasoning_and_answer_arrive(parsed, unparsed):
    with_parser = asyncio.run(probe(at(parsed), "is_palindrome", 4096))
    without = asyncio.run(probe(at(unparsed), "is_palindrome", 4096))
    assert not fact(with_parser, "reasoning ").startswith("0 characters")
    assert fact(without, "reasoning ") == "0 characters"
    for lines in (with_parser, without):
        assert "problem is_palindrome" in lines[0]
        assert lines[1].startswith("HTTP 200, ")
        assert any("more ..." in line for line in lines)
        assert fact(lines, "outcome") == "ok"
        assert fact(lines, "finish_reason") == "stop"
        assert fact(lines, "extraction").startswith("code, rule ")
        assert any("def is_palindrome" in line for line in lines[lines.index("program:") :])


def test_a_probe_that_is_cut_has_no_program(parsed):
    lines = asyncio.run(probe(at(parsed), "is_palindrome", 5))
    assert fact(lines, "finish_reason") == "length"
    assert fact(lines, "extraction").startswith("truncated")
    assert "program:" not in lines


@pytest.mark.parametrize("concurrency", [1, 5])
def test_evaluate_grades_all_problems(parsed, unparsed, concurrency):
    for sim in (parsed, unparsed):
        grades = asyncio.run(evaluate(at(sim), "classic", 4096, concurrency))
        assert [grade["mark"] for grade in grades] == ["PASS"] * 5


def test_evaluate_tells_cut_answers_from_wrong_ones(parsed):
    grades = asyncio.run(evaluate(at(parsed), "classic", 64, 5))
    assert [grade["mark"] for grade in grades] == ["TRUNC"] * 5


def test_what_cannot_be_asked_is_named(parsed, monkeypatch):
    monkeypatch.delenv("NO_SUCH_KEY", raising=False)
    with pytest.raises(BadInput, match="NO_SUCH_KEY"):
        at(parsed, api_key_env="NO_SUCH_KEY")
    with pytest.raises(BadInput, match=r"is_palindrom: no such problem; use one of: .*is_palindrome"):
        asyncio.run(probe(at(parsed), "is_palindrom", 64))


def test_hostile_text_of_a_server_is_harmless_on_the_terminal():
    """Escape sequences, a lone surrogate, JSON too deep for a parser, a simulation that is none."""
    events = [
        json.dumps({"choices": [{"index": 0, "delta": {"content": "\x1b]0;owned\x07 \ud800"}}]}).encode(),
        b"[" * 100_000,
        json.dumps({"choices": [{"index": 0, "delta": {}, "finish_reason": "\x1b[31mstop"}]}).encode(),
    ]

    async def script(peer: Peer, request: Request) -> None:
        if request.path == "/v1/models":
            await peer.answer({"data": [{"id": "m\x1b[31m"}]})
        elif request.path == "/server_info":
            await peer.answer({"loadgen_sim": "yes"})
        else:
            await peer.send(CHUNKED_HEAD)
            for event in events:
                await peer.send_chunk(b"data: " + event + b"\n\n")
            await peer.end()

    async def work() -> list[str]:
        async with scripted(script) as server:
            return await probe(Asked(server.url, None, None), "is_palindrome", 64)

    lines = asyncio.run(work())
    text = "\n".join(lines)
    text.encode()
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "owned" in text


def test_a_server_without_a_model_is_no_server_to_ask():
    async def script(peer: Peer, request: Request) -> None:
        await peer.answer({"data": []} if request.path == "/v1/models" else {})

    async def work() -> None:
        async with scripted(script) as server:
            await evaluate(Asked(server.url, None, None), "classic", 64, 1)

    with pytest.raises(RunFailed, match="lists no model; name one with --model"):
        asyncio.run(work())
