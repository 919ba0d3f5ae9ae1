"""One worker's part of one execution of a cell: its loop from the first connection to the last answer, and its rows.

Theory of operation. A transport runs in the thread that calls `run`, and calls back when requests end and when timers
are due. The source (closed or open loop) decides what is sent next, the phases when the window opens and closes.
Nothing is parsed before the last request has ended: exchanges that are over wait, compressed, in the spool.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from loadgen.clock import monotonic_ns
from loadgen.decode.record import decode
from loadgen.job import CellJob, CellRun
from loadgen.load.closed import ClosedLoop
from loadgen.load.evidence import Collector, Gathered, Usage, worker_evidence
from loadgen.load.meeting import Meeting, Point
from loadgen.load.open import OpenLoop
from loadgen.load.phases import Phases, Stage, make_phases
from loadgen.load.place import this_place
from loadgen.load.source import Source
from loadgen.load.spool import Spool
from loadgen.questions import Questions
from loadgen.records import Phase, RequestRecord, phase_of
from loadgen.redact import without_key
from loadgen.spec import Limits
from loadgen.tables import REQUESTS as REQUESTS_TABLE
from loadgen.tables import RESPONSES, RequestContext, request_batches
from loadgen.transport.exchange import Exchange, TimeLimits
from loadgen.transport.pick import Transport, kind_of, make_transport

_NS = 1_000_000_000
_LAG_TICK_NS = 10_000_000
_OPENING_LOOK_NS = 2_000_000
_OPENING_MAX_NS = 20 * _NS


class Stopped(Exception):
    """The cell was given up from outside; nothing of it counts."""


class CellLoop:
    """Runs once. `run` blocks its thread; `give_up` may be called from any other."""

    def __init__(self, job: CellJob, questions: Questions, api_key: str | None) -> None:
        self._job = job
        self._questions = questions
        self._api_key = api_key
        self._spool = Spool()
        self._lags_ns: list[int] = []
        self._output_bytes = 0
        self._is_given_up = False
        self._phases: Phases | None = None
        self._usage: Usage | None = None
        self.meeting = Meeting(is_alone=not job.meets)
        urls = [target.endpoint for target in job.targets]
        self._transport: Transport = make_transport(
            job.transport, urls, time_limits(job.limits), self._ended, api_key=api_key
        )
        make = OpenLoop if job.cell.is_open_loop else ClosedLoop
        self._source: Source = make(job, questions, self._transport)

    def run(self) -> CellRun:
        """Sends, measures and decodes. What a request meets is in the rows. Raises Stopped, and the harness's faults."""
        collector = Collector()
        try:
            with collector.off():
                self._transport.wake(self._open)
                self._transport.run()
            if self._is_given_up or self._usage is None:
                raise Stopped
            self._usage.stop()
            return self._bring_back(self._usage, collector.pauses_ns)
        finally:
            self._transport.close()
            self._spool.close()

    def give_up(self) -> None:
        """Ends the loop as soon as may be."""
        self._is_given_up = True
        self._transport.wake(self._transport.stop)

    def pass_at(self, point: Point, at_ns: int) -> None:
        """Passes a point of the meeting at `at_ns`; may be called from any thread."""
        self.meeting.pass_at(point, at_ns, self._transport)

    # -- the loop --------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        weights = self._job.weights
        for number, weight in enumerate(weights):
            self._transport.open(-(-self._source.connections * weight // sum(weights)), number)
        self._begin_when_open(monotonic_ns() + _OPENING_MAX_NS)

    def _begin_when_open(self, deadline_ns: int) -> None:
        now_ns = monotonic_ns()
        if not self._transport.is_open() and now_ns < deadline_ns:
            self._transport.at(now_ns + _OPENING_LOOK_NS, lambda: self._begin_when_open(deadline_ns))
            return
        self.meeting.reach(Point.READY, self._begin)

    def _begin(self, at_ns: int) -> None:
        self._usage = Usage()
        self._phases = make_phases(self._job, at_ns, self._source.settled_ns)
        self._source.start(at_ns)
        self._look_at_lag(at_ns + _LAG_TICK_NS)
        if not self._is_eval:
            self._transport.at(self._phases.warmup_deadline_ns, self._advance)
            self._tick(at_ns + self._phases.tick_ns)

    def _ended(self, exchange: Exchange) -> None:
        phases = self._begun
        phases.ended += 1
        self._output_bytes += len(exchange.body)
        self._source.ended(exchange)
        self._transport.later(lambda: self._spool.add(exchange))
        if self._is_eval:
            self._end_if_exhausted()
        elif phases.stage is Stage.DRAIN:
            self._end_if_drained()
        else:
            self._advance()

    def _advance(self) -> None:
        phases = self._begun
        if phases.is_over(monotonic_ns(), is_exhausted=self._source.is_exhausted):
            if phases.stage is Stage.WARMUP:
                self.meeting.reach(Point.WARM, self._open_window)
            else:
                self.meeting.reach(Point.COUNTED, self._close_window)

    def _open_window(self, at_ns: int) -> None:
        phases = self._begun
        phases.open_window(at_ns)
        self._transport.at(phases.least_end_ns, self._advance)
        self._transport.at(phases.deadline_ns, self._advance)

    def _close_window(self, at_ns: int) -> None:
        phases = self._begun
        phases.close_window(at_ns)
        self._source.stop()
        self._transport.at(phases.drain_deadline_ns, self._transport.cut_all)
        self._end_if_drained()

    def _end_if_drained(self) -> None:
        if not self._transport.in_flight:
            self._transport.later(self._transport.stop)

    def _end_if_exhausted(self) -> None:
        if not self._source.is_exhausted or self._transport.in_flight:
            return
        if not self._is_eval:
            self._advance()
        elif not self._begun.is_complete:
            self._close_eval()

    def _close_eval(self) -> None:
        phases = self._begun
        phases.window_start_ns, phases.window_end_ns = phases.start_ns, monotonic_ns()
        phases.is_complete = True
        self._transport.later(self._transport.stop)

    def _tick(self, due_ns: int) -> None:
        phases = self._begun
        if phases.stage is Stage.WARMUP:
            phases.tick(self._output_bytes + self._transport.body_bytes())
            self._advance()
            next_ns = due_ns + phases.tick_ns
            self._transport.at(next_ns, lambda: self._tick(next_ns))

    def _look_at_lag(self, due_ns: int) -> None:
        now_ns = monotonic_ns()
        self._lags_ns.append(max(0, now_ns - due_ns))
        # streams may end without a request: there was nothing to ask, or the last one was refused
        self._end_if_exhausted()
        next_ns = now_ns + _LAG_TICK_NS
        self._transport.at(next_ns, lambda: self._look_at_lag(next_ns))

    @property
    def _begun(self) -> Phases:
        assert self._phases is not None
        return self._phases

    # -- afterwards ------------------------------------------------------------------------------------------------

    def _bring_back(self, usage: Usage, pauses_ns: list[int]) -> CellRun:
        job, phases = self._job, self._begun
        context = RequestContext(
            cell_id=job.cell.cell_id,
            repeat=job.repeat,
            platform=job.cell.platform,
            server_id=job.server_id,
            worker=job.worker,
            time_scale=job.time_scale,
            simulated=job.simulated,
        )
        start_ns = monotonic_ns()
        gathered, kept = Gathered(unsent=self._source.unsent), [RESPONSES.from_rows([])]
        batches = list(request_batches(self._records(gathered, kept), context))
        decode_s = (monotonic_ns() - start_ns) / _NS
        evidence = worker_evidence(gathered, usage, pauses_ns, self._lags_ns, decode_s)
        return CellRun(
            requests=pa.Table.from_batches(batches, schema=REQUESTS_TABLE.schema),
            responses=pa.concat_tables(kept),
            window_start_ns=phases.window_start_ns,
            window_end_ns=phases.window_end_ns,
            complete=phases.is_complete,
            evidence=evidence,
            worker=job.worker,
            streams=job.shard.streams,
            place=this_place(is_pinned=job.core is not None),
            transport=kind_of(self._transport),
            is_stationary=phases.is_stationary,
            prompt_length_source=self._questions.length_source,
        )

    def _records(self, gathered: Gathered, kept: list[pa.Table]) -> Iterator[RequestRecord]:
        for exchange in self._spool:
            record = self._record(exchange)
            gathered.take(record)
            if self._is_eval or len(kept) <= self._job.limits.responses_per_cell:
                kept.append(RESPONSES.from_rows([self._response(record)]))
            yield record

    def _record(self, exchange: Exchange) -> RequestRecord:
        questions, phases, index = self._questions, self._begun, exchange.index
        record = RequestRecord(
            index=index,
            phase=Phase.MEASURE,
            scheduled_ns=exchange.scheduled_ns,
            max_tokens=questions.max_tokens(index),
            target_prompt_tokens=questions.target_prompt_tokens(index),
            problem=questions.problem(index),
        )
        decode(exchange, record, self._transport.offsets, self._job.end_marks)
        record.error = record.error and without_key(record.error, self._api_key)
        record.phase = phase_of(record.sent_ns, phases.window_start_ns, phases.window_end_ns)
        return record

    def _response(self, record: RequestRecord) -> dict[str, Any]:
        return {
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

    @property
    def _is_eval(self) -> bool:
        return self._job.cell.kind == "eval"


def time_limits(limits: Limits) -> TimeLimits:
    """The bounds of a request in ns."""
    return TimeLimits(
        first_byte_ns=round(limits.first_byte_timeout_s * _NS),
        idle_ns=round(limits.idle_timeout_s * _NS),
        total_ns=round(limits.request_timeout_s * _NS),
        connect_ns=round(limits.connect_timeout_s * _NS),
    )
