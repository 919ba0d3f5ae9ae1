"""The HTTP surface: which path does what, who may call it, and how failures look."""

import asyncio
import hmac
from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.typedefs import Middleware

from loadgen.sim import metrics, requests, tokenizer
from loadgen.sim.engine import Engine
from loadgen.sim.faults.endpoint import Faults
from loadgen.sim.generation import Generator
from loadgen.sim.info import Info
from loadgen.sim.responses import SIMULATED, error, json_response, text_response
from loadgen.sim.settings import Settings

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_OPEN = frozenset({"/health", "/health_generate", "/ready", "/metrics"})
_ADMIN = frozenset({"/flush_cache", "/abort_request"})
_MAX_BODY_BYTES = 64 << 20
_FLUSHED = (
    "Cache flushed.\nPlease check backend logs for more details. (When there are running or waiting requests, the "
    "operation will not be performed.)\n"
)


def application(
    settings: Settings, engine: Engine, info: Info, generator: Generator | Faults
) -> web.Application:
    """All endpoints of one server; a fault server's `generator` has a truth log too."""
    app = web.Application(middlewares=[_guard(settings)], client_max_size=_MAX_BODY_BYTES)
    surface = Surface(settings, engine, info)
    gets: dict[str, Handler] = {
        "/health": surface.health,
        "/health_generate": surface.health,
        "/ready": surface.health,
        "/ping": surface.ping,
        "/v1/models": surface.models,
        "/model_info": surface.model_info,
        "/get_model_info": surface.model_info,
        "/server_info": surface.server_info,
        "/get_server_info": surface.server_info,
        "/v1/loads": surface.loads,
        "/flush_cache": surface.flush_cache,
    }
    posts: dict[str, Handler] = {
        "/flush_cache": surface.flush_cache,
        "/abort_request": surface.abort_request,
        "/tokenize": surface.tokenize,
        "/v1/tokenize": surface.tokenize,
        "/detokenize": surface.detokenize,
        "/v1/detokenize": surface.detokenize,
        "/generate": generator.generate,
        "/v1/chat/completions": generator.chat,
        "/v1/completions": generator.completions,
    }
    if settings.args["enable_metrics"]:
        gets["/metrics"] = surface.metrics
    if isinstance(generator, Faults):
        gets["/__faults/log"] = generator.show_log
        app.router.add_delete("/__faults/log", generator.clear_log)
    app.add_routes([web.get(path, handler, allow_head=False) for path, handler in gets.items()])
    app.add_routes([web.post(path, handler) for path, handler in posts.items()])
    return app


class Surface:
    """The endpoints that do not generate."""

    def __init__(self, settings: Settings, engine: Engine, info: Info) -> None:
        self._settings = settings
        self._engine = engine
        self._info = info

    async def health(self, _request: web.Request) -> web.Response:
        """Answers at once (SGLang generates a token first, which takes at least a second)."""
        return text_response("", status=200 if self._info.status == "ready" else 503)

    async def ping(self, _request: web.Request) -> web.Response:
        return text_response("")

    async def models(self, _request: web.Request) -> web.Response:
        return json_response(self._info.models())

    async def model_info(self, _request: web.Request) -> web.Response:
        return json_response(self._info.model())

    async def server_info(self, _request: web.Request) -> web.Response:
        return json_response(self._info.server())

    async def loads(self, _request: web.Request) -> web.Response:
        return json_response(self._info.loads())

    async def metrics(self, _request: web.Request) -> web.Response:
        body = metrics.render(self._settings, self._engine).encode()
        return web.Response(body=body, headers={**SIMULATED, "content-type": metrics.CONTENT_TYPE})

    async def flush_cache(self, request: web.Request) -> web.Response:
        """Empties the prefix cache. `?timeout=S` waits for the server to be idle."""
        wait_s = _seconds(request.query.get("timeout", "0"))
        if wait_s:
            try:
                await asyncio.wait_for(self._engine.wait_idle(), wait_s)
            except TimeoutError:
                return text_response("Timed out waiting for idle state.\n", status=400)
        if not self._engine.flush():
            return text_response(_FLUSHED.replace("Cache flushed.", "Flush cache failed."), status=400)
        return text_response(_FLUSHED)

    async def abort_request(self, request: web.Request) -> web.Response:
        """Ends one request or all; an unknown id is no error."""
        body = requests.parse_json(await request.read())
        if body.get("abort_all") is True:
            self._engine.abort_all()
        elif isinstance(body.get("rid"), str):
            self._engine.abort_rid(body["rid"])
        return text_response("")

    async def tokenize(self, request: web.Request) -> web.Response:
        prompt = requests.prompt_texts(requests.parse_json(await request.read()))
        length = self._settings.context_tokens
        if isinstance(prompt, str):
            tokens = tokenizer.encode(prompt)
            return json_response({"tokens": tokens, "count": len(tokens), "max_model_len": length})
        lists = [tokenizer.encode(text) for text in prompt]
        return json_response({"tokens": lists, "count": [len(ids) for ids in lists], "max_model_len": length})

    async def detokenize(self, request: web.Request) -> web.Response:
        return json_response({"text": requests.token_text(requests.parse_json(await request.read()))})


def _guard(settings: Settings) -> Middleware:
    key, admin_key = settings.args["api_key"], settings.args["admin_api_key"]

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        wanted = admin_key or key if request.path in _ADMIN else key
        if wanted is not None and request.path not in _OPEN and not _sent(request, wanted):
            return json_response({"error": "Unauthorized"}, status=401)
        try:
            return await handler(request)
        except requests.BadRequestError as bad:
            return error(400, bad.message, bad.kind)
        except web.HTTPRequestEntityTooLarge:
            return error(413, "The request body is too large.", "BadRequestError")
        except web.HTTPNotFound:
            return json_response({"detail": "Not Found"}, status=404)
        except web.HTTPMethodNotAllowed:
            return json_response({"detail": "Method Not Allowed"}, status=405)

    return guard


def _sent(request: web.Request, key: str) -> bool:
    given = request.headers.get("Authorization", "")
    return hmac.compare_digest(given.encode("utf-8", "surrogateescape"), f"Bearer {key}".encode())


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1e6:
        raise requests.BadRequestError(f"timeout must be a number of seconds, got {text!r}.")
    return value
