"""What a client under test plays against the sink: so many streams at once, or arrivals at a rate."""

import json
from dataclasses import asdict, dataclass

MODEL = "default"


@dataclass(frozen=True, slots=True)
class Work:
    """Each request streams `chunks` chunks, `interval_us` apart, from `ttft_us` after it was read.

    `streams` requests are due at once, one on each connection; with `requests` above that, the next follows where one
    ended, until so many were sent. With `arrivals_per_s`, `streams` requests are due at Poisson's times.
    """

    streams: int
    chunks: int
    interval_us: int
    ttft_us: int = 500_000
    lock_step: bool = False
    prompt_bytes: int = 240
    arrivals_per_s: float = 0.0
    requests: int = 0

    @classmethod
    def at_rate(cls, chunks_per_s: int, streams: int = 1024, seconds: float = 2.0, **more: bool) -> "Work":
        """Streams that together give `chunks_per_s` for some `seconds`."""
        interval_us = round(streams * 1e6 / chunks_per_s)
        return cls(streams, max(2, round(seconds * 1e6 / interval_us)), interval_us, **more)

    @property
    def count(self) -> int:
        """Requests in all."""
        return max(self.streams, self.requests)

    @property
    def duration_s(self) -> float:
        """From the first request to the last chunk, if nobody is late."""
        arrivals_s = self.streams / self.arrivals_per_s if self.arrivals_per_s else 0.0
        rounds = -(-self.count // self.streams)
        return arrivals_s + rounds * (self.ttft_us + (self.chunks + 1) * self.interval_us) / 1e6

    def sink_settings(self) -> dict[str, int]:
        """For `loadgen.sink.truth.reset`."""
        return {
            "n": self.chunks,
            "iv": self.interval_us,
            "ttft": self.ttft_us,
            "sync": int(self.lock_step),
        }

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Work":
        return cls(**json.loads(text))


def body_parts(work: Work) -> tuple[bytes, bytes, bytes]:
    """The JSON of a request: before the salt, the rest of the prompt, after it."""
    head = b'{"model": "%s", "messages": [{"role": "user", "content": "' % MODEL.encode()
    text = b" and so on" * (work.prompt_bytes // 10)
    return head, text, b'"}], "stream": true, "stream_options": {"include_usage": true}}'
