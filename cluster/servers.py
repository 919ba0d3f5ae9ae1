"""One platform's server: started, made ready, watched, stopped; or found running and never touched.

Ready means: this start's process lives and it, or a child of it, holds the port, and a real completion came back.
A ready line in a log proves nothing: a second server on a busy port prints it too. Whatever was started is known here
until all of it is gone, so that `stop` can be called at any moment, and again when it was cancelled.
"""

import asyncio
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cluster import processes
from cluster.commands import address, fill_in, key_of
from cluster.proof import max_running_requests, prove_axes, simulation
from cluster.screen import harmless
from cluster.server_form import ServerForm
from cluster.server_process import ServerFailed, ServerProcess, Start, exit_words
from loadgen.clock import monotonic_ns, unix_ns
from loadgen.decode.record import EndMarks
from loadgen.endpoint import Endpoint, NotReady, open_endpoint
from loadgen.errors import RunFailed
from loadgen.job import Target
from loadgen.plan import Life
from loadgen.redact import mask_command, mask_env, mask_info
from loadgen.spec import Axis, Platform, ProcessServer
from loadgen.store import Run

_POLL_S = 0.2
_PORT_S = 30.0
_HURRIED_GRACE_S = 3.0
_EXTERNAL_READY_S = 600.0
_ANSWERS_S = 5.0
_READY_QUESTION = "Say hello."


@dataclass(frozen=True, slots=True)
class LiveServer:
    """A server that answered, or several that share a platform's requests; `endpoint` is the first."""

    server_id: str
    endpoint: str
    api_key_env: str | None
    model: str
    simulated: bool
    time_scale: float
    max_running_requests: int | None
    proof: dict[str, str]
    pid: int | None
    ready_s: float
    targets: tuple[Target, ...] = ()
    end_marks: EndMarks = field(default_factory=EndMarks)

    def __post_init__(self) -> None:
        if not self.targets:
            object.__setattr__(self, "targets", (Target(self.endpoint),))


@dataclass(frozen=True, slots=True)
class _Facts:
    model: str
    info: dict[str, Any] | None
    slots: int | None


