"""Who counts, and what the template adds: against scripted servers with real and strange tokenizers."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from scripted_server import Peer, Request, scripted

from loadgen.chat_request import ChatOptions
from loadgen.endpoint import open_endpoint
from loadgen.errors import BadInput, RunFailed
from loadgen.prompts.counting import Counter, make_counter
from loadgen.prompts.settings import LengthSource
from loadgen.prompts.tokenizer_file import TokenizerFile

OPTIONS = ChatOptions("m", 16, 0, thinking=True, template_kwargs={"effort": "low"})
Use = Callable[[Counter], Awaitable[Any]]


def template_tokens(request: dict[str, Any], text: str) -> int:
    """Nine tokens; four more when the template is asked to make the model think."""
    return 9 + 4 * bool(request.get("chat_template_kwargs", {}).get("thinking"))


def counted(
    use: Use,
    tokenize: Callable[[str], list[Any]] | None = None,
    template: Callable[[dict[str, Any], str], int] = template_tokens,
    options: ChatOptions = OPTIONS,
    usage: Any = None,
    file: TokenizerFile | None = None,
) -> Any:
    """`use` of a counter, on a server whose true tokens are words."""

    async def script(peer: Peer, request: Request) -> None:
        if request.path == "/tokenize" and tokenize is not None:
            await peer.answer({"tokens": tokenize(request.json["prompt"])})
        elif request.path == "/v1/chat/completions":
            text = request.json["messages"][0]["content"]
            tokens = template(request.json, text) + len(text.split())
            body = {"prompt_tokens": tokens} if usage is None else usage
            await peer.answer({"choices": [{"message": {"content": "x"}}], "usage": body})
        else:
            await peer.answer({"detail": "Not Found"}, 404)

    async def work() -> Any:
        async with scripted(script) as server, open_endpoint(server.url) as endpoint:
            return await use(await make_counter(endpoint, options, file))

    return asyncio.run(work())


def words(text: str) -> list[int]:
    return [int.from_bytes(hashlib.blake2b(word.encode(), digest_size=4).digest()) for word in text.split()]


async def facts(counter: Counter) -> tuple[LengthSource, int, int]:
    return counter.source, await counter.count("three words here"), await counter.count_text("two words")


async def identity(counter: Counter) -> str:
    return counter.identity


def test_the_servers_tokenizer_counts_and_the_template_is_added_with_the_workloads_options() -> None:
    assert counted(facts, words) == (LengthSource.TOKENIZER, 16, 2)
    assert counted(facts, words, options=ChatOptions("m", 16, 0)) == (LengthSource.TOKENIZER, 12, 2)


def test_without_a_tokenizer_usage_counts() -> None:
    assert counted(facts) == (LengthSource.USAGE, 16, 2)


def test_a_template_that_depends_on_the_text_leaves_it_to_usage() -> None:
    def longer(request: dict[str, Any], text: str) -> int:
        return 9 + len(text) % 7

    assert counted(facts, words, longer)[0] == LengthSource.USAGE


def test_a_tokenizer_of_another_model_leaves_it_to_usage() -> None:
    assert counted(facts, lambda text: list(text.encode()))[0] == LengthSource.USAGE


def test_a_server_that_counts_nothing_cannot_be_measured_at_a_length() -> None:
    for usage in ([], {}, {"prompt_tokens": None}):
        with pytest.raises(RunFailed, match="gives neither /tokenize nor usage"):
            counted(facts, usage=usage)


def test_the_identity_is_the_tokenizers_the_templates_and_the_models() -> None:
    same = counted(identity, words)
    assert counted(identity, words) == same
    others = [
        counted(identity),
        counted(identity, words, lambda *_: 10),
        counted(identity, words, options=ChatOptions("m", 16, 0, thinking=True)),
        counted(identity, words, options=ChatOptions("n", 16, 0, True, True, {"effort": "low"})),
        counted(identity, lambda text: list(range(len(text.split())))),
    ]
    assert len({same, *others}) == 6


def test_by_usage_long_prompts_may_be_off_by_less_than_one_per_cent() -> None:
    async def allowed(counter: Counter) -> list[int]:
        return [counter.allowed_off(tokens) for tokens in (60, 2048, 100_000)]

    assert counted(allowed) == [0, 0, 500]
    assert counted(allowed, words) == [0, 0, 0]


def trained(folder: Path) -> Path:
    """A byte-level BPE of 3000 tokens, made of the builtin text by the package itself."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    from loadgen.prompts.corpus import builtin_paragraphs

    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=3000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    core.train_from_iterator(builtin_paragraphs()[:1500], trainer)
    path = folder / "tokenizer.json"
    core.save(str(path))
    return path


def test_a_tokenizer_file_counts_for_a_server_that_agrees_with_it(tmp_path: Path) -> None:
    file = TokenizerFile(str(trained(tmp_path)))

    def as_the_file(request: dict[str, Any], text: str) -> int:
        return 9 + len(file.encode(text)) - len(text.split())

    source, whole, text = counted(facts, None, as_the_file, file=file)
    assert source == LengthSource.TOKENIZER_FILE
    assert whole == 9 + len(file.encode("three words here"))
    assert text == len(file.encode("two words"))
    assert counted(facts, file=file)[0] == LengthSource.USAGE


def test_what_is_no_tokenizer_file_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text("{}")
    (tmp_path / "b.json").write_bytes(b"\xff")
    for name, said in (("t.json", "not a tokenizer.json"), ("b.json", "not UTF-8"), ("no", "No such file")):
        with pytest.raises(BadInput, match=said) as caught:
            TokenizerFile(str(tmp_path / name))
        assert len(str(caught.value).splitlines()) == 1
