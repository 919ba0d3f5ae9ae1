"""The sweep's config: what a user may write, with every default. Pure data; `config` reads the file.

Times ending in `_s` under `load` are in the server's time: real seconds on a real server, simulated seconds on a
simulated one whose clock runs faster. All other times are real.
"""

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from loadgen.prompts.settings import PromptSettings
from loadgen.spec_load import Load, Saturate
from loadgen.spec_types import (
    AxisValue,
    CheckedAxisValue,
    Endpoint,
    Loc,
    Misplaced,
    Model,
    Name,
    Seconds,
    Streams,
    Tokens,
    TokensList,
    as_list,
    check_endpoint,
)

__all__ = ["AxisValue", "Load", "Loc", "Saturate", "check_endpoint"]

# Fields of a chat request that a plan decides, or that the measurement needs as they are.
_OWN_FIELDS = (
    *("model", "messages", "stream", "stream_options", "max_tokens", "max_completion_tokens", "temperature"),
    *("ignore_eos", "chat_template_kwargs", "return_spec_tokens_details", "n"),
)


class Gpu(Model):
    """The accelerators of a platform; words for the report, and the count for figures per GPU."""

    kind: str
    count: int = Field(ge=1)
    interconnect: str = ""


class ProcessServer(Model):
    """A server that loadgen starts on this machine, and restarts for each server config."""

    control: Literal["process"]
    endpoint: Endpoint
    command: list[str] = Field(min_length=1)
    env: dict[str, str] = Field(default_factory=dict)
    api_key_env: str | None = None
    ready_timeout_s: Seconds = 1800
    stop_timeout_s: Seconds = 60

    @property
    def targets(self) -> list["ServerEndpoint"]:
        return [ServerEndpoint(url=self.endpoint)]


class ServerEndpoint(Model):
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


class ExternalServer(Model):
    """A server that is already running, or several with the same model; measured and never touched."""

    control: Literal["external"]
    endpoints: Annotated[list[ServerEndpoint], Field(min_length=1, max_length=64)] | None = None
    endpoint: Endpoint
    api_key_env: str | None = None

    _first = model_validator(mode="before")(_first_of_several)

    @property
    def targets(self) -> list[ServerEndpoint]:
        return self.endpoints or [ServerEndpoint(url=self.endpoint)]


class Platform(Model):
    """One piece of hardware under test, and how its server is controlled."""

    name: Name
    gpu: Gpu | None = None
    hourly_price: float | None = Field(default=None, ge=0)
    server: Annotated[ProcessServer | ExternalServer, Field(discriminator="control")]


class Axis(Model):
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


class ServerConfig(Model):
    """One or more ways to start the server: `fixed` axis values, times the grid of the others."""

    name: Name
    fixed: dict[str, CheckedAxisValue] = Field(default_factory=dict)
    grid: dict[str, Annotated[list[CheckedAxisValue], Field(min_length=1), BeforeValidator(as_list)]] = Field(
        default_factory=dict
    )


class Workload(Model):
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
    chat_template_kwargs: dict[str, Any] = Field(default_factory=dict)
    extra_body: dict[str, Any] = Field(default_factory=dict)

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


class Grading(Model):
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


class Limits(Model):
    """Bounds in real time of one request, and on what is kept."""

    connect_timeout_s: Seconds = 30
    first_byte_timeout_s: Seconds = 600
    idle_timeout_s: Seconds = 120
    request_timeout_s: Seconds = 1800
    responses_per_cell: int = Field(default=4, ge=0)


class Clients(Model):
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


class Sweep(Model):
    """The cells of one config file."""

    name: Name
    seed: int = 1
    platforms: list[Platform] = Field(min_length=1)
    axes: dict[Name, Axis] = Field(default_factory=dict)
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
