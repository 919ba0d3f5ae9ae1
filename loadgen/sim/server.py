"""The simulated server's life: arguments, loading, listening, serving, draining; SGLang's log lines and exit codes.

Real HTTP and SGLang's shapes; a modelled clock (`timing`) and canned answers (`answers`) in the model's stead.
Exit codes: 0 after SIGTERM, 1 for settings that SGLang refuses, 2 for an unknown flag, 3 if the port is taken.
"""

import asyncio
import datetime as dt
import errno
import gc
import os
import signal
import sys
from typing import Any

import uvloop
from aiohttp import web

from loadgen.sim import answers, settings
from loadgen.sim.door import Door
from loadgen.sim.endpoints import application
from loadgen.sim.engine import Engine
from loadgen.sim.faults.endpoint import Faults
from loadgen.sim.faults.house import House
from loadgen.sim.faults.scenario import choose_all
from loadgen.sim.faults.table import SCENARIOS
from loadgen.sim.generation import Generator
from loadgen.sim.info import Info
from loadgen.sim.settings import Settings

_KEEP_ALIVE_S = 5.0  # uvicorn's, as SGLang sets it
_SECRETS = ("api_key", "admin_api_key")
_PORT_TAKEN = 3


def main(argv: list[str]) -> int:
    """Runs a server until SIGTERM or SIGINT. Raises SystemExit(2) for an unknown flag."""
    try:
        resolved = settings.from_argv(argv, os.environ)
    except ValueError as error:
        print(f"ValueError: {error}", file=sys.stderr)  # noqa: T201 - a command's own message
        return 1
    return uvloop.run(_Server(resolved).run())


class _Server:
    def __init__(self, resolved: Settings) -> None:
        self._settings = resolved
        self._stop = asyncio.Event()
        self._quiet = resolved.args["log_level"] in ("warning", "error", "critical")

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        for warning in self._settings.warnings:
            self._log(f"WARNING: {warning}")
        self._log(f"server_args={self._public_args()}")
        if not await self._load():
            return 0
        engine = Engine(self._settings, self._log)
        try:
            return await self._serve(engine)
        finally:
            engine.close()

    async def _load(self) -> bool:
        """Pretends to load a model; False if told to stop meanwhile."""
        profile, args = self._settings.profile, self._settings.args
        self._log("Load weight begin.")
        answers.load()
        if await self._stopped_within(0.8):
            return False
        self._log(
            f"Load weight end. elapsed={0.8 * args['sim_startup_s']:.2f} s, mem usage={profile.weight_gb:.2f} GB."
        )
        self._log(f"KV Cache is allocated. #tokens: {self._settings.kv_tokens}")
        self._log("Memory pool end.")
        self._log_draft()
        if await self._stopped_within(0.15):
            return False
        self._log(
            f"max_total_num_tokens={self._settings.kv_tokens}, chunked_prefill_size=8192, "
            f"max_running_requests={args['max_running_requests']}, context_len={self._settings.context_tokens}"
        )
        return True

    async def _serve(self, engine: Engine) -> int:
        info = Info(self._settings, engine)
        generator = Generator(engine, self._settings)
        house = self._house()
        runner = web.AppRunner(
            application(
                self._settings, engine, info, Faults(generator, self._settings, house) if house else generator
            ),
            handler_cancellation=True,
            keepalive_timeout=_KEEP_ALIVE_S,
            access_log=None,
        )
        await runner.setup()
        assert runner.server is not None
        door = Door(runner.server, self._settings.args["host"], self._settings.args["port"])
        try:
            address = await door.open()
        except OSError as error:
            return await self._port_taken(runner, error)
        if house:
            house.open(door)
        await self._ready(info, address)
        gc.collect()
        gc.freeze()
        await self._stop.wait()
        info.status = "draining"
        engine.draining = True
        await engine.wait_idle()
        door.shut()
        if house:
            await house.close()
        await runner.cleanup()
        return 0

    def _house(self) -> House | None:
        wanted = self._settings.args["scenario"]
        return House(choose_all(wanted, SCENARIOS)) if wanted else None

    async def _ready(self, info: Info, address: tuple[str, int]) -> None:
        host, port = address
        self._log("Application startup complete.")
        self._log(f"Uvicorn running on http://{host}:{port} (Press CTRL+C to quit)")
        if not await self._stopped_within(0.05):
            info.status = "ready"
            self._log("The server is fired up and ready to roll!")

    async def _port_taken(self, runner: web.AppRunner, error: OSError) -> int:
        if error.errno != errno.EADDRINUSE:
            raise error
        address = (self._settings.args["host"], self._settings.args["port"])
        self._log(f"[Errno 98] error while attempting to bind on address {address}: address already in use")
        # SGLang says so too: its warm-up has reached the server that holds the port.
        self._log("The server is fired up and ready to roll!")
        await runner.cleanup()
        return _PORT_TAKEN

    async def _stopped_within(self, part: float) -> bool:
        """Waits for a part of the loading time; True as soon as told to stop."""
        seconds = part * self._settings.args["sim_startup_s"] / self._settings.time_scale
        try:
            await asyncio.wait_for(self._stop.wait(), seconds)
        except TimeoutError:
            return self._stop.is_set()
        return True

    def _log_draft(self) -> None:
        args = self._settings.args
        block = args["speculative_dflash_block_size"]
        if self._settings.speculation is None or block is None:
            return
        window = args["speculative_draft_window_size"]
        self._log(
            f"Initialized DFLASH draft runner. attention_backend={args['attention_backend']}, "
            f"model={args['speculative_draft_model_path']}, block_size={block}, draft_window_size={window}, "
            f"compact_cache={window is not None}"
        )
        if args["speculative_algorithm"] == "DDTREE":
            budget = args["speculative_ddtree_budget"]
            self._log(
                f"Initialized DDTree worker. block_size={block}, tree_budget={budget}, max_tree_nodes={budget + 1}"
            )

    def _public_args(self) -> dict[str, Any]:
        return {
            name: "***" if name in _SECRETS and value else value
            for name, value in self._settings.args.items()
        }

    def _log(self, line: str) -> None:
        if self._quiet and not line.startswith(("WARNING", "[Errno")):
            return
        stamp = dt.datetime.now(tz=dt.UTC).astimezone().strftime("%Y-%m-%d %H:%M:%S")
        print(f"[{stamp}] {line}", file=sys.stderr, flush=True)  # noqa: T201 - the server's log
