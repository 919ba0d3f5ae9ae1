"""Request bodies, ready before the cell: a small head of its own with the salt, then bytes that requests share.

A body is a tuple of pieces that are sent one after the other, so that nothing is joined or copied at its time. Above a
budget of memory the shared bytes lie in a mapped file without a name, which the kernel may page out.
"""

import json
import mmap
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import replace

from loadgen.chat_request import ChatOptions, chat_body
from loadgen.prompts.datasets import Message
from loadgen.prompts.salts import Alphabet, SaltKey

Parts = tuple[bytes | memoryview, ...]

MEMORY_BUDGET_BYTES = 64 * 2**20
ASK = "\n\nContinue this text."
_MARK = "\ue000"  # a character of nobody's text stands where a message goes


def hold(pieces: Iterable[bytes], budget_bytes: int = MEMORY_BUDGET_BYTES) -> list[memoryview]:
    """Read-only views of the pieces, which lie one after the other: in memory, or in a mapped file above the budget."""
    with tempfile.SpooledTemporaryFile(max_size=budget_bytes) as file:
        sizes = [file.write(piece) for piece in pieces]
        whole = _mapped(file, sum(sizes), budget_bytes)
    views, start = [], 0
    for size in sizes:
        views.append(whole[start : start + size])
        start += size
    return views


def _mapped(file: "tempfile.SpooledTemporaryFile[bytes]", size: int, budget_bytes: int) -> memoryview:
    file.seek(0)
    if size <= budget_bytes:
        return memoryview(file.read())
    file.flush()
    return memoryview(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ))


def load_message(text: str) -> Message:
    """The message of a load request that continues `text`."""
    return Message("user", f"{text}{ASK}")


def behind_salt(salt: str, text: str, shared_salt: str = "", shared: str = "") -> str:
    """The text of a request's first message: what its cell shares, if anything, then its own salt and text."""
    return f"{_beginning(shared_salt, shared)}{salt} {text}"


def _beginning(shared_salt: str, shared: str) -> str:
    return f"{shared_salt} {shared}\n" if shared else ""


class LoadPrompts:
    """The requests of one cell. A request takes prompt number `index % len(prompts)` behind a salt of its own.

    With `shared`, all messages begin with the cell's salt and that text, and the request's salt comes after it.
    """

    def __init__(
        self,
        prompts: Sequence[tuple[Message, ...]],
        options: ChatOptions,
        key: SaltKey,
        alphabet: Alphabet,
        shared: str = "",
        budget_bytes: int = MEMORY_BUDGET_BYTES,
    ) -> None:
        self._prompts = prompts
        self._key = key
        self._alphabet = alphabet
        self._begin = _beginning(key.shared(alphabet), shared)
        before, after = chat_body(options, _MARK).split(_MARK.encode(), 1)
        # before: {"messages": [{"role": "user", "content": "; a prompt's first message may have another role
        self._start = before[: before.index(b"{", 1)]
        self._end = after.removeprefix(b'"}')
        self._heads = {prompt[0].role: self._head(prompt[0].role) for prompt in prompts}
        self._tails = hold((_tail(prompt) for prompt in prompts), budget_bytes)

    def salt(self, index: int) -> str:
        """The request's salt; all of a cell are as long in bytes."""
        return self._key.salt(index, self._alphabet)

    def parts(self, index: int) -> Parts:
        """The pieces of the request's body, in order."""
        return (*self.open_parts(index), self.close())

    def open_parts(self, index: int) -> Parts:
        """The body up to the end of the text of its last message; `close` and more messages may follow."""
        number = index % len(self._prompts)
        return self._heads[self._prompts[number][0].role], self.salt(index).encode(), self._tails[number]

    def close(self, messages: Sequence[Message] = ()) -> bytes:
        """What comes after `open_parts`: these messages, and the options of the request."""
        return b'"}' + _following(messages).encode() + self._end

    def body_bytes(self, index: int) -> int:
        """Length of the request's body."""
        return sum(map(len, self.open_parts(index))) + 2 + len(self._end)

    def messages(self, index: int) -> tuple[Message, ...]:
        """The request's messages as text."""
        first, *rest = self._prompts[index % len(self._prompts)]
        content = f"{self._begin}{self.salt(index)} {first.content}"
        return replace(first, content=content), *rest

    def _head(self, role: str) -> bytes:
        return self._start + f'{{"role": {_json(role)}, "content": "{_inside(self._begin)}'.encode()


def _tail(prompt: tuple[Message, ...]) -> bytes:
    first, *rest = prompt
    return f' {_inside(first.content)}"}}{_following(rest)}'.removesuffix('"}').encode()


def _following(messages: Iterable[Message]) -> str:
    return "".join(f", {_json({'role': item.role, 'content': item.content})}" for item in messages)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _inside(text: str) -> str:
    return _json(text)[1:-1]
