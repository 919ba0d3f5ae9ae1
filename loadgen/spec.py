"""The sweep's config: what a user may write, with every default. Pure data; `config` reads the file.

Times ending in `_s` under `load` are in the server's time: real seconds on a real server, simulated seconds on a
simulated one whose clock runs faster. All other times are real.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    field_validator,
    model_validator,
)

from loadgen.prompts.settings import PromptSettings

Loc = tuple[str | int, ...]
AxisValue = bool | int | float | str | None

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
_HOST = re.compile(r"[A-Za-z0-9._:-]+")
_MOST_ARRIVALS = 10_000_000  # of one cell's schedule: 80 MB
# Fields of a chat request that a plan decides, or that the measurement needs as they are.
_OWN_FIELDS = (
    *("model", "messages", "stream", "stream_options", "max_tokens", "max_completion_tokens", "temperature"),
    *("ignore_eos", "chat_template_kwargs", "return_spec_tokens_details", "n"),
)
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


def _as_list_or_none(value: Any) -> Any:
    return value if value is None else _as_list(value)


def _check_axis_value(value: Any) -> Any:
    if value is not None and not isinstance(value, bool | int | float | str):
        raise ValueError("an axis value is a number, text, true, false or null")
    return value


Name = Annotated[str, AfterValidator(_check_name)]
Endpoint = Annotated[str, AfterValidator(check_endpoint)]
CheckedAxisValue = Annotated[AxisValue, BeforeValidator(_check_axis_value)]
Tokens = Annotated[int, Field(ge=1, le=10_000_000)]
TokensList = Annotated[list[Tokens], Field(min_length=1), BeforeValidator(_as_list_or_none)]
Streams = Annotated[int, Field(ge=1, le=65_536)]
Seconds = Annotated[float, Field(gt=0, le=86_400)]
Rate = Annotated[float, Field(gt=0, le=1_000_000)]


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

    @property
    def targets(self) -> list["ServerEndpoint"]:
        return [ServerEndpoint(url=self.endpoint)]


class ServerEndpoint(_Model):
    """One of several endpoints of a platform, and its share of the requests."""

    url: Endpoint
    weight: int = Field(default=1, ge=1, le=1000)


def _first_of_several(server: Any) -> Any:
    """`endpoint` is the first of `endpoints`, where those are given."""
    if not isinstance(server, dict) or "endpoints" not in server:
        return server
    if "endpoint" in server:
        raise ValueError("it has endpoint and endpoints; keep one")
    several = server["endpoints"]
    first = several[0] if isinstance(several, list) and several else None
    return {**server, "endpoint": first.get("url") if isinstance(first, dict) else None}


class ExternalServer(_Model):
    """A server that is already running, or several with the same model; measured and never touched."""

    control: Literal["external"]
    endpoints: Annotated[list[ServerEndpoint], Field(min_length=1, max_length=64)] | None = None
    endpoint: Endpoint
    api_key_env: str | None = None

    _first = model_validator(mode="before")(_first_of_several)

    @property
    def targets(self) -> list[ServerEndpoint]:
        return self.endpoints or [ServerEndpoint(url=self.endpoint)]


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
    """What is asked: prompts of an exact length or a dataset's own, an output length, sampling, turns."""

    name: Name = "text"
    context_tokens: TokensList | None = None
    output_tokens: Tokens
    temperature: float = Field(default=0, ge=0, le=2)
    prompt_source: str = "builtin"
    tokenizer: str | None = None
    shared_prefix: float = Field(default=0, ge=0, le=10_000_000)
    turns: int = Field(default=1, ge=1, le=1000)
    turn_tokens: Tokens = 64
    think_time_s: float = Field(default=0, ge=0, le=86_400)
    ignore_eos: bool = True
    thinking: bool | None = None
    chat_template_kwargs: dict[str, Any] = {}
    extra_body: dict[str, Any] = {}

    @property
    def contexts(self) -> Sequence[int | None]:
        """The prompt lengths; one None for prompts as a dataset has them."""
        return [None] if self.context_tokens is None else self.context_tokens

    @property
    def prompts(self) -> PromptSettings:
        """What makes its prompts, as a cell carries it."""
        return PromptSettings(
            source=self.prompt_source,
            tokenizer=self.tokenizer,
            shared_prefix=self.shared_prefix,
            turns=self.turns,
            turn_tokens=self.turn_tokens,
            think_time_s=self.think_time_s,
            template_kwargs=self.chat_template_kwargs,
            extra=self.extra_body,
        )


