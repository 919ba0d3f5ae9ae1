"""JSON from a server, which may hold anything: values that are none of what was expected are unknown, never an error."""

import json
from json.decoder import JSONDecoder
from typing import Any

MAX_COUNT = 2**31 - 1  # the tables' integers; more tokens than that are no count
_MAX_ERROR_CHARS = 300
_decoder = JSONDecoder()


def read_json(body: bytes) -> Any:
    """The JSON value of what a server sent; None if it is none. Nesting too deep for the parser is no value either."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return None


def read_event(data: bytes) -> Any:
    """As `read_json`, at half its cost on what servers send: a value in UTF-8 without space around it."""
    try:
        text = data.decode("utf-8", "surrogatepass")
        value, end = _decoder.raw_decode(text)
    except (ValueError, RecursionError):
        return read_json(data)
    return value if end == len(text) else read_json(data)


def objects(value: Any) -> list[dict[str, Any]]:
    """The objects of a list; of anything else none."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def count(holder: Any, name: str, default: int | None) -> int | None:
    """`holder[name]` where that is a count; else `default`."""
    value = holder.get(name) if isinstance(holder, dict) else None
    is_count = isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT
    return value if is_count else default


def ratio(value: Any) -> float | None:
    """`value` where that is a finite number that is not negative."""
    is_ratio = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= MAX_COUNT
    return float(value) if is_ratio else None


def whole_text(text: str) -> str:
    """`text` with split surrogate pairs joined and lone halves replaced: JSON can carry them, no file can."""
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def error_message(body: bytes) -> str:
    """The message of an error body, in the shapes {"message"}, {"error": {"message"}} and {"detail"}; else its text."""
    text = body.decode(errors="replace").strip()
    value = read_json(body)
    if isinstance(value, dict):
        inner = value.get("error")
        said = (
            inner.get("message") if isinstance(inner, dict) else inner,
            value.get("message"),
            value.get("detail"),
        )
        text = next((words for words in said if isinstance(words, str) and words), text)
    return text[:_MAX_ERROR_CHARS]
