"""The closed-loop streams of one worker's part of a cell: warm-up, measurement and drain, all bounded in time.

Theory of operation. Each stream sends its next request the moment the last one ended, so that the requests in flight
stay at the target. A controller only watches counts and the clock: the warm-up ends when each stream has had its
share of requests; the measurement window when, from there, as many have ended as asked for and the least time is
over; then nothing new is sent and what is in flight may end, or is cut. Nothing is parsed before the last stream has
ended: stamps and bytes are kept, and decoding comes after the cell.
"""

import asyncio
import gc
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from loadgen.clock import cpu_ns, monotonic_ns
from loadgen.job import CellJob, CellRun
from loadgen.questions import Questions
from loadgen.records import Phase, RequestRecord, phase_of
from loadgen.redact import without_key
from loadgen.tables import RESPONSES, RequestContext, requests_table
from loadgen.transport.exchange import READ, Exchange
from loadgen.transport.fallback import HttpTransport
from loadgen.wire import decode

_LAG_TICK_S = 0.01
_NS = 1_000_000_000
# A refusal comes back in a millisecond; without a pause a closed loop would turn it into a flood.
_REFUSED_PAUSE_S = 0.1
_REFUSED_BYTES = 600


@dataclass(slots=True)
class _Progress:
    ended: int = 0
    is_stopping: bool = False
    is_broken: bool = False  # a stream raised: a fault of ours, which must not wait for the cell's end
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def end_one(self) -> None:
        self.ended += 1
        self.changed.set()

    def fail(self) -> None:
        self.is_broken = True
        self.changed.set()

    async def reach(self, ended: int, deadline_ns: int) -> bool:
        """Waits until `ended` requests have ended, or for the deadline; says whether they have."""
        while self.ended < ended:
            if self.is_broken:
                return False
            left_s = (deadline_ns - monotonic_ns()) / _NS
            if left_s <= 0:
                return False
            self.changed.clear()
            try:
                await asyncio.wait_for(self.changed.wait(), left_s)
            except TimeoutError:
                return False
        return True


class CellLoop:
    """One worker's part of one execution, from its first request to its rows."""

    def __init__(
        self, job: CellJob, questions: Questions, transport: HttpTransport, api_key: str | None
    ) -> None:
        self._job = job
        self._api_key = api_key
        self._questions = questions
        self._transport = transport
        self._progress = _Progress()
        self._taken: list[tuple[RequestRecord, Exchange]] = []
        self._lags_s: list[float] = []

    async def run(self) -> CellRun:
        """Sends, measures and decodes. What a request meets is in the rows; an exception is the harness's own."""
        gc.collect()
        gc.freeze()
        gc.disable()
        cpu_start_ns, wall_start_ns = cpu_ns(), monotonic_ns()
        lag_task = asyncio.create_task(self._sample_lag())
        try:
            start_ns, end_ns, complete = await self._phases()
        finally:
            lag_task.cancel()
            gc.enable()
            gc.unfreeze()
        cpu = (cpu_ns() - cpu_start_ns) / (monotonic_ns() - wall_start_ns)
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
        try:
            await self._ask_on_and_on()
        except Exception:
            self._progress.fail()
            raise

    async def _ask_on_and_on(self) -> None:
        while not self._progress.is_stopping:
            index = next(self._questions.indexes, None)
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
            target_prompt_tokens=self._questions.target_prompt_tokens,
            problem=self._questions.problem(index),
        )
        exchange = await self._transport.post(self._questions.body(index))
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
            cell_id=job.cell.cell_id,
            repeat=job.repeat,
            platform=job.cell.platform,
            server_id=job.server_id,
            worker=job.worker,
            time_scale=job.time_scale,
            simulated=job.simulated,
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
                "simulated": self._job.simulated,
                "problem": record.problem,
                "prompt": self._questions.message(record.index),
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
    few = len(exchange.reads) <= 2 * READ.size and len(exchange.body) < _REFUSED_BYTES
    return exchange.status != 200 or few
