"""What a user can write or type is documented, and what is generated is fresh."""

from pathlib import Path
from typing import Any

import click

from cluster.cli import main
from loadgen import tables
from loadgen.spec import Sweep

ROOT = Path(__file__).resolve().parents[1]


def config_keys() -> set[str]:
    schema: dict[str, Any] = Sweep.model_json_schema()
    models = [schema, *schema["$defs"].values()]
    return {key for model in models for key in model.get("properties", {})}


def test_every_config_key_is_documented():
    text = (ROOT / "docs" / "config.md").read_text(encoding="utf-8")
    missing = {key for key in config_keys() if f"`{key}`" not in text and f".{key}`" not in text}
    assert not missing


def test_the_data_dictionary_is_fresh():
    assert (ROOT / "docs" / "data.md").read_text(encoding="utf-8") == tables.markdown()


def test_every_command_and_option_has_help_and_stands_in_the_docs():
    text = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    for name, command in main.commands.items():
        assert command.help, name
        assert f"loadgen {name}" in text
        for option in command.params:
            if isinstance(option, click.Option):
                assert option.help, f"{name} {option.name}"
                assert option.opts[0] in text, f"{name} {option.opts[0]}"


def test_the_locks_name_no_index():
    for lock in ROOT.glob("requirements*.lock"):
        text = lock.read_text(encoding="utf-8")
        assert "://" not in text
        assert "--index" not in text
        assert "--hash=sha256:" in text


def test_every_module_stands_in_the_drawing():
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    for package in ("loadgen", "cluster"):
        for path in (ROOT / package).glob("*.py"):
            assert path.stem.startswith("__") or f"`{path.stem}`" in text or f"{path.stem}.py" in text, path
