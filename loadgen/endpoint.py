"""Everything asked of a server that is not timed: what it is, what it holds, how it counts, a plain completion.

Paths and shapes: SGLang 0.5.x; llama.cpp and vLLM answer the subset that they have, and what a server does not
know comes back as None, never as a guess.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from loadgen.errors import RunFailed
from loadgen.received_json import error_message, read_json
from loadgen.redact import without_key

_REQUEST_S = 30.0
_UNREADY = frozenset({502, 503, 504})


class NotReady(RunFailed):
    """The server cannot be reached, or says that it (or what it stands before) is not ready yet."""


class Endpoint:
    """Control calls to one server. Open it with `async with open_endpoint(...)`."""

    def __init__(self, session: aiohttp.ClientSession, url: str, api_key: str | None) -> None:
        self._session = session
        self._api_key = api_key
        self.url = url

    async def models(self) -> list[str]:
        """Ids of /v1/models. Raises NotReady as its name says, and RunFailed when the server refuses."""
        status, body = await self._call("GET", "/v1/models")
        value = read_json(body)
        if status != 200 or not isinstance(value, dict):
            raise _failure(status)(f"{self.url}/v1/models answered {status}: {error_message(body)}")
        listed = value.get("data")
        items = listed if isinstance(listed, list) else []
        return [str(item["id"]) for item in items if isinstance(item, dict) and "id" in item]

    async def server_info(self) -> dict[str, Any] | None:
        """SGLang's report of its settings; None on a server that gives none."""
        for path in ("/server_info", "/get_server_info"):
            status, body = await self._call("GET", path)
            value = read_json(body)
            if status == 200 and isinstance(value, dict):
                return value
        return None

    async def tokenize(self, text: str, model: str) -> list[Any] | None:
        """Token ids of `text` by the server's own tokenizer; None on a server without /tokenize.

        SGLang and vLLM read `prompt`, llama.cpp reads `content`.
        """
        status, body = await self._call(
            "POST", "/tokenize", {"model": model, "prompt": text, "content": text}
        )
        value = read_json(body)
        tokens = value.get("tokens") if status == 200 and isinstance(value, dict) else None
        return tokens if isinstance(tokens, list) else None

    async def complete(
        self,
        message: str,
        model: str,
        max_tokens: int,
        timeout_s: float,
        more: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """A whole chat completion as JSON. Raises RunFailed (or NotReady) with the server's words when it is not one.

        `more`: further fields of the request. llama.cpp lists its model while it loads it, and answers 503 here until
        it is done.
        """
        request = {
            "model": model,
            "messages": [{"role": "user", "content": message}],
            "max_tokens": max_tokens,
            "temperature": 0,
            **(more or {}),
        }
        status, body = await self._call("POST", "/v1/chat/completions", request, timeout_s)
        value = read_json(body)
        if status != 200 or not isinstance(value, dict) or not value.get("choices"):
            raise _failure(status)(f"{self.url}: a plain completion failed ({status}): {error_message(body)}")
        return value

    async def flush_cache(self, wait_s: float) -> bool:
        """Empties the prefix cache, waiting for the server to be idle. False where it cannot or did not."""
        try:
            status, _ = await self._call("POST", f"/flush_cache?timeout={wait_s:g}", timeout_s=wait_s + 10)
        except RunFailed:
            return False
        return status == 200

    async def abort_all(self) -> None:
        """Aborts the server's running requests, where it knows how to."""
        await self._call("POST", "/abort_request", {"abort_all": True})

    async def slots(self) -> int | None:
        """How many requests llama.cpp runs at once (/props); None on any other server."""
        status, body = await self._call("GET", "/props")
        value = read_json(body)
        slots = value.get("total_slots") if status == 200 and isinstance(value, dict) else None
        return slots if isinstance(slots, int) else None

    async def metrics(self) -> dict[str, float] | None:
        """Prometheus samples summed over their labels, by name; None without a /metrics page."""
        status, body = await self._call("GET", "/metrics")
        return parse_metrics(body.decode(errors="replace")) if status == 200 else None

    async def _call(
        self, method: str, path: str, body: Any = None, timeout_s: float = _REQUEST_S
    ) -> tuple[int, bytes]:
        timeout = aiohttp.ClientTimeout(total=timeout_s)
        try:
            async with self._session.request(method, self.url + path, json=body, timeout=timeout) as response:
                return response.status, without_key(await response.read(), self._api_key)
        except TimeoutError as error:
            raise NotReady(f"{self.url}{path}: no answer within {timeout_s:g} s") from error
        except (aiohttp.ClientError, OSError) as error:
            raise NotReady(f"{self.url}: cannot be reached ({error})") from error


@asynccontextmanager
async def open_endpoint(url: str, api_key: str | None = None) -> AsyncIterator[Endpoint]:
    """An endpoint; its connections are closed at the end."""
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    connector = aiohttp.TCPConnector(force_close=True)  # the server may be restarted between two calls
    async with aiohttp.ClientSession(headers=headers, connector=connector, trust_env=False) as session:
        yield Endpoint(session, url, api_key)


def _failure(status: int) -> type[RunFailed]:
    return NotReady if status in _UNREADY else RunFailed


def parse_metrics(text: str) -> dict[str, float]:
    """Samples of a Prometheus text page, summed over their labels. Lines that are no sample are skipped."""
    sums: dict[str, float] = {}
    for line in text.splitlines():
        if line.startswith("#") or not line.strip():
            continue
        labelled, brace, rest = line.rpartition("}")  # the value, and perhaps a time, stand behind the labels
        name, *values = [labelled.partition("{")[0], *rest.split()] if brace else line.split()
        try:
            sums[name] = sums.get(name, 0.0) + float(values[0])
        except (ValueError, IndexError):
            continue
    return sums
