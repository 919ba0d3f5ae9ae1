"""Prompts of a server's cells, made before the first of them: against the simulator and scripted servers."""

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from prompt_fixtures import job, made
from scripted_server import Peer, Request, ScriptedServer, scripted
from sim_fixtures import SimServer

from loadgen.errors import RunFailed
from loadgen.prompts.datasets import Chat, Message
from loadgen.prompts.prepare import Prepared, PromptMaker
from loadgen.prompts.settings import LengthSource
from loadgen.prompts.sources import Source

LENGTHS = (60, 1024, 8192)


def sent_tokens(server: SimServer, prepared: Prepared, index: int) -> int:
    body = json.loads(b"".join(prepared.prompts.parts(index)))
    answer = server.post_json("/v1/chat/completions", {**body, "stream": False, "max_tokens": 1})
    return answer["usage"]["prompt_tokens"]  # type: ignore[no-any-return]


@pytest.fixture(scope="module")
def sim() -> Any:
    args = ("--served-model-name", "m", "--time-scale", "1000", "--enable-cache-report")
    with SimServer(*args) as server:
        yield server


def url_of(server: SimServer) -> str:
    return f"http://127.0.0.1:{server.port}"


def test_every_request_has_its_length_to_the_token(sim: SimServer) -> None:
    jobs = [job(url_of(sim), context) for context in LENGTHS]
    for context, prepared in zip(LENGTHS, made(jobs), strict=True):
        assert prepared.length_source == LengthSource.TOKENIZER
        assert {sent_tokens(sim, prepared, index) for index in range(12)} == {context}


def test_a_hundred_thousand_tokens_too_with_the_builtin_text(sim: SimServer) -> None:
    (prepared,) = made([job(url_of(sim), 100_000, Source())])
    assert {sent_tokens(sim, prepared, index) for index in (0, 1)} == {100_000}
    assert prepared.prompts.body_bytes(0) > 300_000


def test_template_options_are_counted(sim: SimServer) -> None:
    settings = {"template_kwargs": {"thinking": False}, "extra": {"top_p": 0.9}}
    (prepared,) = made([job(url_of(sim), 200, **settings)])
    body = json.loads(b"".join(prepared.prompts.parts(0)))
    assert body["chat_template_kwargs"] == {"thinking": False}
    assert body["top_p"] == 0.9
    assert sent_tokens(sim, prepared, 0) == 200


def test_a_shared_prefix_is_in_the_cache_from_the_second_request_on(sim: SimServer) -> None:
    def cached(prepared: Prepared, index: int) -> tuple[int, int]:
        body = json.loads(b"".join(prepared.prompts.parts(index)))
        usage = sim.post_json("/v1/chat/completions", {**body, "stream": False, "max_tokens": 1})["usage"]
        return usage["prompt_tokens"], (usage["prompt_tokens_details"] or {"cached_tokens": 0})[
            "cached_tokens"
        ]

    jobs = [
        replace(job(url_of(sim), 1000, shared_prefix=share), repeat=n) for n, share in enumerate((0.5, 700))
    ]
    for prepared, shared in zip(made(jobs), (500, 700), strict=True):
        cold = cached(prepared, 0)
        assert cold[0] == 1000
        assert cold[1] <= 16
        for index in range(1, 6):
            tokens, reused = cached(prepared, index)
            assert tokens == 1000
            assert shared - 24 <= reused <= shared


def test_later_turns_have_texts_of_their_length_and_begin_with_what_was_sent(sim: SimServer) -> None:
    (prepared,) = made([job(url_of(sim), 300, turns=3, turn_tokens=40)])
    talk = prepared.conversations
    assert talk is not None
    assert sent_tokens(sim, prepared, 5) == 300
    for turn in (1, 2):
        tokens = sim.post_json("/tokenize", {"prompt": talk.user_text(5, turn)})["tokens"]
        assert len(tokens) == 40
    assert talk.user_text(5, 1) != talk.user_text(5, 2)
    assert talk.has_turn(5, 2)
    assert not talk.has_turn(5, 3)


