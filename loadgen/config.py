"""Reads a sweep's YAML file, and turns what is wrong in it into one line: file, line, key, value and mend."""

import difflib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from loadgen.errors import BadInput
from loadgen.spec import Loc, Sweep

_MENDS = {
    "missing": "add it",
    "int_type": "write a whole number",
    "int_from_float": "write a whole number",
    "float_type": "write a number",
    "string_type": "write text, in quotes if it looks like a number",
    "bool_type": "write true or false",
    "list_type": "write a list",
    "dict_type": "write a mapping of keys to values",
    "model_type": "write a mapping of keys to values",
    "finite_number": "write a finite one",
    "too_short": "give at least one value",
    "literal_error": "write one of these",
}
_KEY_TAGS = ("tag:yaml.org,2002:str", "tag:yaml.org,2002:merge")
_USER_INFO = re.compile(r"//[^/@]*@")  # a password in a URL
_CONTROLS = "write control: process (loadgen starts the server) or control: external (it is running)"


class _Loader(yaml.SafeLoader):
    """YAML's safe types; a date or number that cannot be (2024-13-45) is an error with a line."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep=deep)
        except ValueError as error:
            raise yaml.constructor.ConstructorError(None, None, str(error), node.start_mark) from error


def read_sweep(path: Path) -> tuple[Sweep, str]:
    """The sweep of a config file, and the file's text. Raises BadInput with one line that says how to mend it."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise BadInput(f"{path}: no such file; name a config such as configs/demo.yaml") from error
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise BadInput(f"{path}: cannot be read ({reason}); name a readable YAML file") from error
    return parse_sweep(text, str(path)), text


def parse_sweep(text: str, source: str) -> Sweep:
    """The sweep in `text`; `source` names the file in messages. Raises BadInput."""
    lines: dict[Loc, int] = {}
    try:
        node = yaml.compose(text, Loader=_Loader)
        if node is None:
            raise BadInput(f"{source}: the file is empty; start from configs/demo.yaml")
        _index(node, (), lines, source)
        data = yaml.load(text, Loader=_Loader)  # noqa: S506 - a subclass of the safe loader
    except yaml.YAMLError as error:
        raise BadInput(_one_line(_yaml_problem(error, source))) from error
    except RecursionError:
        raise BadInput(f"{source}: it is nested without end, or refers to itself; write it out") from None
    if not isinstance(data, dict):
        raise BadInput(f"{source}:1: a sweep is a mapping of keys to values; start from configs/demo.yaml")
    try:
        return Sweep.model_validate(data)
    except ValidationError as error:
        raise BadInput(_one_line(_first_problem(error, lines, source))) from None


def _index(node: yaml.Node, path: Loc, lines: dict[Loc, int], source: str) -> None:
    """Notes the line of each key, and refuses keys that stand twice (YAML would keep the last silently)."""
    lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.SequenceNode):
        for number, item in enumerate(node.value):
            _index(item, (*path, number), lines, source)
    elif isinstance(node, yaml.MappingNode):
        for key_node, value_node in node.value:
            line = key_node.start_mark.line + 1
            if key_node.tag not in _KEY_TAGS:
                raise BadInput(f"{source}:{line}: a key is text; put it in quotes{_got(key_node.value)}")
            key = (*path, key_node.value)
            if key in lines:
                where = _one_line(f"{source}:{line}: {_dotted(key)}")
                raise BadInput(f"{where}: the key stands twice (first on line {lines[key]}); keep one")
            lines[key] = line
            _index(value_node, key, lines, source)


def _yaml_problem(error: yaml.YAMLError, source: str) -> str:
    mark = getattr(error, "problem_mark", None)
    where = f"{source}:{mark.line + 1}" if mark else source
    problem = getattr(error, "problem", None) or str(error).splitlines()[0]
    return f"{where}: not valid YAML: {problem}; check indentation, colons and quotes there"


