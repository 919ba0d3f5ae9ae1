"""One load worker: makes a cell's requests ready, and runs its part of the cell."""

import os
import resource

from loadgen.endpoint import Endpoint, open_endpoint
from loadgen.grading.problems import problem_set
from loadgen.job import CellJob, CellRun
from loadgen.prompts import VARIANTS, LoadPrompts, SaltKey, TextSource, fit_words
from loadgen.questions import Questions, eval_questions, load_questions, token_counter
from loadgen.spec import Limits
from loadgen.streams import CellLoop
from loadgen.transport.exchange import TimeLimits
from loadgen.transport.fallback import open_transport
from loadgen.wire import ChatOptions

_NS = 1_000_000_000


class Client:
    """A load worker. Plain class: Ray's actor, and `--local`, are coats over it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._fits: dict[tuple[str, str, int, int], int] = {}

    async def run_cell(self, job: CellJob) -> CellRun:
        """Runs its part of the cell. Raises RunFailed when the prompts cannot be made; all else is in the rows."""
        api_key = os.environ.get(job.api_key_env) if job.api_key_env else None
        questions = await self._prepare(job, api_key)
        async with open_transport(job.endpoint, _time_limits(job.limits), api_key) as transport:
            return await CellLoop(job, questions, transport, api_key).run()

    async def _prepare(self, job: CellJob, api_key: str | None) -> Questions:
        options = ChatOptions(
            job.model, job.cell.max_tokens, job.cell.temperature, job.cell.ignore_eos, job.cell.thinking
        )
        if job.cell.kind == "eval":
            return eval_questions(problem_set(job.cell.workload), options, job.shard)
        context = job.cell.context_tokens
        assert context is not None
        key = SaltKey(job.run_id, job.cell.cell_id, job.repeat, job.seed)
        source = TextSource(job.corpus, job.seed)
        async with open_endpoint(job.endpoint, api_key) as endpoint:
            texts = [
                await self._fitted(job, source, variant, context, endpoint) for variant in range(VARIANTS)
            ]
        prompts = LoadPrompts.make(texts, options, key)
        return load_questions(prompts, job.shard, context)

    async def _fitted(
        self, job: CellJob, source: TextSource, variant: int, context: int, endpoint: Endpoint
    ) -> str:
        key = (job.server_id, job.cell.prompt_source, context, variant)
        if key not in self._fits:
            count = await token_counter(
                endpoint, job.model, SaltKey(job.run_id, "fit", 0, job.seed).salt(variant)
            )
            self._fits[key] = await fit_words(lambda words: source.text(variant, words), context, count)
        return source.text(variant, self._fits[key])


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
