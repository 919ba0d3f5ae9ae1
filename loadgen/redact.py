"""Masks secrets before anything is written: keys of server settings, and values of command-line flags."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

MASK = "***"
_SECRET = re.compile(r"(api[-_]?key|token|secret|passw(or)?d|credential)s?$", re.IGNORECASE)
_SECRET_FLAG = re.compile(r"(--[\w-]*(?:api-key|token|secret|password)(?:\s+|=))(\S+)", re.IGNORECASE)


def is_secret(name: str) -> bool:
    """Whether a setting of this name holds a secret (`api_key`, `HF_TOKEN`; but not `max_total_num_tokens`)."""
    return bool(_SECRET.search(name)) and not name.lower().endswith("tokens")


def mask_env(env: Mapping[str, str]) -> dict[str, str]:
    """Environment with the values of secret names masked."""
    return {name: MASK if is_secret(name) else value for name, value in env.items()}


def mask_command(command: Sequence[str]) -> list[str]:
    """A command line whose secret flags' values are masked, in both spellings (`--key V`, `--key=V`)."""
    masked: list[str] = []
    hide_next = False
    for word in command:
        flag, equals, _ = word.partition("=")
        if hide_next:
            masked.append(MASK)
        elif equals and flag.startswith("-") and is_secret(flag):
            masked.append(f"{flag}={MASK}")
        else:
            masked.append(word)
        hide_next = not hide_next and not equals and word.startswith("--") and is_secret(word)
    return masked


def mask_info(value: Any) -> Any:
    """A server's report of itself (JSON values) with secrets masked at any depth, `launch_command` included."""
    if isinstance(value, dict):
        return {
            key: MASK if is_secret(key) and isinstance(item, str) and item else mask_info(item)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [mask_info(item) for item in value]
    if isinstance(value, str):
        return _SECRET_FLAG.sub(rf"\g<1>{MASK}", value)
    return value
