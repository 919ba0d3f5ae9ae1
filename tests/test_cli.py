"""Bad input ends in one clear line and exit code 2, an unreachable server in exit code 1; nothing has started."""

import contextlib
import os
import socket
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner

from cluster.cli import main

GOOD = """
name: good
platforms:
  - name: box
    server: {control: external, endpoint: "http://127.0.0.1:9"}
axes:
  budget: {flag: --speculative-num-draft-tokens}
server_configs:
  - name: plain
    fixed: {budget: 8}
workloads:
  - {context_tokens: 60, output_tokens: 32}
load: {concurrency: [1, 8]}
"""


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


def loadgen(folder: Path, *words: str) -> Done:
    """The command line in this process (a new one takes a second to import)."""
    with contextlib.chdir(folder):
        result = CliRunner().invoke(main, words, env={"COLUMNS": "200"}, prog_name="loadgen")
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return Done(result.exit_code, result.stdout, result.stderr)


def refused(folder: Path, *words: str, code: int = 2) -> str:
    """The one line that refuses; nothing was made."""
    before = sorted(folder.iterdir())
    done = loadgen(folder, *words)
    assert done.returncode == code, done.stdout + done.stderr
    assert sorted(folder.iterdir()) == before
    (line,) = done.stderr.strip().splitlines()
    return line


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("name: good", "name: good\nfoo: 1", ("sweep.yaml:3", "foo", "unknown key", "remove it")),
        ("concurrency:", "concurency:", ("load.concurency", "did you mean concurrency?")),
        (
            "output_tokens: 32",
            "output_tokens: many",
            ("workloads[0].output_tokens", "'many'", "whole number"),
        ),
        (
            "fixed: {budget: 8}",
            "fixed: {topk: 4}",
            ("sweep.yaml:10", "fixed.topk", "unknown axis", "known: budget"),
        ),
        (":9", ":99999", ("endpoint", "99999", "1 to 65535")),
        ("fixed: {budget: 8}", "grid: {budget: []}", ("grid.budget", "empty", "at least one value")),
        ("[1, 8]", "[0]", ("load.concurrency", "got 0", "at least 1")),
        ("[1, 8]", "[8, 8]", ("load.concurrency[1]", "8 stands twice")),
        ("- name: plain", "- name: plain\n  - name: plain", ("server_configs[1].name", "plain stands twice")),
        ("fixed: {budget: 8}", "grid: {budget: [8, 16]}", ("box", "external", "never restarted")),
        (
            "output_tokens: 32",
            "output_tokens: 32, prompt_source: nowhere.txt",
            ("nowhere.txt", "No such file"),
        ),
        ("load:", "grading: {problems: hard}\nload:", ("grading.problems", "classic")),
    ],
)
def test_a_config_with_a_fault_is_refused_in_one_line(tmp_path, old, new, words):
    assert old in GOOD
    (tmp_path / "sweep.yaml").write_text(GOOD.replace(old, new), encoding="utf-8")
    line = refused(tmp_path, "run", "sweep.yaml")
    for word in words:
        assert word in line


def test_an_external_server_that_does_not_answer_is_named(tmp_path):
    (tmp_path / "sweep.yaml").write_text(GOOD, encoding="utf-8")
    line = refused(tmp_path, "run", "sweep.yaml", code=1)
    assert "http://127.0.0.1:9" in line
    assert "cannot be reached" in line


def test_a_ray_cluster_that_does_not_answer_is_named_at_once(tmp_path):
    (tmp_path / "sweep.yaml").write_text(GOOD, encoding="utf-8")
    line = refused(tmp_path, "run", "sweep.yaml", "--address", "127.0.0.1:9", code=1)
    assert "--address 127.0.0.1:9" in line


def test_a_port_that_a_stranger_holds_is_named_with_its_process(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        port = stranger.getsockname()[1]
        text = GOOD.replace(
            '{control: external, endpoint: "http://127.0.0.1:9"}',
            f'{{control: process, command: [loadgen, sim], endpoint: "http://127.0.0.1:{port}"}}',
        )
        (tmp_path / "sweep.yaml").write_text(text, encoding="utf-8")
        line = refused(tmp_path, "run", "sweep.yaml", code=1)
    assert f"port {port} is in use" in line
    assert str(os.getpid()) in line


def test_files_and_folders_that_are_not_what_they_should_be(tmp_path):
    (tmp_path / "secret.yaml").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "folder").mkdir()
    assert "no such file" in refused(tmp_path, "run", "missing.yaml")
    assert "not UTF-8" in refused(tmp_path, "run", "secret.yaml")
    assert "cannot be read" in refused(tmp_path, "run", "folder")
    assert "not a run folder" in refused(tmp_path, "report", "folder")
    assert "not a run folder" in refused(tmp_path, "run", "--resume", "folder")
    assert "does not exist" in refused(tmp_path, "report", "nowhere")


def test_a_folder_that_is_not_empty_is_not_written_into(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    text = GOOD.replace(
        '{control: external, endpoint: "http://127.0.0.1:9"}',
        '{control: process, command: [loadgen, sim], endpoint: "http://127.0.0.1:1"}',
    )
    (tmp_path / "sweep.yaml").write_text(text, encoding="utf-8")
    assert "not empty" in refused(tmp_path, "run", "sweep.yaml", "--out", "full")


def test_arguments_that_do_not_go_together(tmp_path):
    (tmp_path / "sweep.yaml").write_text(GOOD, encoding="utf-8")
    assert "no such platform" in refused(tmp_path, "run", "sweep.yaml", "--platform", "other")
    for words in (("run",), ("run", "sweep.yaml", "--resume", "x"), ("run", "--resume", "x", "--out", "y")):
        assert loadgen(tmp_path, *words).returncode == 2


def test_probe_and_eval_name_what_they_cannot_use(tmp_path):
    assert "endpoint is a URL" in refused(tmp_path, "probe", "nonsense")
    assert "cannot be reached" in refused(tmp_path, "probe", "http://127.0.0.1:9", code=1)
    assert "cannot be reached" in refused(tmp_path, "eval", "http://127.0.0.1:9", code=1)
    assert "classic" in refused(tmp_path, "eval", "http://127.0.0.1:9", "--problems", "hard")
    assert "NO_SUCH_KEY" in refused(tmp_path, "eval", "http://127.0.0.1:9", "--api-key-env", "NO_SUCH_KEY")


def test_dry_run_prints_the_plan_with_command_lines_and_makes_nothing(tmp_path):
    text = GOOD.replace(
        '{control: external, endpoint: "http://127.0.0.1:9"}',
        '{control: process, command: [serve, --port, "{port}", --api-key, k1], endpoint: "http://127.0.0.1:31999"}',
    )
    (tmp_path / "sweep.yaml").write_text(text, encoding="utf-8")
    done = loadgen(tmp_path, "run", "sweep.yaml", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "2 cell executions, 1 server start" in done.stdout
    assert "serve --port 31999 --api-key '***' --speculative-num-draft-tokens 8" in done.stdout
    assert "k1" not in done.stdout
    assert "context 60 x concurrency 1, 8" in done.stdout
    for word in ("requests", "tokens", "disk", "time"):
        assert f"\n{word}" in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["sweep.yaml"]


def test_help_and_version(tmp_path):
    assert "Exit codes" in loadgen(tmp_path, "--help").stdout
    assert loadgen(tmp_path, "--version").stdout.startswith("loadgen")
