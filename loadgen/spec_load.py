"""How a server is asked: closed loops, a search for saturation, open loops, and the bounds in time of a cell."""

from pathlib import PurePath
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Discriminator, Field, Tag, model_validator

from loadgen.spec_types import Misplaced, Model, Rate, Seconds, Streams, as_list

_MOST_ARRIVALS = 10_000_000  # of one cell's schedule: 80 MB


class Arrivals(Model):
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


class Saturate(Model):
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


class Load(Model):
    """How it is asked: closed loops at each concurrency, open loops at each rate, and the bounds in time of a cell."""

    concurrency: (
        Annotated[
            Annotated[list[Streams], Field(min_length=1), BeforeValidator(as_list), Tag("streams")]
            | Annotated[Literal["saturate"], Tag("saturate")],
            Discriminator(_streams_or_saturate),
        ]
        | None
    ) = None
    saturate: Saturate = Saturate()
    rate: Annotated[list[Rate], Field(min_length=1), BeforeValidator(as_list)] | None = None
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
