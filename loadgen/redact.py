"""Masks secrets before anything is written: by the name of a setting, a flag or a variable, wherever it stands."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, AnyStr

MASK = "***"
_WORDS = r"(?:(?:(?:api|access|private|auth|admin)[-_]?key|secret|passw(?:or)?d|passphrase|credential)s?|token|authorization)"
_VALUE = r"""(?:"[^"]*"|'[^']*'|\S+)"""
_NAME = re.compile(rf"{_WORDS}$", re.IGNORECASE)
_IN_TEXT = (
    re.compile(rf"(?<![\w-])(--[\w-]*{_WORDS}\s+){_VALUE}", re.IGNORECASE),  # --api-key X
    re.compile(rf"({_WORDS}=){_VALUE}", re.IGNORECASE),  # --api-key=X, HF_TOKEN=X
    re.compile(rf"(authorization:\s*(?:(?:basic|bearer)\s+)?){_VALUE}", re.IGNORECASE),
    re.compile(r"(://)[^/@\s]+(?=@)"),  # http://user:X@host
)


def is_secret(name: str) -> bool:
    """Whether a setting of this name holds a secret (`api_key`, `HF_TOKEN`; but not `max_total_num_tokens`)."""
    return bool(_NAME.search(name))


def mask_text(text: str) -> str:
    """`text` with the values of secret flags, assignments and headers, and of users in URLs, masked."""
    for pattern in _IN_TEXT:
        text = pattern.sub(rf"\g<1>{MASK}", text)
    return text


def mask_env(env: Mapping[str, str]) -> dict[str, str]:
    """Environment with the values of secret names masked, and what is secret within the others."""
    return {name: MASK if is_secret(name) else mask_text(value) for name, value in env.items()}


def mask_command(command: Sequence[str]) -> list[str]:
    """A command line with secrets masked: values of flags in both spellings, assignments, commands within words."""
    masked: list[str] = []
    hide_next = False
    for word in command:
        masked.append(MASK if hide_next else mask_text(word))
        hide_next = not hide_next and word.startswith("-") and is_secret(word)
    return masked


def mask_info(value: Any) -> Any:
    """A server's report of itself (JSON values) with secrets masked at any depth, its command line included."""
    if isinstance(value, dict):
        return {
            key: MASK if is_secret(key) and isinstance(item, str | list | dict) and item else mask_info(item)
            for key, item in value.items()
        }
    if isinstance(value, list):
        is_words = all(isinstance(item, str) for item in value)
        return mask_command(value) if is_words else [mask_info(item) for item in value]
    return mask_text(value) if isinstance(value, str) else value


def without_key(said: AnyStr, api_key: str | None) -> AnyStr:
    """What a server said, with our own key masked: some servers echo it in an error."""
    if not api_key:
        return said
    if isinstance(said, bytes):
        return said.replace(api_key.encode(), MASK.encode())
    return said.replace(api_key, MASK)
