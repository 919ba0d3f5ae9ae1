"""One request between engine and client: a chunk for each step, and what holds chunks back."""

import asyncio

import pytest
import sim_fixtures as sim

from loadgen.sim import answers, wire
from loadgen.sim.answers import Wish
from loadgen.sim.generation import Call
from loadgen.sim.scheduler import Sequence
from loadgen.sim.wire import View


class Transport(asyncio.WriteTransport):
    """Keeps what is written; `buffered` is what it says of its buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.chunks: list[bytes] = []
        self.buffered = 0
        self.closing = False

    def write(self, data: bytes) -> None:
        self.chunks.append(data)

    def is_closing(self) -> bool:
        return self.closing

    def get_write_buffer_size(self) -> int:
        return self.buffered


@pytest.fixture
def seq() -> Sequence:
    answer = answers.answer("a story", 0, Wish(100, ignore_eos=True, thinking=False))
    made = Sequence("id", [1], answer.ids, answer.total_tokens, 0.0, 0)
    view = View("id", "m", 0, stream=True, continuous_usage=True)
    made.owner = (answer, view)
    return made


def call(seq: Sequence, interval: int = 1) -> Call:
    answer, view = seq.owner
    return Call(seq, wire.ChatEncoder(answer, view, seq), interval)


def counts(raw: bytes) -> list[int]:
    return [
        e["usage"]["completion_tokens"] for e in sim.events(raw.decode()) if e != "[DONE]" and "usage" in e
    ]


def sent(transport: Transport) -> list[int]:
    found = []
    for chunk in transport.chunks:
        size, _, rest = chunk.partition(b"\r\n")
        assert len(rest) == int(size, 16) + 2
        found += counts(rest[:-2])
    return found


def begun(seq: Sequence, interval: int = 1) -> tuple[Call, Transport]:
    made, transport = call(seq, interval), Transport()
    seq.generated = 1
    assert not made.progressed()
    assert made.started.is_set()
    assert counts(made.beginning()) == [1]
    made.attach(transport)
    return made, transport


def test_each_step_is_one_chunk(seq: Sequence) -> None:
    made, transport = begun(seq)
    for tokens in (4, 5, 12):
        seq.generated = tokens
        assert made.progressed()
    assert sent(transport) == [4, 5, 12]


def test_steps_before_the_stream_has_begun_go_out_together(seq: Sequence) -> None:
    made, transport = call(seq), Transport()
    for tokens in (1, 3, 6):
        seq.generated = tokens
        made.progressed()
    assert counts(made.beginning()) == [6]
    seq.generated = 9
    made.progressed()
    made.attach(transport)
    assert sent(transport) == [9]


def test_the_stream_interval_holds_back_all_but_the_first_and_the_last(seq: Sequence) -> None:
    made, transport = begun(seq, interval=5)
    for tokens in (3, 5, 6, 9, 12):
        seq.generated = tokens
        made.progressed()
    assert sent(transport) == [6, 12]
    seq.generated, seq.end = 13, "done"
    made.progressed()
    assert sent(transport) == [6, 12, 13]
    assert made.ended.is_set()


def test_a_full_buffer_holds_chunks_back_until_the_end(seq: Sequence) -> None:
    made, transport = begun(seq)
    transport.buffered = 2 << 20
    for tokens in (3, 5, 7):
        seq.generated = tokens
        assert not made.progressed()
    transport.buffered = 0
    seq.generated = 8
    assert made.progressed()
    transport.buffered = 2 << 20
    seq.generated, seq.end = 10, "done"
    assert made.progressed()
    assert sent(transport) == [8, 10]


def test_nothing_is_written_to_a_connection_that_closes(seq: Sequence) -> None:
    made, transport = begun(seq)
    transport.closing = True
    seq.generated = 5
    assert not made.progressed()
    assert transport.chunks == []