class Arrivals(_Model):
    """When the requests of an open loop come: by a process at the rate, or as a file of timestamps says."""

    process: Literal["constant", "poisson", "gamma"] = "poisson"
    burstiness: float | None = Field(default=None, gt=0, le=1000)
    trace: str | None = None
    unit: Literal["s", "ms"] = "s"

    @model_validator(mode="after")
    def _is_one_of_them(self) -> Self:
        if self.burstiness is not None and self.process != "gamma":
            raise Misplaced(
                ("load", "arrivals", "burstiness"), "only gamma arrivals have it; add process: gamma"
            )
        if self.process == "gamma" and self.burstiness is None:
            raise ValueError("gamma arrivals need burstiness (1 is poisson, less comes in bursts); add it")
        if self.trace is not None and "process" in self.model_fields_set:
            raise Misplaced(
                ("load", "arrivals", "process"), "a trace is its own process; keep one of the two"
            )
        return self

    @property
    def word(self) -> str:
        """Its name in tables and ids: constant, poisson, gamma0.5, trace-NAME."""
        if self.trace is not None:
            return f"trace-{PurePath(self.trace).stem}"
        return self.process if self.burstiness is None else f"{self.process}{self.burstiness:g}"


class Saturate(_Model):
    """The bounds of `concurrency: saturate`, and the gain in output tok/s below which more streams are of no use."""

    start: Streams = 1
    max: Streams = 1024
    gain: float = Field(default=0.05, gt=0, lt=1)

    @model_validator(mode="after")
    def _goes_up(self) -> Self:
        if self.max < self.start:
            raise Misplaced(("load", "saturate", "max"), f"it is below start ({self.start}); raise it")
        return self


def _streams_or_saturate(value: Any) -> str:
    return "saturate" if isinstance(value, str) else "streams"


def _named_process(value: Any) -> Any:
    return {"process": value} if isinstance(value, str) else value


class Load(_Model):
    """How it is asked: closed loops at each concurrency, open loops at each rate, and the bounds in time of a cell."""

    concurrency: (
        Annotated[
            Annotated[list[Streams], Field(min_length=1), BeforeValidator(_as_list), Tag("streams")]
            | Annotated[Literal["saturate"], Tag("saturate")],
            Discriminator(_streams_or_saturate),
        ]
        | None
    ) = None
    saturate: Saturate = Saturate()
    rate: Annotated[list[Rate], Field(min_length=1), BeforeValidator(_as_list)] | None = None
    arrivals: Annotated[Arrivals, BeforeValidator(_named_process)] = Arrivals()
    max_in_flight: Streams | None = None
    ramp_s: float = Field(default=1, ge=0, le=86_400)
    warmup_requests_per_stream: int = Field(default=1, ge=0)
    warmup_min_requests: int = Field(default=0, ge=0)
    warmup_until_stationary: bool = True
    warmup_max_s: Seconds = 600
    measure_requests_per_stream: int = Field(default=2, ge=0)
    measure_min_requests: int = Field(default=8, ge=0)
    measure_min_s: float = Field(default=10, ge=0, le=86_400)
    measure_max_s: Seconds = 600
    drain_max_s: Seconds = 300

    @property
    def streams(self) -> list[int]:
        """The concurrencies asked for; none where they are searched for."""
        return [] if self.concurrency is None or self.concurrency == "saturate" else self.concurrency

    @property
    def has_open_loop(self) -> bool:
        return self.rate is not None or self.arrivals.trace is not None

    @model_validator(mode="after")
    def _asks_for_something(self) -> Self:
        if self.concurrency is None and not self.has_open_loop:
            raise Misplaced(
                ("load",), "it asks for nothing; give concurrency, rate, or arrivals: {trace: FILE}"
            )
        if self.rate is not None and self.arrivals.trace is not None:
            raise Misplaced(("load", "rate"), "a trace has its own rate; keep one of the two")
        if "saturate" in self.model_fields_set and self.concurrency != "saturate":
            raise Misplaced(("load", "saturate"), "it needs concurrency: saturate; add that, or remove this")
        for key in ("arrivals", "max_in_flight"):
            if key in self.model_fields_set and not self.has_open_loop:
                raise Misplaced(("load", key), "it is of an open loop; add rate, or remove it")
        return self

    @model_validator(mode="after")
    def _ends(self) -> Self:
        if not (self.measure_requests_per_stream or self.measure_min_requests or self.measure_min_s):
            raise Misplaced(
                ("load", "measure_min_s"), "nothing says when the window closes; give a time, or requests"
            )
        if "measure_min_s" in self.model_fields_set and self.measure_min_s > self.measure_max_s:
            raise Misplaced(
                ("load", "measure_min_s"), f"it is above measure_max_s ({self.measure_max_s:g}); lower it"
            )
        if "ramp_s" in self.model_fields_set and self.ramp_s > self.warmup_max_s:
            raise Misplaced(("load", "ramp_s"), f"it is above warmup_max_s ({self.warmup_max_s:g}); lower it")
        for number, rate in enumerate(self.rate or ()):
            if rate * (self.warmup_max_s + self.measure_max_s) > _MOST_ARRIVALS:
                raise Misplaced(
                    ("load", "rate", number),
                    f"{rate:g} a second until warmup_max_s + measure_max_s is more than {_MOST_ARRIVALS:,} requests; "
                    "lower one of them",
                )
        return self


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

    connect_timeout_s: Seconds = 30
    first_byte_timeout_s: Seconds = 600
    idle_timeout_s: Seconds = 120
    request_timeout_s: Seconds = 1800
    responses_per_cell: int = Field(default=4, ge=0)


