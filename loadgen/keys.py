"""API keys: named in a config, read from the environment, and nowhere else."""

import os
import re

from loadgen.errors import BadInput

_IN_A_HEADER = re.compile(r"[\x21-\x7e]+")


def key_from(variable: str | None) -> str | None:
    """The key in an environment variable; None for no variable, or one that is not set. Raises BadInput, without
    showing the key, for one that no header can carry.
    """
    key = os.environ.get(variable) if variable else None
    if key and not _IN_A_HEADER.fullmatch(key):
        raise BadInput(
            f"{variable}: the key has characters that no header can carry; look for a line break at its end"
        )
    return key or None
