"""What a scenario is, and how one is asked for: `NAME`, `NAME:KEY=VALUE:...`, `NAME*COUNT`, and commas between them."""

import inspect
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from loadgen.records import Outcome

_MAX_COUNT = 100_000
Play = Callable[..., Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Pace:
    """How a stream runs where its scenario does not say otherwise. Every scenario takes these as parameters."""

    first_s: float = 0.05
    gap_s: float = 0.01
    tokens: int = 4


@dataclass(frozen=True, slots=True)
class Scenario:
    """One row of the table. `play` acts on a Stage, or on the House when the fault is the whole server's.

    `shows` names the known faults of harnesses, `outcome` and `right` say what a right client reports.
    """

    play: Play
    outcome: Outcome
    right: str
    shows: str
    is_server_wide: bool

    @property
    def name(self) -> str:
        return str(self.play.__name__)

    @property
    def does(self) -> str:
        """What it plays, in words."""
        return " ".join((self.play.__doc__ or "").split())

    @property
    def parameters(self) -> dict[str, Any]:
        """Its own parameters with their defaults."""
        given = inspect.signature(self.play).parameters.values()
        return {one.name: one.default for one in given if one.default is not inspect.Parameter.empty}


@dataclass(frozen=True, slots=True)
class Choice:
    """A scenario with its parameters. `text` is how it was asked for."""

    text: str
    scenario: Scenario
    options: Mapping[str, Any]
    pace: Pace


def scenario(
    outcome: Outcome, right: str, *, shows: str = "", is_server_wide: bool = False
) -> Callable[[Play], Scenario]:
    """Makes a coroutine function a row of the table: its name, docstring and defaults are the scenario's."""
    return lambda play: Scenario(play, outcome, right, shows, is_server_wide)


def choose(text: str, table: Mapping[str, Scenario]) -> Choice:
    """Reads `NAME:KEY=VALUE:...`. Raises ValueError that says what is wrong and what there is."""
    name, *settings = text.strip().split(":")
    if name not in table:
        raise ValueError(f"there is no scenario {name[:60]!r}; `loadgen sim --list-scenarios` shows them all")
    chosen = table[name]
    pace: dict[str, Any] = {field.name: field.default for field in fields(Pace)}
    known = {**pace, **chosen.parameters}
    given: dict[str, Any] = {}
    for setting in settings:
        key, _, value = setting.partition("=")
        if key not in known:
            raise ValueError(f"scenario {name} has no parameter {key[:60]!r}; it has {', '.join(known)}")
        given[key] = _value(name, key, value, known[key])
    options = {key: given.get(key, default) for key, default in chosen.parameters.items()}
    return Choice(text.strip(), chosen, options, Pace(**{key: given.get(key, pace[key]) for key in pace}))


def choose_all(text: str, table: Mapping[str, Scenario]) -> list[Choice]:
    """Reads a comma-separated list, which requests go through in turn. Raises ValueError as `choose` does."""
    choices: list[Choice] = []
    for part in text.split(","):
        wanted, star, count = part.partition("*")
        if star and not (count.isdecimal() and 1 <= int(count) <= _MAX_COUNT):
            raise ValueError(f"{part[:60]!r}: the count after * must be from 1 to {_MAX_COUNT}")
        choices += [choose(wanted, table)] * (int(count) if star else 1)
    return choices


def _value(name: str, key: str, text: str, default: Any) -> Any:
    try:
        value = type(default)(text)
    except ValueError:
        value = None
    is_number = isinstance(value, int | float)
    least = 1 if key in ("tokens", "every") else 0
    if value is None or (is_number and not (math.isfinite(value) and least <= value <= 1e9)):
        wanted = {int: f"a whole number from {least}", float: "a number from 0", str: "a text"}
        raise ValueError(
            f"scenario {name}: {key} must be {wanted.get(type(default), 'one of its words')}, got {text[:60]!r}"
        )
    return value
