"""What the events of one stream said, before anything is judged."""

from dataclasses import dataclass, field
from itertools import compress
from typing import Any

from loadgen.decode.known_shape import Run, unescape
from loadgen.received_json import count, ratio, read_event, whole_text
from loadgen.records import AcceptSource, ChunkKind

_BUSY_CODES = ("429", "503")


@dataclass(slots=True)
class StreamFacts:
    """What the events said. `chunk_events`, `chunk_kinds` and `chunk_counts` are parallel: number of the event, kind,
    and running token count. `usage` holds counts by the names of a record; `error` the first thing that went wrong.
    `reasoning` and `answer` hold pieces until `join_texts`, those of runs as they stand in the JSON.
    """

    chunk_events: list[int] = field(default_factory=list)
    chunk_kinds: list[ChunkKind] = field(default_factory=list)
    chunk_counts: list[int | None] = field(default_factory=list)
    reasoning: list[str | bytes] = field(default_factory=list)
    answer: list[str | bytes] = field(default_factory=list)
    reasoning_text: str = ""
    answer_text: str = ""
    usage: dict[str, int | None] = field(default_factory=dict)
    first_event: int | None = None
    choice_events: int = 0
    first_choice: int | None = None
    last_choice: int | None = None
    finish_reason: str | None = None
    is_done: bool = False
    is_malformed: bool = False
    has_error: bool = False
    is_refusal: bool = False
    error: str | None = None
    verify_steps: int | None = None
    accept_length: float | None = None
    accept_source: AcceptSource | None = None
    _running_usage: Any = None  # the last one on a chunk; as bytes, the whole event that it is in

    @property
    def is_aborted(self) -> bool:
        return self.finish_reason == "abort"

    def take_garbage(self, data: bytes) -> None:
        """An event that is no JSON object."""
        self.is_malformed = True
        self.error = self.error or f"not a JSON object: {data[:100]!r}"

    def see_event(self, event: int) -> None:
        """An event that is a JSON object."""
        if self.first_event is None:
            self.first_event = event

    def see_choice(self, event: int) -> None:
        self.choice_events += 1
        self.first_choice = event if self.first_choice is None else self.first_choice
        self.last_choice = event

    def finish(self, reason: str) -> None:
        self.finish_reason = reason

    def take_server_error(self, code: Any, words: str) -> None:
        """An error object, or an abort, in the stream."""
        self.has_error = True
        self.is_refusal = isinstance(code, int | str) and str(code) in _BUSY_CODES
        self.error = words

    def take_usage(self, usage: dict[str, Any], *, is_running: bool) -> None:
        """A usage object. Of those that ride on chunks, only the first and the last are looked through."""
        if is_running and self.usage:
            self._running_usage = usage
            return
        self.close()
        self._read_usage(usage)

    def close(self) -> None:
        """The end of the stream, so far."""
        usage, self._running_usage = self._running_usage, None
        if isinstance(usage, bytes):
            usage = read_event(usage)["usage"]
        if usage is not None:
            self._read_usage(usage)

    def _read_usage(self, usage: dict[str, Any]) -> None:
        known = self.usage
        prompt_details, details = usage.get("prompt_tokens_details"), usage.get("completion_tokens_details")
        for name, holder, key in (
            ("prompt_tokens", usage, "prompt_tokens"),
            ("output_tokens", usage, "completion_tokens"),
            ("cached_tokens", usage, "cached_tokens"),
            ("cached_tokens", prompt_details, "cached_tokens"),
            ("reasoning_tokens", usage, "reasoning_tokens"),
            ("reasoning_tokens", details, "reasoning_tokens"),
        ):
            known[name] = count(holder, key, known.get(name))

    def take_acceptance(self, details: dict[str, Any], source: AcceptSource) -> None:
        self.verify_steps = count(details, "spec_verify_ct", None)
        self.accept_length = ratio(details.get("spec_accept_length"))
        if self.verify_steps is not None or self.accept_length is not None:
            self.accept_source = source

    def add_chunk(self, event: int, kind: ChunkKind, usage: Any) -> None:
        """A chunk, with the usage that it carries."""
        self.chunk_events.append(event)
        self.chunk_kinds.append(kind)
        self.chunk_counts.append(count(usage, "completion_tokens", None))

    def add_run(self, end: int, run: Run, last: bytes) -> None:
        """Chunks that were read without parsing; they end before event `end`, and `last` is the last one's event."""
        size = len(run.texts)
        self.choice_events += size
        self.last_choice = end - 1
        self.chunk_events.extend(range(end - size, end))
        self.chunk_kinds.extend([run.kind] * size)
        self.chunk_counts.extend(run.counts or [None] * size)
        (self.reasoning if run.kind is ChunkKind.REASONING else self.answer).extend(run.texts)
        if run.counts:
            self._running_usage = last

    def join_texts(self) -> bool:
        """Joins the texts into two strings; False if one that was not parsed is none."""
        try:
            self.reasoning_text, self.answer_text = _joined(self.reasoning), _joined(self.answer)
        except ValueError:
            return False
        self.reasoning.clear()
        self.answer.clear()
        return True

    def keep_chunks(self, is_kept: list[bool]) -> None:
        """Drops the chunks that turned out to be none."""
        self.chunk_events = list(compress(self.chunk_events, is_kept))
        self.chunk_kinds = list(compress(self.chunk_kinds, is_kept))
        self.chunk_counts = list(compress(self.chunk_counts, is_kept))


def _joined(texts: list[str | bytes]) -> str:
    strings = iter(unescape([text for text in texts if isinstance(text, bytes)]))
    return whole_text("".join(next(strings) if isinstance(text, bytes) else text for text in texts))
