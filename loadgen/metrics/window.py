"""The counted span of a cell."""

from dataclasses import dataclass

_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Window:
    """From `start_ns` to `end_ns`, both monotonic and both inside; `time_scale` turns its length into server's time."""

    start_ns: int
    end_ns: int
    time_scale: float

    @property
    def length_ns(self) -> int:
        """Its length in real time."""
        return self.end_ns - self.start_ns

    @property
    def seconds(self) -> float:
        """Its length in the server's time."""
        return self.length_ns / _NS * self.time_scale
