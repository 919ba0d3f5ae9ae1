"""What one stream teaches of a server: scripted ones on loopback, of every form, and a simulator."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

import pytest
from scripted_server import (
    CHUNKED_HEAD,
    Peer,
    Request,
    closed_port,
    delta,
    role,
    scripted,
    usage,
    whole_answer,
)
from sim_fixtures import SimServer

from cluster.server_form import ServerForm, learn_form
from loadgen.decode.record import EndMarks

Script = Callable[[Peer, Request], Awaitable[None]]
DONE = b"data: [DONE]\n\n"


def learn(*scripts: Script, kind: str = "raw") -> ServerForm:
    async def work() -> ServerForm:
        async with contextlib.AsyncExitStack() as servers:
            urls = [(await servers.enter_async_context(scripted(script))).url for script in scripts]
            return await learn_form(urls, "m", None, kind)

    return asyncio.run(work())


async def sglang(peer: Peer, _: Request) -> None:
    await peer.stream(*whole_answer())


async def without_done(peer: Peer, _: Request) -> None:
    await peer.stream(role(), delta("a"), delta("b"), delta(finish="stop"), usage(2))


async def without_reason(peer: Peer, _: Request) -> None:
    await peer.stream(delta("a"), delta("b"), DONE)


async def refuses(peer: Peer, _: Request) -> None:
    await peer.answer({"error": {"message": "no\x1b[31m"}}, 500)


@pytest.mark.parametrize("kind", ["raw", "aiohttp"])
def test_a_whole_stream_teaches_its_marks_and_counts(kind: str) -> None:
    form = learn(sglang, kind=kind)
    assert form.end_marks == EndMarks(finish_reason=True, done=True)
    assert form.columns == {
        "end_marks": "finish_reason, [DONE]", "token_counts": "continuous_usage", "spec_details": False,
    }  # fmt: skip
    assert "token counts: continuous_usage; without details" in form.sentence


def test_servers_that_lack_a_mark_or_counts() -> None:
    form = learn(without_done)
    assert (form.end_marks, form.token_counts) == (EndMarks(finish_reason=True, done=False), "usage")
    form = learn(without_reason)
    assert (form.end_marks, form.token_counts) == (EndMarks(finish_reason=False, done=True), "none")


def test_several_servers_have_what_all_of_them_have() -> None:
    form = learn(sglang, without_done)
    assert (form.end_marks, form.token_counts) == (EndMarks(finish_reason=True, done=False), "usage")
    assert learn(sglang, refuses).end_marks is None


def test_a_probe_that_does_not_end_well_teaches_nothing_and_says_so() -> None:
    form = learn(refuses)
    assert form.columns == {"end_marks": None, "token_counts": None, "spec_details": None}
    assert "did not end well (http_error: no" in form.sentence
    assert "\x1b" not in form.sentence
    gone = asyncio.run(learn_form([f"http://127.0.0.1:{closed_port()}"], "m", None, "raw"))
    assert "connect_error" in gone.sentence


def test_a_cancelled_probe_leaves_no_request_behind() -> None:
    async def forever(peer: Peer, _: Request) -> None:
        await peer.send(CHUNKED_HEAD)
        await peer.wait_for_end()

    async def work() -> int:
        async with scripted(forever) as server:
            probe = asyncio.create_task(learn_form([server.url], "m", None, "raw"))
            while not server.in_flight:
                await asyncio.sleep(0.005)
            probe.cancel()
            with pytest.raises(asyncio.CancelledError):
                await probe
            for _ in range(200):
                if not server.in_flight:
                    break
                await asyncio.sleep(0.01)
            return server.in_flight

    assert asyncio.run(work()) == 0


def test_a_simulated_sglang_with_speculation_has_all_of_it() -> None:
    flags = ("--speculative-algorithm", "DDTREE", "--speculative-draft-model-path", "draft")
    with SimServer("--time-scale", "40", *flags) as sim:
        form = asyncio.run(learn_form([f"http://127.0.0.1:{sim.port}"], "m", None, "raw"))
    assert form.columns == {
        "end_marks": "finish_reason, [DONE]", "token_counts": "continuous_usage", "spec_details": True,
    }  # fmt: skip
