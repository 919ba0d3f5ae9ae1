"""Continuous batching in simulated time: who waits, who is prefilled, who decodes, and what each step brings.

Pure: the caller says when (`begin(at_s)` gives the end of the next pass, `complete()` its result). As in SGLang,
admission is first come first served up to the running limit and the KV capacity, and a prefill pass goes before
decoding, so long prompts delay everybody. Room for the output is reserved at admission (at most 4096 tokens of
it); a longer output may overcommit the cache, for nothing is ever retracted here.
"""

import random
from collections import deque
from collections.abc import Sequence as Ids
from dataclasses import dataclass, field
from typing import Any

from loadgen.sim import timing
from loadgen.sim.prefix_cache import PrefixCache
from loadgen.sim.timing import Profile, Speculation

_RESERVED_OUTPUT_TOKENS = 4096
CHUNKED_PREFILL_TOKENS = 8192


@dataclass(frozen=True, slots=True)
class Limits:
    """What the server may hold at once. `max_queued` None: no limit on waiting requests."""

    max_running: int
    kv_tokens: int
    max_queued: int | None = None
    radix_cache: bool = True


@dataclass(slots=True, eq=False)
class Sequence:
    """One request in the batch. Times are simulated seconds; `total_tokens` is where its output ends.

    `owner` belongs to the caller. `end` is None while it lives, then "done" or "abort".
    """

    rid: str
    prompt_ids: Ids[int]
    output_ids: Ids[int]
    total_tokens: int
    arrival_s: float
    seed: int
    owner: Any = None
    generated: int = 0
    cached_tokens: int = 0
    uncomputed: int = 0
    verify_steps: int = 0
    accepts: list[int] = field(default_factory=list)  # verify steps by number of accepted drafts
    table: tuple[float, ...] = ()
    rng: random.Random | None = None
    admitted_s: float | None = None
    first_token_s: float | None = None
    ended_s: float | None = None
    end: str | None = None

    @property
    def reserved(self) -> int:
        """Tokens of KV cache kept free for its output."""
        return min(self.total_tokens, _RESERVED_OUTPUT_TOKENS)

    @property
    def correct_drafts(self) -> int:
        """Draft tokens accepted so far."""
        return sum(count * steps for count, steps in enumerate(self.accepts))


@dataclass(frozen=True, slots=True)
class Pass:
    """A pass in flight: a prefill of some sequences' chunks, or (`chunks` empty) a decode step of all running."""

    started_s: float
    due_s: float
    chunks: tuple[tuple[Sequence, int], ...]


@dataclass(frozen=True, slots=True)
class Result:
    """What a pass brought: the sequences that have new tokens, and for the log its kind and sizes."""

    progressed: list[Sequence]
    finished: list[Sequence]
    prefill_tokens: int
    decode_tokens: int
    verify_calls: int


