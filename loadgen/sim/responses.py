"""Small HTTP answers shared by the endpoints, in SGLang's shapes. Every response says that it is simulated."""

from typing import Any

from aiohttp import web

from loadgen.sim import wire

SIMULATED = {"x-loadgen-simulated": "1", "server": "loadgen-sim", "vary": "Origin"}


def stream_headers() -> dict[str, str]:
    """Headers of an event stream."""
    return {**SIMULATED, "content-type": "text/event-stream; charset=utf-8"}


def json_response(value: Any, *, status: int = 200) -> web.Response:
    """A JSON body."""
    return web.Response(
        body=wire.dumps(value), status=status, headers=SIMULATED, content_type="application/json"
    )


def text_response(text: str, *, status: int = 200) -> web.Response:
    """A plain body, without a content type as SGLang leaves it."""
    return web.Response(body=text.encode(), status=status, headers=SIMULATED)


def error(status: int, message: str, kind: str) -> web.Response:
    """SGLang's error object."""
    return json_response(
        {"object": "error", "message": message, "type": kind, "param": None, "code": status}, status=status
    )
