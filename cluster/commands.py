"""What a server is started with: its command line, environment, address and key, and which words of it are secret."""

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from loadgen.keys import key_from
from loadgen.redact import MASK, is_secret, mask_command


class Keyed(Protocol):
    """Whatever names the variable that holds a server's key: its part of the config, or the live server."""

    @property
    def api_key_env(self) -> str | None: ...


def key_of(server: Keyed) -> str | None:
    """The server's key; None when it has none, or when the variable is not set (`preflight` refuses that)."""
    return key_from(server.api_key_env)


def address(endpoint: str) -> tuple[str, int]:
    """Host and port of an endpoint URL."""
    parts = urlsplit(endpoint)
    return parts.hostname or "127.0.0.1", parts.port or (443 if parts.scheme == "https" else 80)


def fill_in(command: Sequence[str], endpoint: str) -> list[str]:
    """A command with {host}, {port} and {python} filled in."""
    host, port = address(endpoint)
    values = {"{host}": host, "{port}": str(port), "{python}": sys.executable}
    return [_replace_all(word, values) for word in command]


def find_program(name: str) -> str | None:
    """The path of a program on PATH, or beside this Python; None when there is none that may be executed."""
    return shutil.which(name, path=environment()["PATH"])


def environment() -> dict[str, str]:
    """This process's environment; programs installed beside this Python are found last."""
    here = str(Path(sys.executable).parent)
    return {**os.environ, "PATH": os.pathsep.join([os.environ.get("PATH", os.defpath), here])}


def secrets_of(command: Sequence[str], env: Mapping[str, str]) -> set[str]:
    """The secret values that a command line and an environment hold."""
    in_env = {value for name, value in env.items() if is_secret(name)}
    after_flag = {word for word, masked in zip(command, mask_command(command), strict=True) if masked == MASK}
    in_flag = {value for name, _, value in (word.partition("=") for word in command) if is_secret(name)}
    return (in_env | after_flag | in_flag) - {""}


def _replace_all(word: str, values: Mapping[str, str]) -> str:
    for name, value in values.items():
        word = word.replace(name, value)
    return word
