"""One worker's part of one cell: closed-loop streams through warm-up, measurement and drain, all bounded in time.

Theory of operation. Each stream sends its next request the moment the last one ended, so that the requests in flight
stay at the target. A controller only watches counts and the clock: the warm-up ends when each stream has had its
share of requests; the measurement window when, from there, as many have ended as asked for and the least time is
over; then nothing new is sent and what is in flight may end, or is cut. Nothing is parsed before the last stream has
ended: stamps and bytes are kept, and decoding comes after the cell.
"""

import asyncio
import gc
import os
import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from loadgen.clock import monotonic_ns
from loadgen.endpoint import Endpoint, open_endpoint
from loadgen.errors import RunFailed
from loadgen.grading.problems import ProblemSet, problem_set
from loadgen.plan import Cell
from loadgen.prompts import VARIANTS, CountTokens, LoadPrompts, SaltKey, TextSource, fit_words, user_message
from loadgen.records import Phase, RequestRecord, phase_of
from loadgen.redact import without_key
from loadgen.schedule import Shard
from loadgen.spec import Limits, Load
from loadgen.tables import RESPONSES, RequestContext, requests_table
from loadgen.transport import Exchange, HttpTransport, TimeLimits, open_transport
from loadgen.wire import ChatOptions, chat_body, decode

_LAG_TICK_S = 0.01
_NS = 1_000_000_000
# A refusal comes back in a millisecond; without a pause a closed loop would turn it into a flood.
_REFUSED_PAUSE_S = 0.1
_REFUSED_BYTES = 600


@dataclass(frozen=True, slots=True)
class CellJob:
    """Everything one worker needs for its part of one execution. `api_key_env` names a variable of its environment."""

    cell: Cell
    repeat: int
    run_id: str
    seed: int
    shard: Shard
    worker: str
    endpoint: str
    api_key_env: str | None
    model: str
    server_id: str
    time_scale: float
    load: Load
    limits: Limits
    corpus: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CellRun:
    """What one worker brings back. The window is in monotonic ns of its host; `complete` says that the counts asked
    for were reached before the time was over.
    """

    requests: pa.Table
    responses: pa.Table
    window_start_ns: int
    window_end_ns: int
    complete: bool
    loop_lag_p99_ms: float | None
    cpu: float


@dataclass(slots=True)
class _Progress:
    ended: int = 0
    is_stopping: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def end_one(self) -> None:
        self.ended += 1
        self.changed.set()

    async def reach(self, ended: int, deadline_ns: int) -> bool:
        """Waits until `ended` requests have ended, or for the deadline; says whether they have."""
        while self.ended < ended:
            left_s = (deadline_ns - monotonic_ns()) / _NS
            if left_s <= 0:
                return False
            self.changed.clear()
            try:
                await asyncio.wait_for(self.changed.wait(), left_s)
            except TimeoutError:
                return False
        return True


@dataclass(slots=True)
class _Requests:
    """The requests of the cell as they are asked: body, message, problem, by index."""

    body: Callable[[int], bytes]
    message: Callable[[int], str]
    problem: Callable[[int], str | None]
    indexes: Iterator[int]
    target_prompt_tokens: int | None