class Clients(_Model):
    """The load workers: processes that share a cell's streams."""

    workers_per_platform: int = Field(default=1, ge=1, le=64)
    max_workers_per_platform: int | None = Field(default=None, ge=1, le=64)
    allow_shared_cores: bool = False
    transport: Literal["raw", "aiohttp"] = "raw"

    @model_validator(mode="after")
    def _goes_up(self) -> Self:
        if self.max_workers_per_platform is not None and self.most_workers < self.workers_per_platform:
            raise Misplaced(
                ("clients", "max_workers_per_platform"),
                f"it is below workers_per_platform ({self.workers_per_platform}); raise it",
            )
        return self

    @property
    def most_workers(self) -> int:
        """Load workers that a platform may come to have."""
        return self.max_workers_per_platform or self.workers_per_platform


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
            (_endpoint_loc(n, item.server, at), target.url)
            for n, item in enumerate(self.platforms)
            for at, target in enumerate(item.server.targets)
        )
        for number, config in enumerate(self.server_configs):
            _refuse_axes(("server_configs", number), config, self.axes)
            for axis, values in config.grid.items():
                _refuse_duplicates(_numbered(("server_configs", number, "grid", axis), values))
        for number, workload in enumerate(self.workloads):
            _check_workload(("workloads", number), workload)
        _refuse_duplicates(_numbered(("load", "concurrency"), self.load.streams))
        _refuse_duplicates(_numbered(("load", "rate"), self.load.rate or ()))
        return self


def _endpoint_loc(platform: int, server: ProcessServer | ExternalServer, at: int) -> Loc:
    several = isinstance(server, ExternalServer) and server.endpoints
    return ("platforms", platform, "server", *(("endpoints", at, "url") if several else ("endpoint",)))


def _check_workload(loc: Loc, workload: Workload) -> None:
    lengths = workload.context_tokens
    if lengths is None and workload.prompt_source == "builtin":
        raise Misplaced(
            (*loc, "context_tokens"), "missing; write the prompt lengths, or name a dataset as prompt_source"
        )
    _refuse_duplicates(_numbered((*loc, "context_tokens"), lengths or ()))
    shared = workload.shared_prefix
    if shared and (lengths is None or shared >= min(lengths)):
        raise Misplaced(
            (*loc, "shared_prefix"),
            "leave each prompt a part of its own: below 1 it is a share of the prompt, else tokens, fewer than the "
            "least context_tokens",
        )
    for field in workload.extra_body:
        if field in _OWN_FIELDS:
            raise Misplaced(
                (*loc, "extra_body", field),
                "the load generator sets this field itself; use the workload's own key",
            )


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
