"""Prompt sources by name."""

from pathlib import Path

import pytest

from loadgen.errors import BadInput
from loadgen.prompts.corpus import builtin_paragraphs
from loadgen.prompts.datasets import Chat
from loadgen.prompts.sources import Source, read_source


def test_the_builtin_text_is_not_carried_along() -> None:
    source = read_source("builtin")
    assert source == Source()
    assert source.own_paragraphs == ()
    assert source.paragraphs == builtin_paragraphs()


def test_a_text_file_is_paragraphs_and_prompts(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_text("\ufeffone two\n\n  café  \r\n", encoding="utf-8")
    source = read_source(str(path))
    assert source.paragraphs == ("one two", "café")
    assert source.chats == (Chat.of_prompt("one two"), Chat.of_prompt("café"))


def test_a_dataset_is_chats_and_the_text_of_its_users(tmp_path: Path) -> None:
    path = tmp_path / "d.JSONL"
    path.write_text('{"prompt": "one\\ntwo"}\n{"turns": ["three", "four"]}\n')
    source = read_source(str(path))
    assert source.paragraphs == ("one", "two", "three", "four")
    assert [chat.user_turns for chat in source.chats] == [("one\ntwo",), ("three", "four")]


def test_the_digest_changes_with_the_text() -> None:
    digests = {Source("a", ("x", "y")).digest, Source("a", ("y", "x")).digest, Source().digest}
    assert len(digests) == 3
    assert Source("a", ("x",)).digest == Source("b", ("x",)).digest


def test_a_source_that_cannot_be_read_is_bad_input(tmp_path: Path) -> None:
    def message(path: Path) -> str:
        with pytest.raises(BadInput) as caught:
            read_source(str(path))
        return str(caught.value)

    (tmp_path / "binary").write_bytes(b"\xff\x00\xfe")
    (tmp_path / "blank").write_text(" \n\n")
    (tmp_path / "bad.json").write_text("{")
    assert "No such file" in message(tmp_path / "none")
    assert "Is a directory" in message(tmp_path)
    assert "it is not UTF-8 text" in message(tmp_path / "binary")
    assert "the file has no words" in message(tmp_path / "blank")
    assert "bad.json:1: not JSON" in message(tmp_path / "bad.json")
    assert "cannot be read" in message(Path("a\0b"))