class PlatformServer:
    """The server control of one platform."""

    def __init__(self, platform: Platform, axes: Mapping[str, Axis], run: Run) -> None:
        self.platform = platform
        self.live: LiveServer | None = None
        self._axes = axes
        self._run = run
        self._process: ServerProcess | None = None
        self._row: dict[str, Any] = {}

    @property
    def is_ours(self) -> bool:
        """Whether we start and stop it; an external server is neither."""
        return isinstance(self.platform.server, ProcessServer)

    async def start(self, life: Life) -> LiveServer:
        """The life's server, answering. Raises ServerFailed; what was started is stopped by then, and recorded."""
        self._row = self._new_row(life)
        began_ns = monotonic_ns()
        try:
            if isinstance(self.platform.server, ProcessServer):
                self._process = await self._spawn(self.platform.server, life)
            facts = await self._ready_in_time()
        except (ServerFailed, RunFailed) as error:
            await self._end(_HURRIED_GRACE_S)
            self._record("failed", str(error))
            raise ServerFailed(str(error)) from error
        self.live = self._live(life, facts, (monotonic_ns() - began_ns) / 1e9)
        self._run.write_server(self._row)
        return self.live

    def take_form(self, form: ServerForm) -> None:
        """Notes what a probe of the live server taught."""
        assert self.live is not None
        self.live = replace(self.live, end_marks=form.end_marks or EndMarks())
        self._row |= form.columns
        self._run.write_server(self._row)

    async def died(self) -> str:
        """Waits for the death of a server of ours, and says how it died. Waits for ever on an external one."""
        if self._process is None:
            await asyncio.Event().wait()
            raise AssertionError
        code = await asyncio.shield(self._process.exited)
        return f"the server died ({exit_words(code)})"

    async def answers(self) -> bool:
        """Whether the server answers at all, within seconds."""
        try:
            async with asyncio.timeout(_ANSWERS_S):
                for target in self.platform.server.targets:
                    async with self._endpoint(target.url) as endpoint:
                        await endpoint.models()
        except (RunFailed, TimeoutError):
            return False
        return True

    async def bury(self, reason: str) -> None:
        """Records the death of the live server, and ends what it may have left."""
        await self._end(0)
        self._record("died", reason)

    async def stop(self, *, hurried: bool = False) -> None:
        """Stops what we started, ready or not; an external server is left alone. `hurried`: a short grace (Ctrl-C)."""
        process, self.live = self._process, None
        if process is None:
            return
        assert isinstance(self.platform.server, ProcessServer)
        died = process.exit_code is not None
        grace_s = self.platform.server.stop_timeout_s
        await self._end(min(_HURRIED_GRACE_S, grace_s) if hurried else grace_s)
        if "state" not in self._row:
            self._record("failed", "interrupted before it was ready")
        elif died:
            self._record("died", f"the server died ({exit_words(process.exit_code)}) between two cells")
        else:
            self._record("stopped", None)

    def _new_row(self, life: Life) -> dict[str, Any]:
        return {
            "server_id": f"{life.platform}.{life.config}.{secrets.token_hex(3)}",
            "platform": life.platform,
            "config": life.config,
            "axes": json.dumps(dict(life.axes)),
            "control": self.platform.server.control,
            "command": [],
            "env": "{}",
            "endpoint": " ".join(target.url for target in self.platform.server.targets),
            "started_unix_ns": unix_ns(),
            "proof": "{}",
        }

    async def _spawn(self, server: ProcessServer, life: Life) -> ServerProcess:
        host, port = address(server.endpoint)
        command = fill_in([*server.command, *life.flags], server.endpoint)
        own_env = {**server.env, **life.env}
        server_id = self._row["server_id"]
        log_path = f"logs/{server_id}.log"
        self._row |= {"command": mask_command(command), "env": json.dumps(mask_env(own_env))}
        if processes.is_port_open(host, port):
            holder = processes.listener(port)
            who = f" by {processes.describe(holder)}" if holder else ""
            raise ServerFailed(f"port {port} is still in use{who}")
        process = await ServerProcess.start(
            Start(server_id, command, own_env, port, self._run.path / log_path)
        )
        self._row |= {"pid": process.pid, "log_path": log_path}
        return process

    async def _ready_in_time(self) -> _Facts:
        server = self.platform.server
        is_ours = isinstance(server, ProcessServer)
        limit_s = server.ready_timeout_s if isinstance(server, ProcessServer) else _EXTERNAL_READY_S
        refusals: list[str] = []
        asking = asyncio.create_task(self._until_ready(refusals))
        waited = {asking, self._process.exited} if self._process else {asking}
        try:
            await asyncio.wait(waited, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
            if self._process and self._process.exited.done():
                code = exit_words(self._process.exit_code)
                raise ServerFailed(f"it ended before it was ready ({code})")
            if not asking.done():
                said = f"; at last: {refusals[-1]}" if refusals else ""
                limit = " (ready_timeout_s)" if is_ours else ""
                raise ServerFailed(f"it was not ready within {limit_s:g} s{limit}{said}")
            return asking.result()
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

    async def _until_ready(self, refusals: list[str]) -> _Facts:
        first, *others = [target.url for target in self.platform.server.targets]
        async with self._endpoint(first) as endpoint:
            while True:
                try:
                    facts = await self._ask(endpoint)
                    break
                except NotReady as error:
                    if self._process is None:
                        raise
                    refusals[:] = [str(error)]
                await asyncio.sleep(_POLL_S)
        for url in others:
            async with self._endpoint(url) as endpoint:
                facts = _together(facts, await self._ask(endpoint), url)
        return facts

    async def _ask(self, endpoint: Endpoint) -> _Facts:
        models = await endpoint.models()
        if not models:
            raise ServerFailed("it lists no model")
        await endpoint.complete(_READY_QUESTION, models[0], 8, 600)
        info = await endpoint.server_info()
        facts = _Facts(models[0], info, max_running_requests(info) or await endpoint.slots())
        self._check_owner()
        return facts

    def _check_owner(self) -> None:
        if self._process is None:
            return
        _, port = address(self.platform.server.endpoint)
        holder = processes.listener(port)
        if holder is not None and holder.pid not in {member.pid for member in self._process.members()}:
            raise ServerFailed(
                f"port {port} is answered by {processes.describe(holder)}, not by the server just started"
            )

    def _live(self, life: Life, facts: _Facts, ready_s: float) -> LiveServer:
        simulated, time_scale = simulation(facts.info)
        live = LiveServer(
            server_id=self._row["server_id"],
            endpoint=self.platform.server.endpoint,
            api_key_env=self.platform.server.api_key_env,
            model=facts.model,
            simulated=simulated,
            time_scale=time_scale,
            max_running_requests=facts.slots,
            proof=prove_axes(self._axes, life.axes, facts.info),
            pid=self._process.pid if self._process else None,
            ready_s=ready_s,
            targets=tuple(Target(target.url, target.weight) for target in self.platform.server.targets),
        )
        version = (facts.info or {}).get("version")
        self._row |= {
            "state": "ready",
            "model": harmless(live.model),
            "version": None if version is None else harmless(str(version)),
            "simulated": simulated,
            "time_scale": time_scale,
            "max_running_requests": live.max_running_requests,
            "proof": json.dumps(live.proof),
            "server_info": json.dumps(mask_info(facts.info)) if facts.info else None,
            "ready_s": ready_s,
        }
        return live

    def _record(self, state: str, failure: str | None) -> None:
        """Writes the row of a life that has ended, and forgets the life."""
        process, self._process, self.live = self._process, None, None
        self._row |= {"state": state, "failure": None if failure is None else harmless(failure)}
        if process is not None:
            self._row |= {"stopped_unix_ns": unix_ns(), "exit_code": process.exit_code}
            if failure is not None:
                self._row["log_tail"] = process.log_tail(key_of(self.platform.server))
        self._run.write_server(self._row)

    async def _end(self, grace_s: float) -> None:
        if self._process is None:
            return
        if self._process.exit_code is None and grace_s > 0:
            await self._abort_running()
        await self._process.end(grace_s)
        await processes.port_closed(*address(self.platform.server.endpoint), _PORT_S)

    async def _abort_running(self) -> None:
        """Ends running requests so that the drain after SIGTERM is short; a server that is gone needs none of it."""
        try:
            async with (
                asyncio.timeout(2),
                self._endpoint(self.platform.server.endpoint) as endpoint,
            ):
                await endpoint.abort_all()
        except (RunFailed, TimeoutError):
            return

    def _endpoint(self, url: str) -> Any:
        return open_endpoint(url, key_of(self.platform.server))


def _together(facts: _Facts, other: _Facts, url: str) -> _Facts:
    """What holds of several servers: one model, and the slots of all. Raises ServerFailed when they differ."""
    if other.model != facts.model:
        raise ServerFailed(
            f"{url} serves {harmless(other.model)}, the first endpoint {harmless(facts.model)}"
        )
    if simulation(other.info) != simulation(facts.info):
        raise ServerFailed(f"{url} is simulated, or at a clock, otherwise than the first endpoint")
    slots = None if facts.slots is None or other.slots is None else facts.slots + other.slots
    return _Facts(facts.model, facts.info, slots)