def test_a_datasets_prompts_are_asked_as_they_are_and_no_server_is_needed() -> None:
    chats = (
        Chat(
            (
                Message("system", "s"),
                Message("user", "one"),
                Message("assistant", "x"),
                Message("user", "two"),
            )
        ),
        Chat.of_prompt("three"),
    )
    source = Source("d.jsonl", ("one", "two", "three"), chats)
    (prepared,) = made([job("http://127.0.0.1:9", None, source, turns=2)])
    assert prepared.length_source == LengthSource.DATASET
    first, second, again = (prepared.prompts.messages(index) for index in range(3))
    assert [message.role for message in first] == ["system", "user"]
    assert first[0].content.endswith(" s")
    assert first[1].content == "one"
    assert second[0].content.endswith(" three")
    assert again[1] == first[1]
    assert again[0] != first[0]
    talk = prepared.conversations
    assert talk is not None
    assert talk.user_text(0, 1) == "two"
    assert not talk.has_turn(1, 1)


def words(text: str) -> int:
    return len(text.split())


async def _counts(peer: Peer, request: Request) -> None:
    if request.path == "/tokenize":
        await peer.answer({"tokens": [len(word) for word in request.json["prompt"].split()]})
    else:
        tokens = 9 + words(request.json["messages"][0]["content"])
        await peer.answer({"choices": [{"message": {"content": "x"}}], "usage": {"prompt_tokens": tokens}})


def on_scripted(use: Callable[[str], Any]) -> ScriptedServer:
    async def work() -> ScriptedServer:
        async with scripted(_counts) as server:
            await use(server.url)
            return server

    return asyncio.run(work())


def test_what_was_fitted_is_not_asked_again_by_another_run_or_worker(tmp_path: Path) -> None:
    def asked(context: int) -> int:
        return len(on_scripted(lambda url: PromptMaker().prepare([job(url, context)], None)).requests)

    first, second, other = asked(100), asked(100), asked(200)
    assert second == 5  # two probes by usage and by tokenizer, and whether there is a tokenizer
    assert second < other < first  # another length finds the salts' words
    for path in (tmp_path / "prompt-cache").iterdir():
        path.write_bytes(path.read_bytes()[:-9])
    assert asked(100) == first
    assert asked(100) == second


def test_a_maker_asks_a_server_once_and_side_by_side() -> None:
    maker = PromptMaker()
    asked, at_once = 0, [0]

    async def slowly(peer: Peer, request: Request) -> None:
        nonlocal asked
        asked += 1
        at_once.append(at_once[-1] + 1)
        await asyncio.sleep(0.002)
        await _counts(peer, request)
        at_once.append(at_once[-1] - 1)

    async def work() -> tuple[int, int]:
        async with scripted(slowly) as server:
            jobs = [job(server.url, context) for context in (60, 100)]
            await maker.prepare(jobs, None)
            before = asked
            await maker.prepare([replace(one, repeat=1) for one in jobs], None)
            return before, asked

    before, after = asyncio.run(work())
    assert before == after > 40
    assert 4 <= max(at_once) <= 8


def test_every_worker_makes_the_same_requests() -> None:
    found: list[list[bytes]] = []

    async def make(url: str) -> None:
        for _ in range(2):
            maker, asked = PromptMaker(), replace(job(url, 80), endpoint=url)
            await maker.prepare([asked], None)
            found.append([b"".join(maker.make(asked).prompts.parts(index)) for index in range(8)])

    on_scripted(make)
    assert found[0] == found[1]
    assert len(set(found[0])) == 8


def test_a_length_below_the_templates_is_refused_and_an_evaluation_needs_nothing() -> None:
    async def refused(url: str) -> None:
        with pytest.raises(RunFailed, match=r"context_tokens 12 is too small"):
            await PromptMaker().prepare([job(url, 12)], None)

    on_scripted(refused)
    nothing = job("http://127.0.0.1:9")
    asyncio.run(PromptMaker().prepare([replace(nothing, cell=replace(nothing.cell, kind="eval"))], None))
    asyncio.run(PromptMaker().prepare([], None))
