"""How late the simulator itself was, in real milliseconds: the part of every latency that is not its model's."""

import math

_STEPS = 20  # classes for each factor of e: about 5 % wide


class Lag:
    """A histogram of lateness, one count a chunk."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._total = 0
        self._max_ms = 0.0

    def record(self, late_ms: float, chunks: int) -> None:
        """`chunks` chunks were sent `late_ms` after they were due."""
        if chunks <= 0:
            return
        late_ms = max(0.0, late_ms)
        key = int(math.log1p(late_ms * 1000) * _STEPS)
        self._counts[key] = self._counts.get(key, 0) + chunks
        self._total += chunks
        self._max_ms = max(self._max_ms, late_ms)

    def reset(self) -> None:
        """Forgets all."""
        self._counts.clear()
        self._total, self._max_ms = 0, 0.0

    @property
    def max_ms(self) -> float:
        """The largest lateness."""
        return self._max_ms

    @property
    def p99_ms(self) -> float:
        """The 99th percentile, as the upper edge of its class; 0 if nothing was sent."""
        left = self._total * 0.01
        for key in sorted(self._counts, reverse=True):
            left -= self._counts[key]
            if left < 0:
                return min(self._max_ms, math.expm1((key + 1) / _STEPS) / 1000)
        return 0.0
