"""Fits on disk: found again, never half-written, never of another key."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from loadgen.prompts.cache import DiskCache, cache_folder

KEY = {"what": "prompt", "tokens": 60}


def test_what_was_put_is_found_by_another_process_of_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "deep"
    DiskCache(folder).put(KEY, {"words": 3})
    assert DiskCache(folder).get(dict(reversed(KEY.items()))) == {"words": 3}
    assert DiskCache(folder).get({**KEY, "tokens": 61}) is None
    assert [path.suffix for path in folder.iterdir()] == [".json"]


@pytest.mark.parametrize(
    "broken", [b"", b'{"key"', b"[]", b"\xff", b"null", b"[" * 100_000, b'{"key": {}, "value": 1}']
)
def test_a_broken_entry_is_written_again(tmp_path: Path, broken: bytes) -> None:
    cache = DiskCache(tmp_path)
    cache.put(KEY, 1)
    (path,) = tmp_path.iterdir()
    path.write_bytes(broken)
    assert cache.get(KEY) is None
    cache.put(KEY, 2)
    assert cache.get(KEY) == 2


def test_a_folder_that_cannot_be_made_keeps_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    cache = DiskCache(tmp_path / "file" / "below")
    cache.put(KEY, 1)
    assert cache.get(KEY) is None


def test_a_reader_sees_whole_entries_only(tmp_path: Path) -> None:
    cache = DiskCache(tmp_path)
    cache.put(KEY, "x" * 100_000)

    def write(n: int) -> None:
        for _ in range(30):
            cache.put(KEY, str(n) * 100_000)

    with ThreadPoolExecutor(3) as pool:
        writers = [pool.submit(write, n) for n in range(2)]
        while not all(writer.done() for writer in writers):
            assert len(cache.get(KEY)) == 100_000
    assert [path.suffix for path in tmp_path.iterdir()] == [".json"]
    assert set(json.loads(next(tmp_path.iterdir()).read_text())) == {"key", "value"}


def test_where_the_folder_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOADGEN_CACHE_DIR", "/own")
    monkeypatch.setenv("XDG_CACHE_HOME", "/shared")
    assert cache_folder() == Path("/own")
    monkeypatch.delenv("LOADGEN_CACHE_DIR")
    assert cache_folder() == Path("/shared/loadgen")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path(os.environ["HOME"]) / ".cache" / "loadgen"
