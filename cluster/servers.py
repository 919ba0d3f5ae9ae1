"""One platform's server: started, made ready, watched, stopped; or found running and never touched.

Ready means: this start's process lives and it, or a child of it, holds the port, and a real completion came back.
A ready line in a log proves nothing: a second server on a busy port prints it too.
"""

import asyncio
import json
import os
import re
import secrets
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

from cluster import processes
from cluster.proof import max_running_requests, prove_axes
from loadgen.clock import monotonic_ns, unix_ns
from loadgen.endpoint import Endpoint, open_endpoint
from loadgen.errors import RunFailed
from loadgen.plan import Life
from loadgen.redact import mask_command, mask_env, mask_info
from loadgen.spec import Axis, ExternalServer, Platform, ProcessServer
from loadgen.store import Run

_POLL_S = 0.2
_TAIL_BYTES = 8_000
_TAIL_LINES = 40
_PORT_S = 30.0
_HURRIED_GRACE_S = 3.0
_READY_QUESTION = "Say hello."
_CONTROL = re.compile(r"[^\x20-\x7e\n\t\u00a0-\uffff]")


class ServerFailed(Exception):
    """The server did not start, or died: the outcome of the cells that needed it. The message says why."""


@dataclass(slots=True)
class LiveServer:
    """A server that answered. `row` is its row of `servers`."""

    server_id: str
    endpoint: str
    api_key_env: str | None
    model: str
    simulated: bool
    time_scale: float
    max_running_requests: int | None
    proof: dict[str, str]
    row: dict[str, Any]
    process: asyncio.subprocess.Process | None = None
    watch: "asyncio.Task[int] | None" = field(default=None, repr=False)