class Client:
    """A load worker. Plain class: Ray's actor, and `--local`, are coats over it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._fits: dict[tuple[str, str, int, int], int] = {}

    async def run_cell(self, job: CellJob) -> CellRun:
        """Runs its part of the cell. Raises RunFailed when the prompts cannot be made; all else is in the rows."""
        api_key = os.environ.get(job.api_key_env) if job.api_key_env else None
        requests = await self._prepare(job, api_key)
        async with open_transport(job.endpoint, _time_limits(job.limits), api_key) as transport:
            cell = _CellLoop(job, requests, transport, api_key)
            return await cell.run()

    async def _prepare(self, job: CellJob, api_key: str | None) -> _Requests:
        options = ChatOptions(
            job.model, job.cell.max_tokens, job.cell.temperature, job.cell.ignore_eos, job.cell.thinking
        )
        if job.cell.kind == "eval":
            return _eval_requests(problem_set(job.cell.workload), options, job.shard)
        context = job.cell.context_tokens
        assert context is not None
        key = SaltKey(job.run_id, job.cell.cell_id, job.repeat, job.seed)
        source = TextSource(job.corpus, job.seed)
        async with open_endpoint(job.endpoint, api_key) as endpoint:
            texts = [
                await self._fitted(job, source, variant, context, endpoint) for variant in range(VARIANTS)
            ]
        prompts = LoadPrompts.make(texts, options, key)
        return _Requests(prompts.body, prompts.message, lambda _: None, job.shard.indexes(), context)

    async def _fitted(
        self, job: CellJob, source: TextSource, variant: int, context: int, endpoint: Endpoint
    ) -> str:
        key = (job.server_id, job.cell.prompt_source, context, variant)
        if key not in self._fits:
            count = await _counter(endpoint, job.model, SaltKey(job.run_id, "fit", 0, job.seed).salt(variant))
            self._fits[key] = await fit_words(lambda words: source.text(variant, words), context, count)
        return source.text(variant, self._fits[key])


class _CellLoop:
    def __init__(
        self, job: CellJob, requests: _Requests, transport: HttpTransport, api_key: str | None
    ) -> None:
        self._job = job
        self._api_key = api_key
        self._requests = requests
        self._transport = transport
        self._progress = _Progress()
        self._taken: list[tuple[RequestRecord, Exchange]] = []
        self._lags_s: list[float] = []

    async def run(self) -> CellRun:
        gc.collect()
        gc.freeze()
        gc.disable()
        cpu_start, wall_start = time.process_time(), time.perf_counter()
        lag_task = asyncio.create_task(self._sample_lag())
        try:
            start_ns, end_ns, complete = await self._phases()
        finally:
            lag_task.cancel()
            gc.enable()
            gc.unfreeze()
        cpu = (time.process_time() - cpu_start) / (time.perf_counter() - wall_start)
        return self._bring_back(start_ns, end_ns, complete=complete, cpu=cpu)

    async def _phases(self) -> tuple[int, int, bool]:
        streams = [asyncio.create_task(self._stream()) for _ in range(self._job.shard.streams)]
        try:
            start_ns, end_ns, complete = await (self._eval(streams) if self._is_eval else self._load())
            self._progress.is_stopping = True
            await asyncio.wait(streams, timeout=self._real_s(self._job.load.drain_max_s))
            self._transport.cut_all()
            await asyncio.gather(*streams)
        except BaseException:
            for stream in streams:
                stream.cancel()
            await asyncio.gather(*streams, return_exceptions=True)
            raise
        return start_ns, end_ns, complete

    async def _load(self) -> tuple[int, int, bool]:
        load, streams = self._job.load, self._job.shard.streams
        start_ns = monotonic_ns()
        warm = await self._progress.reach(
            load.warmup_requests_per_stream * streams, start_ns + self._real_ns(load.warmup_max_s)
        )
        window_ns = monotonic_ns()
        deadline_ns = window_ns + self._real_ns(load.measure_max_s)
        more = max(load.measure_requests_per_stream * streams, self._least_requests())
        wanted = self._progress.ended + more
        least_ns = min(window_ns + self._real_ns(load.measure_min_s), deadline_ns)
        complete = await self._progress.reach(wanted, deadline_ns)
        await asyncio.sleep(max(0, least_ns - monotonic_ns()) / _NS)
        return window_ns, monotonic_ns(), warm and complete

    def _least_requests(self) -> int:
        """This worker's part of the least requests of a window, rounded up."""
        shard = self._job.shard
        return -(-self._job.load.measure_min_requests // shard.of)

    async def _eval(self, streams: list["asyncio.Task[None]"]) -> tuple[int, int, bool]:
        start_ns = monotonic_ns()
        await asyncio.gather(*streams)
        return start_ns, monotonic_ns(), True

    async def _stream(self) -> None:
        while not self._progress.is_stopping:
            index = next(self._requests.indexes, None)
            if index is None:
                return
            exchange = await self._ask(index)
            if _is_refused(exchange):
                await asyncio.sleep(_REFUSED_PAUSE_S)

    async def _ask(self, index: int) -> Exchange:
        record = RequestRecord(
            index=index,
            phase=Phase.MEASURE,
            scheduled_ns=monotonic_ns(),
            max_tokens=self._job.cell.max_tokens,
            target_prompt_tokens=self._requests.target_prompt_tokens,
            problem=self._requests.problem(index),
        )
        exchange = await self._transport.post(self._requests.body(index))
        self._taken.append((record, exchange))
        self._progress.end_one()
        return exchange

    async def _sample_lag(self) -> None:
        while True:
            before_ns = monotonic_ns()
            await asyncio.sleep(_LAG_TICK_S)
            self._lags_s.append((monotonic_ns() - before_ns) / _NS - _LAG_TICK_S)

    def _bring_back(self, start_ns: int, end_ns: int, *, complete: bool, cpu: float) -> CellRun:
        job = self._job
        for record, exchange in self._taken:
            decode(exchange, record)
            record.error = record.error and without_key(record.error, self._api_key)
            record.phase = phase_of(record.sent_ns, start_ns, end_ns)
        records = sorted((record for record, _ in self._taken), key=lambda record: record.index)
        context = RequestContext(
            job.cell.cell_id, job.repeat, job.cell.platform, job.server_id, job.worker, job.time_scale
        )
        lag_ms = float(np.quantile(self._lags_s, 0.99) * 1000) if self._lags_s else None
        return CellRun(
            requests_table(records, context),
            self._responses(records),
            start_ns,
            end_ns,
            complete,
            lag_ms,
            cpu,
        )

    def _responses(self, records: list[RequestRecord]) -> pa.Table:
        kept = records if self._is_eval else records[: self._job.limits.responses_per_cell]
        return RESPONSES.from_rows(
            {
                "cell_id": self._job.cell.cell_id,
                "repeat": self._job.repeat,
                "request_index": record.index,
                "problem": record.problem,
                "prompt": self._requests.message(record.index),
                "reasoning": record.reasoning,
                "content": record.content,
                "finish_reason": record.finish_reason,
            }
            for record in kept
        )

    @property
    def _is_eval(self) -> bool:
        return self._job.cell.kind == "eval"

    def _real_s(self, server_s: float) -> float:
        return server_s / self._job.time_scale

    def _real_ns(self, server_s: float) -> int:
        return round(self._real_s(server_s) * _NS)


def _is_refused(exchange: Exchange) -> bool:
    few = len(exchange.blocks) <= 2 and sum(len(block) for _, block in exchange.blocks) < _REFUSED_BYTES
    return exchange.status != 200 or few


def _eval_requests(problems: ProblemSet, options: ChatOptions, shard: Shard) -> _Requests:
    asked = problems.problems
    return _Requests(
        body=lambda index: chat_body(options, asked[index].prompt),
        message=lambda index: asked[index].prompt,
        problem=lambda index: asked[index].name,
        indexes=iter(range(shard.number, len(asked), shard.of)),
        target_prompt_tokens=None,
    )


async def _counter(endpoint: Endpoint, model: str, salt: str) -> CountTokens:
    """A function that says how long a text is as a prompt: with salt, question and chat template."""

    async def by_usage(text: str) -> int:
        usage = (await endpoint.complete(user_message(salt, text), model, 1, 600)).get("usage")
        tokens = usage.get("prompt_tokens") if isinstance(usage, dict) else None
        if not isinstance(tokens, int):
            raise RunFailed(
                f"{endpoint.url}: it gives neither /tokenize nor usage, so no prompt can be made to length"
            )
        return tokens

    probe = await endpoint.count_tokens(user_message(salt, "a"), model)
    if probe is None:
        return by_usage
    template_tokens = await by_usage("a") - probe

    async def by_tokenizer(text: str) -> int:
        tokens = await endpoint.count_tokens(user_message(salt, text), model)
        return await by_usage(text) if tokens is None else tokens + template_tokens

    return by_tokenizer


def _time_limits(limits: Limits) -> TimeLimits:
    return TimeLimits(
        first_byte_ns=round(limits.first_byte_timeout_s * _NS),
        idle_ns=round(limits.idle_timeout_s * _NS),
        total_ns=round(limits.request_timeout_s * _NS),
    )


def niceness() -> int:
    """Niceness of this process; above 0 its stamps come late on a busy machine."""
    return os.getpriority(os.PRIO_PROCESS, 0)


def raise_open_files() -> int:
    """Raises this process's descriptor limit to its hard limit (one socket a stream), and says what it is now."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard
