"""Prompts are as long as asked for, to the token, by the server's own count of what it was sent."""

import json
from typing import Any

import pytest
from live_server import LiveServer
from prompt_fixtures import job, made

from loadgen.prompts.prepare import Prepared
from loadgen.prompts.settings import LengthSource

# The scripted model of the real SGLang takes a token for each byte.
LENGTHS = (160, 1024, 4000)


def usage(server: LiveServer, prepared: Prepared, index: int) -> Any:
    body = json.loads(b"".join(prepared.prompts.parts(index)))
    del body["stream_options"]
    reply = server.request("POST", "/v1/chat/completions", {**body, "stream": False, "max_tokens": 1})
    return reply.json["usage"]


@pytest.mark.parametrize("thinking", [True, False])
def test_every_prompt_is_exact(plain: LiveServer, thinking: bool) -> None:
    options = {"template_kwargs": {"thinking": thinking}}
    jobs = [
        job(f"http://127.0.0.1:{plain.port}", length, model="conformance", **options) for length in LENGTHS
    ]
    for length, prepared in zip(LENGTHS, made(jobs), strict=True):
        assert prepared.length_source == LengthSource.TOKENIZER
        assert {usage(plain, prepared, index)["prompt_tokens"] for index in range(5)} == {length}


def test_a_shared_prefix_does_not_change_the_length(plain: LiveServer) -> None:
    url = f"http://127.0.0.1:{plain.port}"
    (prepared,) = made([job(url, 1000, model="conformance", shared_prefix=0.5)])
    assert {usage(plain, prepared, index)["prompt_tokens"] for index in range(3)} == {1000}