def _first_problem(error: ValidationError, lines: dict[Loc, int], source: str) -> str:
    # A misspelt key also makes its true name missing: the misspelling is the one to show.
    problems = sorted(
        error.errors(include_url=False), key=lambda problem: problem["type"] != "extra_forbidden"
    )
    first = problems[0]
    loc = getattr(first.get("ctx", {}).get("error"), "loc", first["loc"])
    path = _without_tag(loc)
    known = next((path[:n] for n in range(len(path), -1, -1) if path[:n] in lines), ())
    # pydantic adds parts for union members that no key of the file has
    shown = path if first["type"] == "missing" else known
    more = f" ({len(problems) - 1} more after this one)" if len(problems) > 1 else ""
    where = f"{source}:{lines.get(known, 1)}"
    key = f"{_dotted(shown)}: " if shown else ""
    return f"{where}: {key}{_say(first, path)}{more}"


def _without_tag(loc: Loc) -> Loc:
    """`loc` as the file has it: between `server` and its keys, pydantic puts the kind of control."""
    is_tagged = (
        loc[:1] == ("platforms",) and loc[2:3] == ("server",) and loc[3:4] in (("process",), ("external",))
    )
    return (*loc[:3], *loc[4:]) if is_tagged else loc


def _say(problem: ErrorDetails, path: Loc) -> str:
    kind, value = problem["type"], problem["input"]
    context: dict[str, Any] = problem.get("ctx", {})
    if kind == "extra_forbidden":
        return _unknown_key(str(path[-1]), problem["loc"], _got(value))
    if kind == "missing":
        return "the key is missing; add it"
    if kind.startswith("union_tag"):
        return f"unknown or missing control; {_CONTROLS}"
    if kind == "value_error":
        return f"{context['error']}{_got(value)}"
    if kind == "too_short":
        return "it is empty; give at least one value, or leave the key out"
    if bound := _bound(context):
        return f"must be {bound}{_got(value)}; change it"
    return f"{_lower(problem['msg'])}{_got(value)}; {_MENDS.get(kind, 'see docs/config.md')}"


def _bound(context: dict[str, Any]) -> str | None:
    words = {"ge": "at least", "gt": "more than", "le": "at most", "lt": "less than"}
    return next((f"{word} {context[key]}" for key, word in words.items() if key in context), None)


def _unknown_key(key: str, loc: Sequence[str | int], got: str) -> str:
    allowed = _keys_at(loc[:-1])
    close = difflib.get_close_matches(key, allowed, n=1)
    mend = f"did you mean {close[0]}?" if close else f"remove it, or use one of: {', '.join(allowed)}"
    return f"unknown key{got}; {mend}"


def _keys_at(loc: Sequence[str | int]) -> list[str]:
    """The keys that the model at a place of the config knows, found by walking the JSON schema."""
    schema = Sweep.model_json_schema()
    node: Any = schema
    for part in loc:
        node = _step(_resolve(node, schema), part, schema)
    return list(_resolve(node, schema).get("properties", ()))


def _resolve(node: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    while True:
        if "$ref" in node:
            node = schema["$defs"][node["$ref"].rsplit("/", 1)[1]]
        elif "anyOf" in node:
            node = next(option for option in node["anyOf"] if option.get("type") != "null")
        else:
            return node


def _step(node: dict[str, Any], part: str | int, schema: dict[str, Any]) -> dict[str, Any]:
    if mapping := node.get("discriminator", {}).get("mapping"):
        return _resolve({"$ref": mapping[part]}, schema)
    if isinstance(part, int):
        return dict(node["items"])
    if part in node.get("properties", {}):
        return dict(node["properties"][part])
    return dict(node["additionalProperties"])


def _got(value: Any) -> str:
    if not isinstance(value, str | int | float) or len(repr(value)) >= 80:
        return ""
    return f" (got {_USER_INFO.sub('//***@', repr(value))})"


def _lower(message: str) -> str:
    return message[:1].lower() + message[1:]


def _one_line(text: str) -> str:
    return " ".join(text.splitlines())


def _dotted(path: Loc) -> str:
    words = ""
    for part in path:
        words += f"[{part}]" if isinstance(part, int) else f".{part}" if words else str(part)
    return words
