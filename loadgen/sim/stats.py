"""The server's own counters: totals that move when a request ends, gauges that move at the log interval."""

from dataclasses import dataclass, field

from loadgen.sim.scheduler import Result, Scheduler, Sequence


@dataclass(slots=True)
class Gauges:
    """What the last log line saw. They go stale between lines and survive a flush, as in SGLang."""

    running: int = 0
    queued: int = 0
    used_tokens: int = 0
    token_usage: float = 0.0
    gen_throughput: float = 0.0
    cache_hit_rate: float = 0.0
    accept_length: float = 0.0
    accept_rate: float = 0.0


@dataclass(slots=True)
class Totals:
    """Counters of ended requests, by streaming or not; times in simulated seconds."""

    requests: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    ttft_s: float = 0.0
    e2e_s: float = 0.0


@dataclass(slots=True)
class Stats:
    """All counters of one server. `interval` is --decode-log-interval, `proposed` drafts of a verify step."""

    interval: int
    proposed: int
    gauges: Gauges = field(default_factory=Gauges)
    totals: dict[bool, Totals] = field(default_factory=lambda: {False: Totals(), True: Totals()})
    aborted: int = 0
    cached_tokens: int = 0
    verify_calls: int = 0
    prefill_computed: int = 0
    prefill_cached: int = 0
    decoded: int = 0
    _steps: int = 0
    _window_tokens: int = 0
    _window_calls: int = 0
    _window_start_s: float = 0.0
    _closed_tokens: int = 0
    _closed_calls: int = 0

    @property
    def accept_length(self) -> float | None:
        """Tokens per verify step over the closed log windows since start or flush; None before the first."""
        return self._closed_tokens / self._closed_calls if self._closed_calls and self.proposed else None

    def flushed(self) -> None:
        """A flush forgets the windows; gauges and totals stay."""
        self._steps = self._window_tokens = self._window_calls = self._closed_tokens = self._closed_calls = 0

    def ended(self, seq: Sequence, *, streaming: bool) -> None:
        """Counts a request that has come to its end."""
        self.aborted += seq.end == "abort"
        total = self.totals[streaming]
        total.requests += 1
        total.prompt_tokens += len(seq.prompt_ids)
        total.output_tokens += seq.generated
        total.e2e_s += (seq.ended_s or seq.arrival_s) - seq.arrival_s
        if seq.first_token_s is not None:
            total.ttft_s += seq.first_token_s - seq.arrival_s
        self.cached_tokens += seq.cached_tokens
        self.verify_calls += seq.verify_steps

    def passed(self, result: Result, scheduler: Scheduler, now_s: float) -> str | None:
        """Counts a pass; the log line that is due, if one is."""
        if result.prefill_tokens:
            return self._prefilled(result, scheduler)
        self.decoded += result.decode_tokens
        self._steps += 1
        self._window_tokens += result.decode_tokens
        self._window_calls += result.verify_calls
        if self._steps < self.interval:
            return None
        return self._close_window(scheduler, now_s)

    def look(self, scheduler: Scheduler) -> None:
        """Brings the gauges of the batch up to date."""
        gauges = self.gauges
        gauges.running = len(scheduler.running)
        gauges.queued = len(scheduler.waiting)
        gauges.used_tokens = scheduler.used_tokens
        gauges.token_usage = min(1.0, scheduler.used_tokens / scheduler.limits.kv_tokens)

    def _prefilled(self, result: Result, scheduler: Scheduler) -> str:
        cached = sum(seq.cached_tokens for seq in result.progressed)
        self.prefill_computed += result.prefill_tokens
        self.prefill_cached += cached
        self.look(scheduler)
        self.gauges.cache_hit_rate = cached / (cached + result.prefill_tokens)
        return (
            f"Prefill batch, #new-seq: {len(result.progressed)}, #new-token: {result.prefill_tokens}, "
            f"#cached-token: {cached}, token usage: {self.gauges.token_usage:.2f}, "
            f"#running-req: {self.gauges.running}, #queue-req: {self.gauges.queued}"
        )

    def _close_window(self, scheduler: Scheduler, now_s: float) -> str:
        self.look(scheduler)
        gauges = self.gauges
        elapsed_s = now_s - self._window_start_s
        gauges.gen_throughput = self._window_tokens / elapsed_s if elapsed_s > 0 else 0.0
        accepts = ""
        if self.proposed:
            gauges.accept_length = self._window_tokens / self._window_calls
            gauges.accept_rate = (gauges.accept_length - 1) / self.proposed
            self._closed_tokens += self._window_tokens
            self._closed_calls += self._window_calls
            accepts = f"accept len: {gauges.accept_length:.2f}, accept rate: {gauges.accept_rate:.2f}, "
        self._steps = self._window_tokens = self._window_calls = 0
        self._window_start_s = now_s
        return (
            f"Decode batch, #running-req: {gauges.running}, #token: {gauges.used_tokens}, "
            f"token usage: {gauges.token_usage:.2f}, {accepts}cuda graph: True, "
            f"gen throughput (token/s): {gauges.gen_throughput:.2f}, #queue-req: {gauges.queued}"
        )
