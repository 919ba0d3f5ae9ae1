"""One server program that we started, with all that comes of it: its start, its exit, its end, the tail of its log."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import psutil

from cluster import commands, processes
from cluster.screen import harmless
from loadgen.redact import mask_text, without_key

_TAIL_BYTES = 8_000
_TAIL_LINES = 40
# A killed process that is stuck in a driver is not waited for without end.
_REAPED_S = 10.0


class ServerFailed(Exception):
    """The server did not start, or died: the outcome of the cells that needed it. The message says why."""


@dataclass(frozen=True, slots=True)
class Start:
    """How a server is started. `env` is what the config adds to our own environment."""

    server_id: str
    command: Sequence[str]
    env: Mapping[str, str]
    port: int
    log: Path


class ServerProcess:
    """A started server. Make it with `start`."""

    def __init__(self, start: Start, process: asyncio.subprocess.Process) -> None:
        self._start = start
        self._process = process
        self.exited = asyncio.create_task(process.wait())

    @classmethod
    async def start(cls, start: Start) -> Self:
        """Starts the program in a session of its own, its output in the log. Raises ServerFailed, and OSError for the log."""
        program = commands.find_program(start.command[0])
        if program is None:
            raise ServerFailed(
                f"{start.command[0]}: no such program, or it may not be executed; give its path in server.command"
            )
        marks = processes.marks(start.server_id, start.port)
        with start.log.open("wb") as output:
            try:
                process = await asyncio.create_subprocess_exec(
                    program,
                    *start.command[1:],
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=output,
                    stderr=asyncio.subprocess.STDOUT,
                    env={**commands.environment(), **start.env, **marks},
                    start_new_session=True,
                )
            except (
                OSError,
                ValueError,
            ) as error:  # not a program; or a NUL in a word, a = in a variable's name
                raise ServerFailed(
                    f"{program} cannot be started ({error}); mend server.command or env"
                ) from error
        return cls(start, process)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """Negative for a signal; None while it runs."""
        return self._process.returncode

    def members(self) -> list[psutil.Process]:
        """Its living processes, children that left it included."""
        return processes.members(self._start.server_id, self.pid)

    async def end(self, grace_s: float) -> None:
        """Ends all its processes, also after its own exit. Can be called again when it was cancelled."""
        await processes.stop_all(self.members, grace_s)
        await asyncio.wait({self.exited}, timeout=_REAPED_S)

    def log_tail(self, api_key: str | None) -> str | None:
        """The last lines of the log, harmless on a screen, without the secrets that it was started with."""
        try:
            with self._start.log.open("rb") as log:
                log.seek(max(0, self._start.log.stat().st_size - _TAIL_BYTES))
                text = log.read().decode(errors="replace")
        except OSError:
            return None
        for secret in {*commands.secrets_of(self._start.command, self._start.env), api_key}:
            text = without_key(text, secret)
        return "\n".join(mask_text(harmless(text)).splitlines()[-_TAIL_LINES:])


def exit_words(code: int | None) -> str:
    """An exit code in words."""
    if code is None:
        return "how is unknown"
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"
