"""What a server is started with: places filled in, programs found, secrets known."""

import sys
from pathlib import Path

from cluster.commands import address, fill_in, find_program, secrets_of
from cluster.screen import harmless


def test_places_are_filled_in_wherever_they_stand():
    command = ["{python}", "--url={host}:{port}", "{unknown}", "{port}{port}"]
    assert fill_in(command, "http://[::1]:30000") == [
        sys.executable, "--url=::1:30000", "{unknown}", "3000030000",
    ]  # fmt: skip


def test_an_address_has_the_schemes_port_by_default():
    assert address("http://host") == ("host", 80)
    assert address("https://host") == ("host", 443)
    assert address("https://host:8443") == ("host", 8443)


def test_programs_are_found_on_path_and_beside_this_python(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert find_program("loadgen") == str(Path(sys.executable).parent / "loadgen")
    mine = tmp_path / "loadgen"
    mine.write_text("#!/bin/sh\n")
    mine.chmod(0o700)
    assert find_program("loadgen") == str(mine)
    assert find_program("no-such-program-xyz") is None


def test_secret_values_of_a_start():
    command = ["serve", "--api-key", "k1", "--admin-api-key=k2", "--port", "1", "--token", ""]
    assert secrets_of(command, {"HF_TOKEN": "t1", "PLAIN": "p", "EMPTY_SECRET": ""}) == {"k1", "k2", "t1"}


def test_text_that_would_control_a_screen_or_cannot_be_encoded_loses_just_that():
    assert harmless("a\x1b[31m\u202e\ud800b\tc\nd\x7f\x9bé") == "a[31mb\tc\ndé"
