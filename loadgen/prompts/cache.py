"""Results of fits on disk, so that a sweep does not tokenize the same text again on the next server or in the next run."""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

from loadgen.received_json import read_json

FOLDER_VARIABLE = "LOADGEN_CACHE_DIR"


def cache_folder() -> Path:
    """$LOADGEN_CACHE_DIR, else `loadgen` in $XDG_CACHE_HOME, else in ~/.cache."""
    own = os.environ.get(FOLDER_VARIABLE)
    if own:
        return Path(own)
    shared = os.environ.get("XDG_CACHE_HOME")
    return (Path(shared) if shared else Path("~/.cache").expanduser()) / "loadgen"


class DiskCache:
    """JSON values by key, one file each. What is broken, or of another key, is as if it were not there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def get(self, key: Mapping[str, Any]) -> Any:
        """The value put under this key, or None."""
        try:
            entry = read_json(self._path(key).read_bytes())
        except OSError:
            return None
        return (
            entry["value"]
            if isinstance(entry, dict) and entry.get("key") == key and "value" in entry
            else None
        )

    def put(self, key: Mapping[str, Any], value: Any) -> None:
        """Keeps the value; readers see the whole entry or none. A folder that cannot be written keeps nothing."""
        path = self._path(key)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with NamedTemporaryFile("w", dir=self._folder, suffix=".part", delete=False) as file:
                json.dump({"key": key, "value": value}, file)
            os.replace(file.name, path)  # noqa: PTH105 - the name is a string
        except OSError:
            return  # a full or read-only disk costs time, never a run

    def _path(self, key: Mapping[str, Any]) -> Path:
        digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
        return self._folder / f"{digest[:40]}.json"
