"""The generation routes of a fault server: a stream is handed to its scenario, all else to the simulator's own routes."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from aiohttp import web

from loadgen.clock import monotonic_ns
from loadgen.sim import answers, requests, wholes, wire
from loadgen.sim.faults.events import Asked
from loadgen.sim.faults.house import House
from loadgen.sim.faults.log import Entry
from loadgen.sim.faults.scenario import Choice, choose
from loadgen.sim.faults.stage import Stage
from loadgen.sim.faults.table import SCENARIOS
from loadgen.sim.generation import EncoderFactory, Generator
from loadgen.sim.responses import json_response
from loadgen.sim.settings import Settings

_MODEL_PREFIX = "fault/"
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Faults:
    """Serves the routes of `Generator`, and the truth log."""

    def __init__(self, generator: Generator, settings: Settings, house: House) -> None:
        self._generator = generator
        self._settings = settings
        self._house = house

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/chat/completions."""
        return await self._serve(request, requests.chat, wire.ChatEncoder, self._generator.chat)

    async def completions(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/completions."""
        healthy = self._generator.completions
        return await self._serve(request, requests.completion, wire.CompletionEncoder, healthy)

    async def generate(self, request: web.Request) -> web.StreamResponse:
        """POST /generate."""
        native = wholes.Native(lambda at_s: at_s, metrics=False)
        return await self._serve(request, requests.generate, native.encoder, self._generator.generate)

    async def show_log(self, request: web.Request) -> web.Response:
        """GET /__faults/log, with `?last=N` of the last N requests."""
        last = request.query.get("last")
        if last is None:
            return json_response(self._house.log.json())
        if not (last.isascii() and last.isdigit() and len(last) < 10):
            raise requests.BadRequestError(f"last must be a number of requests, got {last[:60]!r}.")
        return json_response(self._house.log.json(int(last)))

    async def clear_log(self, _request: web.Request) -> web.Response:
        """DELETE /__faults/log."""
        self._house.log.clear()
        return json_response({})

    async def _serve(
        self,
        request: web.Request,
        read: Callable[[dict[str, Any], int], requests.Generation],
        encoder: EncoderFactory,
        healthy: Handler,
    ) -> web.StreamResponse:
        received_ns, transport = monotonic_ns(), request.transport
        body = requests.parse_json(await request.read())
        if body.get("stream") is not True or transport is None:
            return await healthy(request)
        generation = read(body, self._settings.context_tokens)
        choice = self._choice(request, body)
        answer = answers.answer(generation.asked, self._generator.seed(generation), generation.wish)
        asked = Asked(answer, self._generator.view(generation), generation.prompt_ids, encoder)
        entry = Entry(
            number=self._house.number,
            scenario=choice.text,
            path=request.path,
            client_port=transport.get_extra_info("peername")[1],
            received_ns=received_ns,
            prompt_tokens=len(generation.prompt_ids),
            max_tokens=generation.wish.max_tokens,
        )
        self._house.log.entries.append(entry)
        return await self._play(choice, Stage(transport, asked, choice.pace, entry, self._house))

    async def _play(self, choice: Choice, stage: Stage) -> web.StreamResponse:
        play = asyncio.current_task()
        assert play is not None
        self._house.enter(play)
        try:
            await choice.scenario.play(stage, **choice.options)
        except ConnectionError:
            stage.entry.end("client closed")
            stage.keeps_connection = False
        except asyncio.CancelledError:
            stage.entry.end("client closed")
            raise
        finally:
            self._house.leave(play)
        return _Played(is_kept=stage.keeps_connection)

    def _choice(self, request: web.Request, body: Mapping[str, Any]) -> Choice:
        turn = self._house.next() or choose("healthy", SCENARIOS)
        model = body.get("model")
        text = request.query.get("scenario")
        if text is None and isinstance(model, str) and model.startswith(_MODEL_PREFIX):
            text = model.removeprefix(_MODEL_PREFIX)
        if text is None:
            return turn
        try:
            choice = choose(text, SCENARIOS)
        except ValueError as error:
            raise requests.BadRequestError(str(error)) from None
        if choice.scenario.is_server_wide:
            raise requests.BadRequestError(
                f"{choice.scenario.name} is a fault of the whole server: --scenario starts it."
            )
        return choice


class _Played(web.StreamResponse):
    """A response that the scenario has sent; aiohttp adds nothing, and keeps the connection or closes it."""

    def __init__(self, *, is_kept: bool) -> None:
        super().__init__()
        self._is_kept = is_kept

    @property
    def keep_alive(self) -> bool:
        return self._is_kept

    async def prepare(self, request: web.BaseRequest) -> None:
        """Nothing."""

    async def write_eof(self, data: bytes = b"") -> None:
        """Nothing."""
