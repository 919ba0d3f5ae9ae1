"""The built-in sink: a C server that only streams, against which the client's own limits are measured.

`running_sink` compiles it once (`src/`, kept in the user's cache by the hash of its source), starts it on a free port
of 127.0.0.1, and ends it. What it does and takes: the head of `src/main.c`.
"""

import hashlib
import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from loadgen.errors import RunFailed

_SOURCES = Path(__file__).parent / "src"
_END_S = 5.0


@dataclass(frozen=True, slots=True)
class Sink:
    """A running sink."""

    port: int
    pid: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


def compiled(sources: Sequence[Path], name: str) -> Path:
    """The program that `cc` makes of C sources, from the cache if they are unchanged. Raises RunFailed when it cannot be made."""
    digest = hashlib.sha256(b"\0".join(path.read_bytes() for path in sources)).hexdigest()[:16]
    program = _cache() / f"{name}-{digest}"
    if program.exists():
        return program
    units = [str(path) for path in sources if path.suffix == ".c"]
    try:
        program.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=program.parent) as scratch:
            made = Path(scratch) / name
            _compile([os.environ.get("CC", "cc"), "-O2", "-o", str(made), *units], name)
            made.rename(program)  # whole or not at all, also when two processes compile at once
    except OSError as error:
        raise RunFailed(
            f"the {name} cannot be kept in {program.parent} ({error}); set XDG_CACHE_HOME"
        ) from error
    return program


def sink_program() -> Path:
    """The compiled sink. Raises RunFailed when it cannot be compiled."""
    return compiled(sorted(_SOURCES.iterdir()), "sink")


@contextmanager
def running_sink(*options: str, prefix: Sequence[str] = ()) -> Iterator[Sink]:
    """A sink on a free port, with options of its command line; `prefix` (taskset, chrt) goes before its command.

    It ends with the block, and with this process however that ends. Raises RunFailed when it cannot be started.
    """
    command = [*prefix, str(sink_program()), "-p", "0", "-x", *options]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        said = process.stdout.readline()
        try:
            if not said.startswith("listening on"):
                raise RunFailed(f"the sink did not start: {' '.join(command)}")
            yield Sink(int(said.rpartition(":")[2]), process.pid)
        finally:
            process.stdin.close()
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "loadgen"


def _compile(command: Sequence[str], name: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise RunFailed(
            f"the {name} is compiled on first use, and {command[0]!r} was not found: install a C compiler, or set CC"
        ) from error
    if done.returncode != 0:
        raise RunFailed(
            f"the {name} could not be compiled ({' '.join(command)}): {done.stderr.strip()[:300]}"
        )
