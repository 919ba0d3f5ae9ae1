"""One look at one server, without a sweep: `loadgen eval` and `loadgen probe`."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cluster.local import LocalClients, LocalGraders
from cluster.proof import simulation
from cluster.roles import WorkerLost
from cluster.screen import harmless
from loadgen.chat_request import ChatOptions, chat_body
from loadgen.decode.record import decode, events_of
from loadgen.endpoint import open_endpoint
from loadgen.errors import BadInput, RunFailed
from loadgen.grading.extract import Answer, extract
from loadgen.grading.problems import Problem, ProblemSet, problem_set
from loadgen.grading.sandbox import Limits as ProgramLimits
from loadgen.job import CellJob
from loadgen.keys import key_from
from loadgen.plan import Cell
from loadgen.prompts.sources import Source
from loadgen.received_json import read_json
from loadgen.records import Phase, RequestRecord
from loadgen.schedule import Shard
from loadgen.spec import Limits, Load, check_endpoint
from loadgen.transport.exchange import READ, Exchange, TimeLimits
from loadgen.transport.pick import exchange_once

_SHOWN_EVENTS = 6
_SHOWN_CHARS = 160
_LONG_NS = 3_600_000_000_000
_EVAL_S = 86_400.0


@dataclass(frozen=True, slots=True)
class Asked:
    """The server to look at. Raises BadInput for a URL that is none."""

    url: str
    model: str | None
    api_key_env: str | None

    def __post_init__(self) -> None:
        try:
            check_endpoint(self.url)
        except ValueError as error:
            raise BadInput(f"{self.url}: {error}") from error
        if self.api_key_env and not self.api_key:
            raise BadInput(f"--api-key-env {self.api_key_env}: the variable is not set; export it")

    @property
    def api_key(self) -> str | None:
        return key_from(self.api_key_env)


@dataclass(frozen=True, slots=True)
class _Server:
    model: str
    time_scale: float


async def evaluate(asked: Asked, problems: str, max_tokens: int, concurrency: int) -> list[dict[str, Any]]:
    """Rows of `grades`, one a problem. Raises BadInput for an unknown set, RunFailed for a server that cannot be asked."""
    asked_set = _problems(problems)
    server = await _look(asked)
    cell = Cell("eval", "eval", "server", "as_found", asked_set.name, None, max_tokens, 0.0, concurrency)
    job = CellJob(
        cell=cell,
        repeat=0,
        run_id="eval",
        seed=0,
        shard=Shard(0, 1, concurrency),
        worker="here",
        endpoint=asked.url.rstrip("/"),
        api_key_env=asked.api_key_env,
        model=server.model,
        server_id="as_found",
        time_scale=server.time_scale,
        load=Load(concurrency=[concurrency]),
        limits=Limits(),
        corpus=Source(),
    )
    try:
        (run,) = await LocalClients().run("server", [job], _EVAL_S)
    except WorkerLost as error:
        raise RunFailed(f"{asked.url}: {error}; ask more at once with --concurrency") from error
    return await LocalGraders().grade(asked_set.name, run.responses, run.requests, ProgramLimits())


async def probe(asked: Asked, problem_name: str, max_tokens: int) -> list[str]:
    """Lines that show one exchange: events as they came, and what would be graded. Raises BadInput, RunFailed."""
    problem = _problem(_problems("classic"), problem_name)
    server = await _look(asked)
    options = ChatOptions(server.model, max_tokens, 0.0)
    limits = TimeLimits(_LONG_NS, _LONG_NS, _LONG_NS)
    body = chat_body(options, problem.prompt)
    exchange = await asyncio.to_thread(
        exchange_once, asked.url.rstrip("/"), [body], limits, api_key=asked.api_key
    )
    record = RequestRecord(
        index=0, phase=Phase.MEASURE, scheduled_ns=exchange.sent_ns or 0, max_tokens=max_tokens
    )
    decode(exchange, record)
    return [
        f"model {_clean(server.model)}, problem {problem.name}",
        *_event_lines(exchange),
        *_facts(record, problem),
    ]


async def _look(asked: Asked) -> _Server:
    async with open_endpoint(asked.url.rstrip("/"), asked.api_key) as endpoint:
        models = await endpoint.models()
        _, time_scale = simulation(await endpoint.server_info())
    if not models and asked.model is None:
        raise RunFailed(f"{asked.url}: it lists no model; name one with --model")
    return _Server(asked.model or models[0], time_scale)


def _problems(name: str) -> ProblemSet:
    try:
        return problem_set(name)
    except ValueError as error:
        raise BadInput(f"--problems {name}: {error}") from error


def _problem(problems: ProblemSet, name: str) -> Problem:
    for problem in problems.problems:
        if problem.name == name:
            return problem
    known = ", ".join(problem.name for problem in problems.problems)
    raise BadInput(f"--problem {name}: no such problem; use one of: {known}")


def _event_lines(exchange: Exchange) -> Iterator[str]:
    events = events_of(exchange)
    yield f"HTTP {exchange.status}, {len(events)} events in {len(exchange.reads) // READ.size} reads"
    for number, (at_ns, data) in enumerate(events):
        if _SHOWN_EVENTS <= number < len(events) - _SHOWN_EVENTS:
            if number == _SHOWN_EVENTS:
                yield f"      ... {len(events) - 2 * _SHOWN_EVENTS} more ..."
            continue
        after_ms = (at_ns - (exchange.sent_ns or at_ns)) / 1e6
        yield f"{after_ms:9.1f} ms  {_clean(_essence(data))}"


def _essence(data: bytes) -> str:
    """The parts of an event that differ from one to the next."""
    event = read_json(data)
    if event is None:
        return data.decode(errors="replace")
    if not isinstance(event, dict):
        return str(event)
    kept = {key: value for key, value in event.items() if key not in ("id", "object", "created", "model")}
    return json.dumps(kept, ensure_ascii=False)


def _facts(record: RequestRecord, problem: Problem) -> Iterator[str]:
    extraction = extract(Answer(record.reasoning, record.content, record.finish_reason), problem.entry_point)
    yield ""
    yield f"outcome        {record.outcome}{f': {_clean(record.error)}' if record.error else ''}"
    yield f"finish_reason  {_clean(str(record.finish_reason))}"
    yield f"reasoning      {len(record.reasoning)} characters{_start_of(record.reasoning)}"
    yield f"content        {len(record.content)} characters{_start_of(record.content)}"
    yield f"usage          prompt {record.prompt_tokens}, output {record.output_tokens}, reasoning {record.reasoning_tokens}, cached {record.cached_tokens}"
    yield f"token counts   {record.token_source or 'none'}"
    yield f"extraction     {extraction.kind}, rule {extraction.rule}, flags {', '.join(extraction.flags) or 'none'}"
    if extraction.program is not None:
        yield "program:"
        yield from (f"    {harmless(line)}" for line in extraction.program.splitlines())


def _start_of(text: str) -> str:
    return f", begins {_clean(text)[:60]!r}" if text else ""


def _clean(text: str) -> str:
    return harmless(text.replace("\n", " "))[:_SHOWN_CHARS]