class PlatformServer:
    """The server control of one platform."""

    def __init__(self, platform: Platform, axes: Mapping[str, Axis], run: Run) -> None:
        self.platform = platform
        self._axes = axes
        self._run = run
        self.live: LiveServer | None = None

    async def start(self, life: Life) -> LiveServer:
        """The life's server, answering. Raises ServerFailed; what was started is stopped by then, and recorded."""
        server = self.platform.server
        server_id = f"{life.platform}.{life.config}.{secrets.token_hex(3)}"
        row = self._new_row(server_id, life)
        started_ns = monotonic_ns()
        process: asyncio.subprocess.Process | None = None
        try:
            if isinstance(server, ProcessServer):
                process = await self._spawn(server, life, row)
            async with asyncio.timeout(server.ready_timeout_s if isinstance(server, ProcessServer) else 600):
                facts = await self._until_ready(process)
        except (ServerFailed, TimeoutError, RunFailed, OSError) as error:
            reason = (
                str(error)
                if not isinstance(error, TimeoutError)
                else "it was not ready in time (ready_timeout_s)"
            )
            await self._end(process, hurried=True)
            self._record_failure(row, process, reason)
            raise ServerFailed(reason) from error
        except BaseException:
            await self._end(process, hurried=True)
            raise
        row["ready_s"] = (monotonic_ns() - started_ns) / 1e9
        self.live = self._go_live(life, row, process, facts)
        return self.live

    async def died(self) -> str:
        """Waits for the death of a server of ours, and says how it died. Waits for ever on an external one."""
        live = self.live
        assert live is not None
        if live.watch is None:
            await asyncio.Event().wait()
            raise AssertionError
        code = await asyncio.shield(live.watch)
        return f"the server died ({_exit_words(code)})"

    async def bury(self, reason: str) -> None:
        """Records the death of the live server, and ends what it may have left."""
        live = self.live
        assert live is not None
        assert live.process is not None
        await processes.stop_group(live.process.pid, 0)
        await processes.port_closed(*address(live.endpoint), _PORT_S)
        live.row |= self._ended(live.process) | {
            "state": "died",
            "failure": reason,
            "log_tail": self._tail(live.row),
        }
        self._run.write_server(live.row)
        self.live = None

    async def stop(self, *, hurried: bool = False) -> None:
        """Stops the live server of ours; an external one is left alone. `hurried`: a short grace (Ctrl-C)."""
        live, self.live = self.live, None
        if live is None or live.process is None:
            return
        await self._end(live.process, hurried=hurried)
        live.row |= self._ended(live.process) | {"state": "stopped"}
        self._run.write_server(live.row)

    def _new_row(self, server_id: str, life: Life) -> dict[str, Any]:
        server = self.platform.server
        return {
            "server_id": server_id,
            "platform": life.platform,
            "config": life.config,
            "axes": json.dumps(dict(life.axes)),
            "control": server.control,
            "command": [],
            "env": "{}",
            "endpoint": server.endpoint,
            "started_unix_ns": unix_ns(),
            "proof": "{}",
        }

    async def _spawn(
        self, server: ProcessServer, life: Life, row: dict[str, Any]
    ) -> asyncio.subprocess.Process:
        host, port = address(server.endpoint)
        command = _with_program(fill_in([*server.command, *life.flags], server.endpoint))
        own_env = {**server.env, **life.env}
        log = self._run.path / "logs" / f"{row['server_id']}.log"
        row |= {
            "command": mask_command(command),
            "env": json.dumps(mask_env(own_env)),
            "log_path": str(log.relative_to(self._run.path)),
        }
        if processes.is_port_open(host, port):
            raise ServerFailed(f"port {port} is still in use")
        with log.open("wb") as output:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=asyncio.subprocess.STDOUT,
                env={**_environment(), **own_env, **processes.marks(row["server_id"])},
                start_new_session=True,
            )
        row["pid"] = process.pid
        return process

    async def _until_ready(self, process: asyncio.subprocess.Process | None) -> "_Facts":
        server = self.platform.server
        async with open_endpoint(server.endpoint, api_key(server)) as endpoint:
            while True:
                if process is not None and process.returncode is not None:
                    raise ServerFailed(f"it ended before it was ready ({_exit_words(process.returncode)})")
                try:
                    models = await endpoint.models()
                    break
                except RunFailed:
                    if process is None:
                        raise
                    await asyncio.sleep(_POLL_S)
            if not models:
                raise ServerFailed("it lists no model")
            answer = await endpoint.complete(_READY_QUESTION, models[0], 8, 600)
            info = await endpoint.server_info()
            slots = await endpoint.slots()
            if process is not None:
                self._check_owner(process)
            return _Facts(models[0], answer, info, slots)

    def _check_owner(self, process: asyncio.subprocess.Process) -> None:
        _, port = address(self.platform.server.endpoint)
        holder = processes.listener(port)
        if holder is None or process.returncode is not None:
            return  # we may not see it, or the next poll sees the exit
        family = {process.pid, *(child.pid for child in psutil.Process(process.pid).children(recursive=True))}
        if holder.pid not in family:
            raise ServerFailed(
                f"port {port} is answered by {processes.describe(holder)}, not by the server just started"
            )

    def _go_live(
        self, life: Life, row: dict[str, Any], process: asyncio.subprocess.Process | None, facts: "_Facts"
    ) -> LiveServer:
        info = facts.info
        sim = (info or {}).get("loadgen_sim") or {}
        proof = prove_axes(self._axes, life.axes, info)
        limit = max_running_requests(info) or facts.slots
        row |= {
            "state": "ready",
            "model": facts.model,
            "version": str(info["version"]) if info and "version" in info else None,
            "simulated": bool(sim.get("simulated", False)),
            "time_scale": float(sim.get("time_scale", 1.0)),
            "max_running_requests": limit,
            "proof": json.dumps(proof),
            "server_info": json.dumps(mask_info(info)) if info else None,
        }
        self._run.write_server(row)
        return LiveServer(
            server_id=row["server_id"],
            endpoint=row["endpoint"],
            api_key_env=self.platform.server.api_key_env,
            model=facts.model,
            simulated=row["simulated"],
            time_scale=row["time_scale"],
            max_running_requests=limit,
            proof=proof,
            row=row,
            process=process,
            watch=asyncio.create_task(process.wait()) if process else None,
        )

    def _record_failure(
        self, row: dict[str, Any], process: asyncio.subprocess.Process | None, reason: str
    ) -> None:
        row |= {"state": "failed", "failure": reason, "log_tail": self._tail(row)}
        if process is not None:
            row |= self._ended(process)
        self._run.write_server(row)

    async def _end(self, process: asyncio.subprocess.Process | None, *, hurried: bool) -> None:
        server = self.platform.server
        if process is None or not isinstance(server, ProcessServer):
            return
        if process.returncode is None:
            async with open_endpoint(server.endpoint, api_key(server)) as endpoint:
                await _abort_running(endpoint)
            grace_s = min(_HURRIED_GRACE_S, server.stop_timeout_s) if hurried else server.stop_timeout_s
            await processes.stop_group(process.pid, grace_s)
            await process.wait()
        await processes.port_closed(*address(server.endpoint), _PORT_S)

    def _ended(self, process: asyncio.subprocess.Process | None) -> dict[str, Any]:
        return {"stopped_unix_ns": unix_ns(), "exit_code": process.returncode if process else None}

    def _tail(self, row: Mapping[str, Any]) -> str | None:
        path = row.get("log_path")
        return log_tail(self._run.path / path) if path else None


