"""What the parts of a sweep's config are made of: checked names, URLs and numbers, and errors that name a key."""

import re
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

Loc = tuple[str | int, ...]
AxisValue = bool | int | float | str | None

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_HOST = re.compile(r"[A-Za-z0-9._:-]+")
_NO_URL = "an endpoint is a URL such as http://127.0.0.1:30000"


class Misplaced(ValueError):
    """A problem between keys; `loc` is the key that the user should look at."""

    def __init__(self, loc: Loc, message: str) -> None:
        super().__init__(message)
        self.loc = loc


def _check_name(name: str) -> str:
    if not _NAME.fullmatch(name) or len(name) > 60:
        raise ValueError(
            "a name has letters, digits, - and _ only, and at most 60 of them; it becomes part of file names"
        )
    return name


def check_endpoint(url: str) -> str:
    """A URL of scheme, host and port, without a closing slash. Raises ValueError that says what is wrong."""
    try:
        parts = urlsplit(url)
    except ValueError:
        raise ValueError(_NO_URL) from None
    if parts.scheme not in ("http", "https") or not _HOST.fullmatch(parts.hostname or ""):
        raise ValueError(_NO_URL)
    try:
        port = parts.port
    except ValueError:
        raise ValueError("the port is out of range; use 1 to 65535") from None
    if port == 0:
        raise ValueError("the port is out of range; use 1 to 65535")
    if parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc:
        raise ValueError(
            "an endpoint is scheme, host and port only; paths are added, and a key belongs into api_key_env"
        )
    return url.rstrip("/")


def as_list(value: Any) -> Any:
    """A single value stands for a list of one."""
    return value if isinstance(value, list) else [value]


def as_list_or_none(value: Any) -> Any:
    """As `as_list`; null stays null."""
    return value if value is None else as_list(value)


def _check_axis_value(value: Any) -> Any:
    if value is not None and not isinstance(value, bool | int | float | str):
        raise ValueError("an axis value is a number, text, true, false or null")
    return value


Name = Annotated[str, AfterValidator(_check_name)]
Endpoint = Annotated[str, AfterValidator(check_endpoint)]
CheckedAxisValue = Annotated[AxisValue, BeforeValidator(_check_axis_value)]
Tokens = Annotated[int, Field(ge=1, le=10_000_000)]
TokensList = Annotated[list[Tokens], Field(min_length=1), BeforeValidator(as_list_or_none)]
Streams = Annotated[int, Field(ge=1, le=65_536)]
Seconds = Annotated[float, Field(gt=0, le=86_400)]
Rate = Annotated[float, Field(gt=0, le=1_000_000)]


class Model(BaseModel):
    """Values as they are written, known keys only, and frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)
