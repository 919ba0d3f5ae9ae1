"""The generation endpoints: a request becomes a sequence of the batch, its tokens a stream or one JSON answer.

The first chunk of a stream goes through aiohttp, with the headers, as late as the first token (SGLang does that
too). After it the engine's tick writes each chunk straight to the transport, in aiohttp's stead: one tick sends
the chunks of all streams and wakes no task. A slow reader's chunks are held back and merged, so that its buffer
stays bounded.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from aiohttp import web

from loadgen.sim import answers, requests, wholes, wire
from loadgen.sim.answers import Answer
from loadgen.sim.engine import Engine
from loadgen.sim.requests import Generation
from loadgen.sim.responses import error, json_response, stream_headers
from loadgen.sim.scheduler import Sequence
from loadgen.sim.settings import Settings
from loadgen.sim.wire import Encoder, View

_MAX_BUFFERED_BYTES = 1 << 20

EncoderFactory = Callable[[Answer, View, Sequence], Encoder]
Render = Callable[[Answer, View, Sequence], dict[str, Any]]


class Call:
    """One request between the engine, which calls `progressed`, and its handler, which waits for `started`/`ended`."""

    def __init__(self, seq: Sequence, encoder: Encoder | None, interval: int) -> None:
        self.seq = seq
        self.streaming = encoder is not None
        self.started = asyncio.Event()
        self.ended = asyncio.Event()
        self._encoder = encoder
        self._interval = interval
        self._sent = 0
        self._transport: asyncio.WriteTransport | None = None

    def progressed(self) -> bool:
        """Sends the new tokens. The first ones and a stream's last bytes are for the handler to see."""
        transport, ended = self._transport, self.seq.end is not None
        if ended:
            self.ended.set()
        if transport is None or self._encoder is None:
            self.started.set()
            return False
        if transport.is_closing() or (not ended and self._hold(transport)):
            return False
        encode = self._encoder.last if ended else self._encoder.step
        return self._write(transport, encode(self._sent, self.seq.generated))

    def beginning(self) -> bytes:
        """What there is to send when the stream starts."""
        assert self._encoder is not None
        self._sent = self.seq.generated
        return self._encoder.first(self._sent)

    def attach(self, transport: asyncio.WriteTransport) -> None:
        """From now on the engine writes; what came since `beginning` goes out now."""
        self._transport = transport
        if self.seq.end is not None or self.seq.generated > self._sent:
            self.progressed()

    def _hold(self, transport: asyncio.WriteTransport) -> bool:
        few = self.seq.generated - self._sent < self._interval
        return few or transport.get_write_buffer_size() > _MAX_BUFFERED_BYTES

    def _write(self, transport: asyncio.WriteTransport, data: bytes) -> bool:
        self._sent = self.seq.generated
        if data:
            transport.write(wire.frame(data))
        return bool(data)


class Generator:
    """Serves one kind of request: how its body is read, and how its answers are written."""

    def __init__(self, engine: Engine, settings: Settings) -> None:
        self._engine = engine
        self._settings = settings

    async def chat(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/chat/completions."""
        return await self._serve(request, requests.chat, wire.ChatEncoder, wholes.chat_json)

    async def completions(self, request: web.Request) -> web.StreamResponse:
        """POST /v1/completions."""
        return await self._serve(request, requests.completion, wire.CompletionEncoder, wholes.completion_json)

    async def generate(self, request: web.Request) -> web.StreamResponse:
        """POST /generate."""
        native = wholes.Native(self._engine.unix_s, self._settings.args["enable_metrics"])
        return await self._serve(request, requests.generate, native.encoder, native.json)

    async def _serve(
        self,
        request: web.Request,
        read: Callable[[dict[str, Any], int], Generation],
        encoder: EncoderFactory,
        render: Render,
    ) -> web.StreamResponse:
        arrival_s = self._engine.now_s()
        asked = read(requests.parse_json(await request.read()), self._settings.context_tokens)
        if self._engine.draining:
            return error(503, "The server is shutting down.", "ServiceUnavailable")
        if self._engine.is_live(asked.rid):
            raise requests.BadRequestError(f"Duplicate request ID detected: {asked.rid}")
        answer = answers.answer(asked.asked, self.seed(asked), asked.wish)
        seq = self._sequence(asked, answer, arrival_s)
        view = self.view(asked)
        call = Call(
            seq, encoder(answer, view, seq) if asked.stream else None, self._settings.args["stream_interval"]
        )
        seq.owner = call
        if not self._engine.submit(seq):
            return await self._queue_full(request, view, native=read is requests.generate)
        try:
            if asked.stream:
                return await self._stream(request, call)
            await call.ended.wait()
            return json_response(render(answer, view, seq))
        finally:
            self._engine.abort(seq)  # a client that hangs up cancels this handler

    async def _stream(self, request: web.Request, call: Call) -> web.StreamResponse:
        await call.started.wait()
        response = web.StreamResponse(headers=stream_headers())
        response.enable_chunked_encoding()
        await response.prepare(request)
        first_token_s = call.seq.first_token_s
        await response.write(call.beginning())
        if first_token_s is not None:
            self._engine.lag.record(self._engine.late_ms(first_token_s), 1)
        transport = request.transport
        if transport is not None:
            call.attach(transport)
            await call.ended.wait()
            await response.write_eof()
        return response

    async def _queue_full(self, request: web.Request, view: View, *, native: bool) -> web.StreamResponse:
        message = "The request queue is full."
        if not view.stream:
            return error(503, message, "503")
        response = web.StreamResponse(headers=stream_headers())
        await response.prepare(request)
        if native:
            reason = {
                "type": "abort",
                "message": message,
                "status_code": 503,
                "err_type": "SERVICE_UNAVAILABLE",
            }
            told: dict[str, Any] = {"text": "", "meta_info": {"id": view.rid, "finish_reason": reason}}
        else:
            kind = "SERVICE_UNAVAILABLE"
            told = {
                "error": {"object": "error", "message": message, "type": kind, "param": None, "code": 503}
            }
        await response.write(wire.event(told) + wire.DONE)
        return response

    def seed(self, asked: Generation) -> int:
        """The seed of a request's answer."""
        return self._settings.seed if asked.seed is None else asked.seed

    def _sequence(self, asked: Generation, answer: Answer, arrival_s: float) -> Sequence:
        return Sequence(
            rid=asked.rid,
            prompt_ids=asked.prompt_ids,
            output_ids=answer.ids,
            total_tokens=answer.total_tokens,
            arrival_s=arrival_s,
            seed=hash((self.seed(asked), *asked.prompt_ids[-64:])),
        )

    def view(self, asked: Generation) -> View:
        """What of the answer the client is shown."""
        return View(
            rid=asked.rid,
            model=asked.model,
            created=int(self._engine.unix_s(self._engine.now_s())),
            stream=asked.stream,
            separate_reasoning=asked.separate_reasoning
            and self._settings.args["reasoning_parser"] is not None,
            stream_reasoning=asked.stream_reasoning,
            include_usage=asked.include_usage,
            continuous_usage=asked.continuous_usage,
            spec_details=asked.spec_details,
            cached_details=asked.cached_details,
            report_cached=self._settings.args["enable_cache_report"],
            proposed_per_step=self._engine.proposed,
        )
