"""Makes the prompts of a server's load cells ready, before the first of them: counts, fits, and keeps what it found.

All that needs the server happens in `prepare`; `make` is arithmetic on what is known then. Results are functions of
tokenizer, text, seed and length alone, so that every worker, on whatever host, comes to the same prompts.
"""

import asyncio
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from loadgen.chat_request import ChatOptions, template_fields
from loadgen.endpoint import Endpoint, open_endpoint
from loadgen.job import CellJob
from loadgen.prompts.bodies import LoadPrompts, load_message
from loadgen.prompts.cache import DiskCache, cache_folder
from loadgen.prompts.conversations import Conversations
from loadgen.prompts.corpus import TextSource
from loadgen.prompts.counting import make_counter
from loadgen.prompts.fit import Fit
from loadgen.prompts.fitter import FIRST_TURN_VARIANT, SHARED_VARIANT, Fitted, Fitter
from loadgen.prompts.salts import DEFAULT_ALPHABET, SaltKey
from loadgen.prompts.settings import LengthSource
from loadgen.prompts.tokenizer_file import TokenizerFile


@dataclass(frozen=True, slots=True)
class Prepared:
    """The prompts of one execution of a cell; `conversations` where the workload has more turns than one."""

    prompts: LoadPrompts
    length_source: LengthSource
    conversations: Conversations | None


class PromptMaker:
    """The prompts of one worker's cells. Keeps the fits of all server lives; they are some dozen numbers each."""

    def __init__(self) -> None:
        self._fitted: dict[str, Fitted] = {}

    async def prepare(self, jobs: Iterable[CellJob], api_key: str | None) -> None:
        """Fits what these cells need and is not there yet. One server stands behind all of them.

        Raises RunFailed when the server cannot count, BadInput for a tokenizer file that cannot be read.
        """
        missing = {
            _key(job): job for job in jobs if job.cell.kind == "load" and _key(job) not in self._fitted
        }
        of_length: dict[str, dict[str, CellJob]] = {}
        for key, job in missing.items():
            if job.cell.context_tokens is None:
                self._fitted[key] = Fitted(DEFAULT_ALPHABET, LengthSource.DATASET)
            else:
                of_length.setdefault(_counted_by(job), {})[key] = job
        for (
            group
        ) in of_length.values():  # one at a time: what is counted the same way is counted side by side
            first = next(iter(group.values()))
            async with open_endpoint(first.endpoint, api_key) as endpoint:
                fitter = await _fitter(first, endpoint)
                fits = await asyncio.gather(*(fitter.fit(job.cell) for job in group.values()))
            self._fitted.update(zip(group, fits, strict=True))

    def make(self, job: CellJob) -> Prepared:
        """The requests of a job that `prepare` was given."""
        fitted, settings = self._fitted[_key(job)], job.cell.prompts
        key = SaltKey(job.run_id, job.cell.cell_id, job.repeat, job.seed)
        texts = TextSource(job.corpus.paragraphs, job.seed)
        if job.cell.context_tokens is None:
            prompts = [chat.opening for chat in job.corpus.chats]
            shared = ""
        else:
            prompts = [
                (load_message(_text(texts, variant, fit)),) for variant, fit in enumerate(fitted.variants)
            ]
            shared = texts.text(SHARED_VARIANT, fitted.shared_words)
        made = LoadPrompts(prompts, chat_options(job), key, fitted.alphabet, shared)
        talk = None if settings.turns == 1 else _conversations(job, fitted, texts, made)
        return Prepared(made, fitted.length_source, talk)


def chat_options(job: CellJob) -> ChatOptions:
    """The options of a job's requests."""
    cell = job.cell
    return ChatOptions(
        job.model,
        cell.max_tokens,
        cell.temperature,
        cell.ignore_eos,
        cell.thinking,
        cell.prompts.template_kwargs,
        cell.prompts.extra,
    )


def _conversations(job: CellJob, fitted: Fitted, texts: TextSource, prompts: LoadPrompts) -> Conversations:
    settings = job.cell.prompts
    if job.cell.context_tokens is None:
        said = [chat.user_turns for chat in job.corpus.chats]

        def of_data(conversation: int, turn: int) -> str | None:
            turns = said[conversation % len(said)]
            return turns[turn] if turn < len(turns) else None

        return Conversations(prompts, settings.turns, of_data, settings.think_time_s)
    ready = [_text(texts, FIRST_TURN_VARIANT + number, fit) for number, fit in enumerate(fitted.turns)]

    def of_text(conversation: int, turn: int) -> str:
        return ready[(conversation + turn) % len(ready)]

    return Conversations(prompts, settings.turns, of_text, settings.think_time_s)


def _text(texts: TextSource, variant: int, fit: Fit) -> str:
    return texts.text(variant, fit.words) + fit.filler


async def _fitter(job: CellJob, endpoint: Endpoint) -> Fitter:
    file = job.cell.prompts.tokenizer
    counter = await make_counter(endpoint, chat_options(job), TokenizerFile(file) if file else None)
    return await Fitter.make(counter, job.corpus, job.seed, DiskCache(cache_folder()))


def _counted_by(job: CellJob) -> str:
    """What a counter depends on, and the text."""
    asked = [job.server_id, job.endpoint, job.model, template_fields(chat_options(job))]
    return json.dumps([*asked, job.cell.prompts.tokenizer, job.corpus.digest, job.seed])


def _key(job: CellJob) -> str:
    return json.dumps([_counted_by(job), job.cell.context_tokens, asdict(job.cell.prompts)])
