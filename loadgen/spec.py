"""The sweep's config: what a user may write, with every default. Pure data; `config` reads the file.

Times ending in `_s` under `load` are in the server's time: real seconds on a real server, simulated seconds on a
simulated one whose clock runs faster. All other times are real.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

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


def _as_list(value: Any) -> Any:
    return value if isinstance(value, list) else [value]


def _check_axis_value(value: Any) -> Any:
    if value is not None and not isinstance(value, bool | int | float | str):
        raise ValueError("an axis value is a number, text, true, false or null")
    return value


Name = Annotated[str, AfterValidator(_check_name)]
Endpoint = Annotated[str, AfterValidator(check_endpoint)]
CheckedAxisValue = Annotated[AxisValue, BeforeValidator(_check_axis_value)]
Tokens = Annotated[int, Field(ge=1, le=10_000_000)]
Streams = Annotated[int, Field(ge=1, le=65_536)]
Seconds = Annotated[float, Field(gt=0, le=86_400)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Gpu(_Model):
    """The accelerators of a platform; words for the report, and the count for figures per GPU."""

    kind: str
    count: int = Field(ge=1)
    interconnect: str = ""


class ProcessServer(_Model):
    """A server that loadgen starts on this machine, and restarts for each server config."""

    control: Literal["process"]
    endpoint: Endpoint
    command: list[str] = Field(min_length=1)
    env: dict[str, str] = {}
    api_key_env: str | None = None
    ready_timeout_s: Seconds = 1800
    stop_timeout_s: Seconds = 60


class ExternalServer(_Model):
    """A server that is already running; it is measured and never touched."""

    control: Literal["external"]
    endpoint: Endpoint
    api_key_env: str | None = None


class Platform(_Model):
    """One piece of hardware under test, and how its server is controlled."""

    name: Name
    gpu: Gpu | None = None
    hourly_price: float | None = Field(default=None, ge=0)
    server: Annotated[ProcessServer | ExternalServer, Field(discriminator="control")]


class Axis(_Model):
    """One swept setting: the flag and/or environment variable it becomes, and the key that reads it back."""

    flag: str | None = None
    env: str | None = None
    read_back: str | None = None

    @model_validator(mode="after")
    def _has_a_target(self) -> Self:
        if not self.flag and not self.env:
            raise ValueError("an axis needs a flag, an env, or both; otherwise it would change nothing")
        if self.flag and not self.flag.startswith("-"):
            raise ValueError("a flag starts with -, such as --speculative-num-draft-tokens")
        return self


class ServerConfig(_Model):
    """One or more ways to start the server: `fixed` axis values, times the grid of the others."""

    name: Name
    fixed: dict[str, CheckedAxisValue] = {}
    grid: dict[str, Annotated[list[CheckedAxisValue], Field(min_length=1), BeforeValidator(_as_list)]] = {}


class Workload(_Model):
    """What is asked: prompts of an exact length, an output length, sampling."""

    name: Name = "text"
    context_tokens: Annotated[list[Tokens], Field(min_length=1), BeforeValidator(_as_list)]
    output_tokens: Tokens
    temperature: float = Field(default=0, ge=0, le=2)
    prompt_source: str = "builtin"
    ignore_eos: bool = True
    thinking: bool | None = None


class Load(_Model):
    """How it is asked: a closed loop at each concurrency, and the bounds in time of a cell."""

    concurrency: Annotated[list[Streams], Field(min_length=1), BeforeValidator(_as_list)]
    warmup_requests_per_stream: int = Field(default=1, ge=0)
    warmup_max_s: Seconds = 600
    measure_requests_per_stream: int = Field(default=2, ge=1)
    measure_min_requests: int = Field(default=8, ge=1)
    measure_min_s: float = Field(default=10, ge=0, le=86_400)
    measure_max_s: Seconds = 600
    drain_max_s: Seconds = 300


class Grading(_Model):
    """The correctness test of each server config: greedy answers to a problem set, graded."""

    problems: str = "classic"
    max_tokens: Tokens = 8192
    concurrency: Streams = 1
    program_timeout_s: Seconds = 10

    @field_validator("max_tokens")
    @classmethod
    def _lets_a_thought_finish(cls, value: int) -> int:
        if value < 64:
            raise ValueError("an answer needs room to think; use 4096 or more")
        return value


class Limits(_Model):
    """Bounds in real time of one request, and on what is kept."""

    first_byte_timeout_s: Seconds = 600
    idle_timeout_s: Seconds = 120
    request_timeout_s: Seconds = 1800
    responses_per_cell: int = Field(default=4, ge=0)


class Clients(_Model):
    """The load workers: processes that share a cell's streams."""

    workers_per_platform: int = Field(default=1, ge=1, le=64)


class Sweep(_Model):
    """The cells of one config file."""

    name: Name
    seed: int = 1
    platforms: list[Platform] = Field(min_length=1)
    axes: dict[Name, Axis] = {}
    server_configs: list[ServerConfig] = Field(
        default_factory=lambda: [ServerConfig(name="default")], min_length=1
    )
    workloads: list[Workload] = Field(min_length=1)
    load: Load
    repeats: int = Field(default=1, ge=1, le=1000)
    grading: Grading | None = None
    limits: Limits = Limits()
    clients: Clients = Clients()

    @model_validator(mode="after")
    def _names_agree(self) -> Self:
        for key in ("platforms", "server_configs", "workloads"):
            _refuse_duplicates([((key, n, "name"), item.name) for n, item in enumerate(getattr(self, key))])
        _refuse_duplicates(
            [
                (("platforms", n, "server", "endpoint"), item.server.endpoint)
                for n, item in enumerate(self.platforms)
            ]
        )
        for number, config in enumerate(self.server_configs):
            _refuse_axes(("server_configs", number), config, self.axes)
            for axis, values in config.grid.items():
                _refuse_duplicates(_numbered(("server_configs", number, "grid", axis), values))
        for number, workload in enumerate(self.workloads):
            _refuse_duplicates(_numbered(("workloads", number, "context_tokens"), workload.context_tokens))
        _refuse_duplicates(_numbered(("load", "concurrency"), self.load.concurrency))
        return self


def _numbered(loc: Loc, values: Sequence[object]) -> list[tuple[Loc, object]]:
    return [((*loc, number), value) for number, value in enumerate(values)]


def _refuse_duplicates(values: Iterable[tuple[Loc, object]]) -> None:
    seen = set()
    for loc, value in values:
        marked = (type(value), value)  # 1 and True are equal in Python, not for a user
        if marked in seen:
            raise Misplaced(loc, f"{value} stands twice; give each its own")
        seen.add(marked)


def _refuse_axes(loc: Loc, config: ServerConfig, axes: dict[str, Axis]) -> None:
    known = ", ".join(axes) or "none is defined"
    for part in ("fixed", "grid"):
        for axis in getattr(config, part):
            if axis not in axes:
                raise Misplaced((*loc, part, axis), f"unknown axis; define it under axes (known: {known})")
            if part == "grid" and axis in config.fixed:
                raise Misplaced((*loc, part, axis), "the axis is in fixed and in grid; keep one")