class Scheduler:
    """The batch of one server."""

    def __init__(self, profile: Profile, speculation: Speculation | None, limits: Limits) -> None:
        self.profile = profile
        self.speculation = speculation
        self.limits = limits
        self.cache = PrefixCache()
        self.waiting: deque[Sequence] = deque()
        self.prefilling: deque[Sequence] = deque()
        self.running: dict[str, Sequence] = {}
        self.context_tokens = 0  # of the running, prompt and output
        self._reserved = 0  # for the output of running and prefilling
        self._prompts = 0  # of running and prefilling
        self._pass: Pass | None = None

    @property
    def live(self) -> int:
        """Requests accepted and not ended."""
        return len(self.waiting) + len(self.prefilling) + len(self.running)

    @property
    def used_tokens(self) -> int:
        """KV cache in use by requests."""
        return self.context_tokens + sum(len(seq.prompt_ids) - seq.uncomputed for seq in self.prefilling)

    def submit(self, seq: Sequence) -> bool:
        """Queues a request; False when the queue is full."""
        if self.limits.max_queued is not None and len(self.waiting) >= self.limits.max_queued:
            return False
        self.waiting.append(seq)
        return True

    def abort(self, seq: Sequence, at_s: float) -> None:
        """Takes a live request out, at once and from wherever it is."""
        if seq.end is not None:
            return
        if seq.admitted_s is None:
            self.waiting.remove(seq)
        else:
            self._leave(seq)
        seq.end, seq.ended_s = "abort", at_s

    def begin(self, at_s: float) -> float | None:
        """Starts the pass that follows at `at_s` (later if nothing has arrived yet); its end, or None if idle."""
        if not self.running and not self.prefilling and self.waiting:
            at_s = max(at_s, self.waiting[0].arrival_s)
        self._admit(at_s)
        if self.prefilling:
            self._pass = self._prefill(at_s)
        elif self.running:
            batch = len(self.running)
            step = timing.step_s(self.profile, self.speculation, batch, self.context_tokens / batch)
            self._pass = Pass(at_s, at_s + step, ())
        else:
            self._pass = None
        return self._pass.due_s if self._pass else None

    def complete(self) -> Result:
        """Ends the pass that `begin` started."""
        done = self._pass
        if done is None:
            raise RuntimeError("no pass in flight")
        self._pass = None
        return self._complete_prefill(done) if done.chunks else self._complete_decode(done)

    def flush(self) -> bool:
        """Empties the prefix cache; False (and nothing done) while requests are live."""
        if self.live:
            return False
        self.cache.clear()
        return True

    def _admit(self, at_s: float) -> None:
        while self.waiting and len(self.running) + len(self.prefilling) < self.limits.max_running:
            seq = self.waiting[0]
            need = len(seq.prompt_ids) + seq.reserved
            held = self._prompts + self._reserved
            if seq.arrival_s > at_s or (held and held + need > self.limits.kv_tokens):
                return
            self.waiting.popleft()
            seq.admitted_s = at_s
            seq.cached_tokens = self.cache.match(seq.prompt_ids) if self.limits.radix_cache else 0
            seq.uncomputed = len(seq.prompt_ids) - seq.cached_tokens
            self._prompts += len(seq.prompt_ids)
            self._reserved += seq.reserved
            self.prefilling.append(seq)

    def _prefill(self, at_s: float) -> Pass:
        room = CHUNKED_PREFILL_TOKENS
        chunks = []
        for seq in self.prefilling:
            if room <= 0:
                break
            take = min(room, seq.uncomputed)
            room -= take
            chunks.append((seq, take))
        tokens = CHUNKED_PREFILL_TOKENS - room
        return Pass(at_s, at_s + timing.prefill_s(self.profile, tokens), tuple(chunks))

    def _complete_prefill(self, done: Pass) -> Result:
        progressed = []
        for seq, tokens in done.chunks:
            if seq.end is not None:
                continue
            seq.uncomputed -= tokens
            if seq.uncomputed == 0:
                self.prefilling.remove(seq)
                self._start_decoding(seq, done.due_s)
                progressed.append(seq)
        finished = [seq for seq in progressed if seq.generated >= seq.total_tokens]
        self._finish(finished, done.due_s)
        return Result(progressed, finished, sum(tokens for _, tokens in done.chunks), 0, 0)

    def _start_decoding(self, seq: Sequence, now_s: float) -> None:
        if self.limits.radix_cache:
            self.cache.insert(seq.prompt_ids, self.limits.kv_tokens - self._reserved)
        seq.generated = 1
        seq.first_token_s = now_s
        if self.speculation is not None:
            seq.rng = random.Random(seq.seed)
            seq.table = timing.accept_table(self.speculation, (len(seq.prompt_ids) + 128) // 256)
            seq.accepts = [0] * len(seq.table)
        self.running[seq.rid] = seq
        self.context_tokens += len(seq.prompt_ids) + 1

    def _complete_decode(self, done: Pass) -> Result:
        progressed = list(self.running.values())
        finished = []
        tokens = 0
        for seq in progressed:
            new = min(self._step(seq), seq.total_tokens - seq.generated)
            if seq.accepts:
                seq.accepts[new - 1] += 1
                seq.verify_steps += 1
            seq.generated += new
            tokens += new
            if seq.generated >= seq.total_tokens:
                finished.append(seq)
        self.context_tokens += tokens
        self._finish(finished, done.due_s)
        return Result(progressed, finished, 0, tokens, len(progressed))

    def _step(self, seq: Sequence) -> int:
        return 1 + timing.accepted(seq.table, seq.rng.random()) if seq.rng is not None else 1

    def _finish(self, finished: list[Sequence], at_s: float) -> None:
        for seq in finished:
            seq.end, seq.ended_s = "done", at_s
            self._leave(seq)
            if self.limits.radix_cache:
                whole = [*seq.prompt_ids, *seq.output_ids[: seq.generated]]
                self.cache.insert(whole, self.limits.kv_tokens - self._reserved)

    def _leave(self, seq: Sequence) -> None:
        self._prompts -= len(seq.prompt_ids)
        self._reserved -= seq.reserved
        if self.running.pop(seq.rid, None) is not None:
            self.context_tokens -= len(seq.prompt_ids) + seq.generated
        else:
            self.prefilling.remove(seq)
