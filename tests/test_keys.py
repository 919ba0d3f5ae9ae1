"""A key comes from its variable, and one that no header can carry is refused without being shown."""

import pytest

from loadgen.errors import BadInput
from loadgen.keys import key_from


def test_a_key_is_what_its_variable_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "sk-12.34_x")
    assert key_from("SOME_KEY") == "sk-12.34_x"


@pytest.mark.parametrize("variable", [None, "NOT_SET_ANYWHERE"])
def test_no_variable_or_none_that_is_set_is_no_key(variable: str | None) -> None:
    assert key_from(variable) is None


def test_an_empty_one_is_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_KEY", "")
    assert key_from("SOME_KEY") is None


@pytest.mark.parametrize("key", ["secret\n", "secret\r\nX-Other: 1", "se cret", "sécret"])
def test_a_key_that_no_header_can_carry_is_refused_and_not_shown(
    monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("SOME_KEY", key)
    with pytest.raises(BadInput, match=r"SOME_KEY: .*line break") as refused:
        key_from("SOME_KEY")
    assert "cret" not in str(refused.value)