@dataclass(frozen=True, slots=True)
class _Facts:
    model: str
    answer: dict[str, Any]
    info: dict[str, Any] | None
    slots: int | None


async def preflight(platform: Platform) -> str | None:
    """Makes sure that a run can begin: the external server answers, or the port of ours is free.

    Stops what a dead head node left on the port, and says so. Raises RunFailed.
    """
    server = platform.server
    if isinstance(server, ExternalServer):
        async with open_endpoint(server.endpoint, api_key(server)) as endpoint:
            await endpoint.models()
        return None
    host, port = address(server.endpoint)
    if not processes.is_port_open(host, port):
        return None
    holder = processes.listener(port)
    orphan = processes.orphaned_life(holder) if holder else None
    if holder is None or orphan is None:
        who = processes.describe(holder) if holder else "a process that we may not see"
        raise RunFailed(
            f"platform {platform.name}: port {port} is in use by {who}; stop it, change the endpoint, "
            "or use control: external to measure it as it is"
        )
    await processes.stop_group(os.getpgid(holder.pid), _HURRIED_GRACE_S)
    await processes.port_closed(host, port, _PORT_S)
    return f"{orphan} was left running by a loadgen that is dead; stopped ({processes.describe(holder)})"


def address(endpoint: str) -> tuple[str, int]:
    """Host and port of an endpoint URL."""
    parts = urlsplit(endpoint)
    return parts.hostname or "127.0.0.1", parts.port or (443 if parts.scheme == "https" else 80)


def api_key(server: ProcessServer | ExternalServer) -> str | None:
    """The server's key, from the variable that the config names. Raises RunFailed when it is not set."""
    if server.api_key_env is None:
        return None
    key = os.environ.get(server.api_key_env)
    if not key:
        raise RunFailed(
            f"{server.endpoint}: the variable {server.api_key_env} (api_key_env) is not set; export it"
        )
    return key


def key_of(live: LiveServer) -> str | None:
    """The key of a server that answered with it before."""
    return os.environ.get(live.api_key_env) if live.api_key_env else None


def fill_in(command: Sequence[str], endpoint: str) -> list[str]:
    """A command with {host}, {port} and {python} filled in."""
    host, port = address(endpoint)
    values = {"{host}": host, "{port}": str(port), "{python}": sys.executable}
    return [_replace_all(word, values) for word in command]


def _replace_all(word: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        word = word.replace(name, value)
    return word


def _with_program(command: list[str]) -> list[str]:
    """The command with its program found on PATH, or beside this Python."""
    found = shutil.which(command[0], path=_environment()["PATH"])
    if found is None:
        raise ServerFailed(f"{command[0]}: no such program; give its path in server.command")
    return [found, *command[1:]]


def log_tail(path: Path) -> str | None:
    """The last lines of a log, without control characters; None without a log."""
    try:
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            text = log.read().decode(errors="replace")
    except OSError:
        return None
    return "\n".join(_CONTROL.sub("", text).splitlines()[-_TAIL_LINES:])


def _environment() -> dict[str, str]:
    """This process's environment; programs installed beside this Python are found last."""
    here = str(Path(sys.executable).parent)
    return {**os.environ, "PATH": os.pathsep.join([os.environ.get("PATH", os.defpath), here])}


def _exit_words(code: int) -> str:
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"


async def _abort_running(endpoint: Endpoint) -> None:
    """Ends running requests so that the drain after SIGTERM is short; a server that is gone needs none of it."""
    try:
        async with asyncio.timeout(2):
            await endpoint.abort_all()
    except (RunFailed, TimeoutError):
        return
