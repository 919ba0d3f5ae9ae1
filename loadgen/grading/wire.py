"""Values as tagged JSON, between the grader and the process that runs a program, and their comparison.

Nothing is unpickled and no object of the program is ever rebuilt on the grader's side: `same` compares two encoded
trees. A tree is JSON in which an object with one key is a tag. Both processes import this module, so it is light.
"""

import json
import math
from collections.abc import Callable, Iterable
from typing import Any

TOLERANCE = 1e-6
# Deeper values are no answer to any problem, and Python's own recursion limit is near.
MAX_DEPTH = 100
_MAX_NODES = 500_000
_JSON_SAFE_INT = 2**53
_COLLECTIONS: dict[str, Callable[[Iterable[Any]], Any]] = {"tuple": tuple, "set": set, "frozenset": frozenset}
_BASES = (bool, int, float, str, list, tuple, dict, set, frozenset, bytes, complex)


class TooLargeError(Exception):
    """The value has more parts than an answer can have."""


def dumps(tree: Any) -> bytes:
    """One line, newline included."""
    return json.dumps(tree, separators=(",", ":")).encode() + b"\n"


def encode(value: object) -> Any:
    """A value as a tree. A subclass (Counter, IntEnum, ...) is its base type's content, whatever it overrides.

    Objects of other types become {"other": type name}, which equals nothing. Raises TooLargeError.
    """
    return _Encoder().encode(value, 0)


class _Encoder:
    def __init__(self) -> None:
        self._nodes = 0

    def encode(self, value: object, depth: int) -> Any:
        self._nodes += 1
        if self._nodes > _MAX_NODES:
            raise TooLargeError
        kind = type(value)
        base = kind if kind in _BASES else next((b for b in kind.__mro__ if b in _BASES), None)
        if value is None or base is bool:
            return value
        if base is None or depth >= MAX_DEPTH:
            return {"other": str(kind.__name__)[:100]}
        return self._encode_as(base, value, depth + 1)

    def _encode_as(self, base: type, value: Any, depth: int) -> Any:
        if base is list:
            return [self.encode(item, depth) for item in list.__iter__(value)]
        if base is dict:
            return {"dict": [[self.encode(k, depth), self.encode(v, depth)] for k, v in dict.items(value)]}
        if base in (tuple, set, frozenset):
            return {base.__name__: [self.encode(item, depth) for item in base.__iter__(value)]}
        return _encode_scalar(base, value)


def _encode_scalar(base: type, value: Any) -> Any:
    if base is str:
        return str.__str__(value)
    if base is int:
        number = int.__int__(value)
        return number if -_JSON_SAFE_INT < number < _JSON_SAFE_INT else {"int": hex(number)}
    if base is float:
        real = float.__float__(value)
        return real if math.isfinite(real) else {"float": str(real)}
    if base is bytes:
        return {"bytes": bytes.hex(value)}
    return {"complex": [complex.__complex__(value).real, complex.__complex__(value).imag]}


def decode(tree: Any) -> Any:
    """The value of a tree that the grader made (inputs of a call)."""
    if isinstance(tree, list):
        return [decode(item) for item in tree]
    if not isinstance(tree, dict):
        return tree
    ((tag, content),) = tree.items()
    if tag == "dict":
        return {decode(key): decode(value) for key, value in content}
    if tag in _COLLECTIONS:
        return _COLLECTIONS[tag](map(decode, content))
    return _decode_scalar(tag, content)


def _decode_scalar(tag: str, content: Any) -> Any:
    if tag == "int":
        return int(content, 16)
    if tag == "float":
        return float(content)
    return bytes.fromhex(content) if tag == "bytes" else complex(*content)


def same(expected: Any, got: Any) -> bool:
    """Whether a hostile tree equals the tree of an expected answer.

    Tuples equal lists and frozensets equal sets; a float allows 1e-6, relative or absolute; an int equals a float of
    exactly its value; a bool equals only itself. Work and depth are bounded by the size of `expected`.
    """
    number = _number(expected)
    if number is not None:
        other = _number(got)
        return other is not None and _same_number(number, other)
    if _items(expected) is not None:
        return _same_items(_items(expected) or [], _items(got))
    tag = next(iter(expected)) if isinstance(expected, dict) else None
    if tag == "dict":
        return _same_pairs(expected[tag], _tagged(got, "dict"))
    if tag in ("set", "frozenset"):
        members = _tagged(got, "set")
        members = members if members is not None else _tagged(got, "frozenset")
        return _same_pairs(
            [[m, None] for m in expected[tag]], None if members is None else [[m, None] for m in members]
        )
    return type(got) is type(expected) and bool(got == expected)


def _number(tree: Any) -> int | float | None:
    if isinstance(tree, int | float) and not isinstance(tree, bool):
        return tree
    if not isinstance(tree, dict) or len(tree) != 1:
        return None
    try:
        return int(tree["int"], 16) if "int" in tree else float(tree["float"]) if "float" in tree else None
    except (TypeError, ValueError):
        return None


def _same_number(expected: float, got: float) -> bool:
    if isinstance(expected, int):
        return expected == got
    try:
        other = float(got)
    except OverflowError:
        return False
    if math.isnan(expected):
        return math.isnan(other)
    return math.isclose(expected, other, rel_tol=TOLERANCE, abs_tol=TOLERANCE)


def _tagged(tree: Any, tag: str) -> list[Any] | None:
    content = tree.get(tag) if isinstance(tree, dict) and len(tree) == 1 else None
    return content if isinstance(content, list) else None


def _items(tree: Any) -> list[Any] | None:
    return tree if isinstance(tree, list) else _tagged(tree, "tuple")


def _same_items(expected: list[Any], got: list[Any] | None) -> bool:
    return got is not None and len(got) == len(expected) and all(map(same, expected, got))


def _same_pairs(expected: list[Any], got: list[Any] | None) -> bool:
    """Equal mappings in any order. Only trusted keys are hashed into a table, so colliding ones cannot slow it down."""
    if got is None or len(got) != len(expected):
        return False
    wanted = {_key(key): value for key, value in expected}
    for pair in got:
        if not isinstance(pair, list) or len(pair) != 2:
            return False
        key = _key(pair[0])
        if key not in wanted or not same(wanted.pop(key), pair[1]):
            return False
    return not wanted


def _key(tree: Any) -> tuple[str, Any]:
    """A tree that stands for a dict key or set member, as something hashable; 1 and 1.0 are one key, True another."""
    number = _number(tree)
    if number is not None:
        return ("number", number)
    items = _items(tree)
    if items is not None:
        return ("items", tuple(_key(item) for item in items))
    return (
        type(tree).__name__,
        tree if isinstance(tree, str | bool | None) else json.dumps(tree, sort_keys=True),
    )
