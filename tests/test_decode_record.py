"""Request bodies out, finished exchanges in: real captures, hand-made streams, and hostile ones."""

import json
from pathlib import Path
from typing import Any

import pytest
from decode_fixtures import decoded
from hypothesis import given
from hypothesis import strategies as st
from scripted_server import DONE, delta, event, role, usage, whole_answer

from loadgen.chat_request import ChatOptions, chat_body
from loadgen.decode.record import EndMarks
from loadgen.received_json import error_message
from loadgen.records import ChunkKind, Outcome, RequestRecord, TokenSource
from loadgen.tables import RequestContext, requests_table

CAPTURES = Path(__file__).parent / "fixtures" / "captures"
SGLANG = CAPTURES / "sglang-0.5.23"
OTHERS = CAPTURES / "other-servers"
ADD = "```python\ndef add(a,b):\n    return a + b\n```"


def arrow_row(record: RequestRecord) -> dict[str, Any]:
    """The record's row, after a trip through Arrow: what no table can hold fails here."""
    table = requests_table([record], RequestContext("c", 0, "p", "s", "w", 1.0))
    return dict(table.to_pylist()[0])


def test_the_body_asks_for_exact_counts() -> None:
    body = json.loads(chat_body(ChatOptions("kimi", 32, 0.5), "café"))
    assert body["stream_options"] == {"include_usage": True, "continuous_usage_stats": True}
    assert body["messages"] == [{"role": "user", "content": "café"}]
    assert (body["model"], body["max_tokens"], body["temperature"], body["stream"]) == ("kimi", 32, 0.5, True)
    assert "ignore_eos" not in body
    assert "chat_template_kwargs" not in body


def test_ignore_eos_and_thinking_reach_the_body() -> None:
    body = json.loads(chat_body(ChatOptions("kimi", 32, 0, ignore_eos=True, thinking=False), "x"))
    assert body["ignore_eos"] is True
    assert body["chat_template_kwargs"] == {"thinking": False, "enable_thinking": False}


@pytest.mark.parametrize(
    ("path", "output_tokens", "prompt_tokens", "answer_start"),
    [
        (
            SGLANG / "spec_chat2.sse",
            60,
            35,
            "Here is the code:\n```python\ndef add(a, b):\n    # 将两个数相加",
        ),
        (SGLANG / "chat_stream_cont.sse", 8, 35, ""),
        (OTHERS / "guidellm.sse", 6, 1, "Score each cause."),
        (OTHERS / "llamacpp.sse", 50, 45, ADD),
        (OTHERS / "transformers-serve.sse", 51, 45, ADD),
        (OTHERS / "vllm.sse", 51, 45, ADD),
    ],
    ids=lambda value: value.stem if isinstance(value, Path) else "",
)
def test_real_servers_are_understood(
    path: Path, output_tokens: int, prompt_tokens: int, answer_start: str
) -> None:
    record = decoded(path.read_bytes())
    assert record.outcome is Outcome.OK
    assert record.error is None
    assert (record.output_tokens, record.prompt_tokens) == (output_tokens, prompt_tokens)
    assert record.content.startswith(answer_start)
    assert arrow_row(record)["outcome"] == "ok"


def test_a_real_stream_cut_into_network_reads_anywhere_gives_the_same_record() -> None:
    stream = (SGLANG / "spec_chat2.sse").read_bytes()
    whole = decoded((5, stream))
    for place in range(0, len(stream), 7):
        assert decoded((5, stream[:place]), (5, stream[place:])).content == whole.content


def test_sglang_speculation_and_reasoning_are_read() -> None:
    record = decoded((SGLANG / "spec_chat2.sse").read_bytes())
    assert (record.spec_verify_steps, record.spec_accept_length) == (8, 7.5)
    assert record.reasoning_tokens == 30
    assert record.reasoning.startswith("Let me think.")
    assert record.reasoning.endswith("So return a + b.\n")
    assert record.chunk_kind == [ChunkKind.REASONING] * 5 + [ChunkKind.ANSWER] * 5
    assert record.finish_reason == "stop"


def test_a_running_usage_gives_tokens_for_each_chunk() -> None:
    record = decoded((SGLANG / "chat_stream_cont.sse").read_bytes())
    assert record.token_source is TokenSource.CONTINUOUS_USAGE
    assert record.chunk_tokens == [1, 2, 3, 4, 5, 6, 7, 8]
    assert record.cached_tokens == 34


def test_a_server_that_ignores_continuous_usage_is_labelled() -> None:
    record = decoded((OTHERS / "vllm.sse").read_bytes())
    assert record.token_source is TokenSource.USAGE
    assert record.chunk_tokens is None


def test_a_usage_that_misses_one_chunk_gives_no_tokens_per_chunk() -> None:
    record = decoded(role(), delta("a", tokens=1), delta("b"), delta("c", finish="stop"), usage(3))
    assert record.chunk_tokens is None
    assert (record.token_source, record.output_tokens) == (TokenSource.USAGE, 3)


def test_a_running_usage_that_falls_is_not_trusted() -> None:
    record = decoded(delta("a", tokens=5), delta("b", tokens=3), delta(finish="stop"), usage(6))
    assert record.chunk_tokens is None
    assert record.token_source is TokenSource.USAGE


def test_usage_on_an_event_with_choices_is_taken() -> None:
    record = decoded(role(), delta("a", tokens=1), delta("b", finish="stop", tokens=2), DONE)
    assert (record.output_tokens, record.prompt_tokens, record.chunk_tokens) == (2, 7, [1, 2])


def test_missing_usage_is_unknown_not_max_tokens() -> None:
    record = decoded(role(), delta("a"), delta("b", finish="stop"), DONE)
    assert record.outcome is Outcome.OK
    assert (record.output_tokens, record.token_source, record.prompt_tokens) == (None, None, None)


def test_a_role_only_chunk_is_no_token() -> None:
    record = decoded(
        (10, role()), (2_000_000_000, delta("a", tokens=1)), (2_000_000_001, delta(finish="stop"))
    )
    assert (record.first_chunk_ns, record.first_token_ns) == (10, 2_000_000_000)
    assert record.chunk_ns == [2_000_000_000]


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_is_the_first_token_and_no_answer(name: str) -> None:
    thought = event({"choices": [{"delta": {name: "hm", "content": None}, "finish_reason": None}]})
    record = decoded((10, role()), (20, thought), (30, delta("a")), (40, delta(finish="stop")))
    assert (record.first_token_ns, record.first_answer_ns, record.last_token_ns) == (20, 30, 30)
    assert (record.reasoning, record.content) == ("hm", "a")


def test_a_thought_that_uses_up_max_tokens_has_no_answer() -> None:
    record = decoded(role(), delta(reasoning="hm", tokens=1), delta(finish="length"), usage(32), DONE)
    assert record.outcome is Outcome.OK
    assert record.finish_reason == "length"
    assert (record.first_answer_ns, record.content, record.output_tokens) == (None, "", 32)


def test_a_chunk_that_adds_no_token_is_kept_with_its_count() -> None:
    record = decoded(
        delta("\u0301", tokens=0), delta("ab", tokens=2), delta("\u0301", tokens=2, finish="stop")
    )
    assert record.chunk_tokens == [0, 2, 2]


BUSY = {
    "object": "error",
    "message": "The request queue is full.",
    "type": "SERVICE_UNAVAILABLE",
    "code": 503,
}


@pytest.mark.parametrize(
    ("blocks", "outcome", "error"),
    [
        ((event({"error": BUSY}), DONE), Outcome.REJECTED, "The request queue is full."),
        ((event({"error": {**BUSY, "code": "429"}}),), Outcome.REJECTED, "The request queue is full."),
        ((event(BUSY), DONE), Outcome.REJECTED, "The request queue is full."),
        (
            (role(), delta("a", tokens=1), event({"error": {"message": "CUDA out of memory", "code": 500}})),
            Outcome.IN_STREAM_ERROR,
            "CUDA out of memory",
        ),
        ((event({"error": "boom"}),), Outcome.IN_STREAM_ERROR, "boom"),
        ((event({"error": {"code": 500}}),), Outcome.IN_STREAM_ERROR, '{"error": {"code": 500}}'),
        ((role(), DONE), Outcome.EMPTY_STREAM, None),
        ((role(), delta(finish="stop"), usage(0), DONE), Outcome.EMPTY_STREAM, None),
        ((DONE,), Outcome.EMPTY_STREAM, None),
        ((), Outcome.EMPTY_STREAM, None),
        ((role(), delta("a"), DONE), Outcome.TRUNCATED_STREAM, None),
        ((role(), delta("a"), b"data: {"), Outcome.TRUNCATED_STREAM, None),
        ((role(), event(b"{oops"), delta(finish="stop")), Outcome.MALFORMED, "not a JSON object: b'{oops'"),
        ((event(b"[1]"),), Outcome.MALFORMED, "not a JSON object: b'[1]'"),
        ((b"<html>hello</html>",), Outcome.MALFORMED, "not an event stream: b'<html>hello</html>'"),
    ],
)
def test_http_200_is_no_success(blocks: tuple[bytes, ...], outcome: Outcome, error: str | None) -> None:
    record = decoded(*blocks)
    assert (record.outcome, record.error) == (outcome, error)


def test_an_aborted_request_is_no_success() -> None:
    record = decoded((SGLANG / "abort_rid.sse").read_bytes())
    assert record.outcome is Outcome.IN_STREAM_ERROR
    assert record.error == "the server aborted the request"


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        *((status, Outcome.HTTP_ERROR) for status in (307, 400, 404, 500)),
        *((status, Outcome.REJECTED) for status in (429, 503)),
    ],
)
def test_a_bad_status_is_a_failure_whatever_the_body_says(status: int, outcome: Outcome) -> None:
    record = decoded(*whole_answer(), status=status)
    assert record.outcome is outcome
    assert (record.output_tokens, record.first_token_ns, record.chunk_ns) == (None, None, [])


def test_what_the_server_said_outranks_how_the_connection_ended() -> None:
    said = event({"error": {"message": "engine died", "code": 500}})
    record = decoded(role(), said, failure=Outcome.TRUNCATED_STREAM, error="closed")
    assert (record.outcome, record.error) == (Outcome.IN_STREAM_ERROR, "engine died")
    assert decoded(b"busy", status=503, failure=Outcome.RESET).outcome is Outcome.REJECTED


AFTER_THE_ANSWER = [
    Outcome.IDLE_TIMEOUT,
    Outcome.TOTAL_TIMEOUT,
    Outcome.TRUNCATED_STREAM,
    Outcome.RESET,
    Outcome.CUT,
]


@pytest.mark.parametrize("failure", AFTER_THE_ANSWER)
def test_an_answer_that_was_whole_before_its_connection_failed_is_ok_and_ended_with_its_last_byte(
    failure: Outcome,
) -> None:
    record = decoded(*whole_answer(), failure=failure, error="nothing for 60 s")
    assert (record.outcome, record.error) == (Outcome.OK, "nothing for 60 s")
    assert (record.output_tokens, record.done_ns) == (3, 7_000_000)


@pytest.mark.parametrize("failure", AFTER_THE_ANSWER)
def test_an_answer_that_lacks_an_end_mark_keeps_its_failure(failure: Outcome) -> None:
    *events, _ = whole_answer()
    record = decoded(*events, failure=failure, error="x", marks=EndMarks(done=True))
    assert (record.outcome, record.error) == (failure, "x")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("sglang-0.5.23/err_empty.json", "Messages cannot be empty."),
        ("sglang-0.5.23/err_notfound.json", "Not Found"),
        ("other-servers/vllm-badmodel.json", "The model `nope` does not exist. Valid aliases: smol."),
    ],
)
def test_error_messages_of_real_servers_are_found(name: str, message: str) -> None:
    body = (CAPTURES / name).read_bytes()
    assert error_message(body) == message
    assert decoded(body, status=400).error == message


def test_error_bodies_of_other_shapes_give_their_text_shortened() -> None:
    assert error_message(b'{"error":"Unauthorized"}') == "Unauthorized"
    assert error_message(b'{"detail":[{"msg":"field required"}]}') == '{"detail":[{"msg":"field required"}]}'
    assert error_message(b'{"x":1}') == '{"x":1}'
    assert error_message(b"\xff bad gateway \n") == "\ufffd bad gateway"
    assert len(error_message(b"x" * 10_000)) == 300
    assert decoded(b"", status=502).error == "HTTP 502"


def test_split_surrogates_in_text_are_joined_and_lone_ones_replaced() -> None:
    halves = [
        event(b'{"choices":[{"delta":{"content":"%s"}}]}' % half)
        for half in (b"\\ud83d", b"\\ude00", b"\\ud83d!")
    ]
    record = decoded(*halves, delta(finish="\ud83d"), usage(3))
    assert record.content == "😀\ufffd!"
    assert arrow_row(record)["finish_reason"] == "\ufffd"


DEEP = b"[" * 100_000
HOSTILE = (
    event(b'{"error":' + b"[" * 900 + b"]" * 900 + b"}"),
    event(DEEP),
    event(b'{"choices":null,"usage":[],"sglext":7,"error":null}'),
    event(b'{"choices":[null,{"delta":[]},{"delta":{"content":5}},{"finish_reason":{}}]}'),
    event(b'{"usage":{"completion_tokens":99999999999999,"prompt_tokens":-1,"prompt_tokens_details":3}}'),
    event(b'{"usage":{"completion_tokens":true,"prompt_tokens":1e400,"reasoning_tokens":NaN}}'),
    event(
        b'{"sglext":{"spec_tokens_details":{"spec_verify_ct":"8","spec_accept_length":%s}}}' % (b"9" * 400)
    ),
    event(b'{"sglext":{"spec_tokens_details":{"spec_accept_length":NaN}}}'),
    event(b'{"error":{"message":{"a":"\\ud800"},"code":[]}}'),
    event(b"\xff\xfe\x00"),
    b"\x00" * 1000,
)


@pytest.mark.parametrize("data", HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_events_become_a_row(data: bytes) -> None:
    row = arrow_row(decoded(role(), data, delta("a", finish="stop")))
    assert row["outcome"] in set(Outcome)
    assert row["output_tokens"] is None
    assert row["spec_accept_length"] is None


KEYS = st.sampled_from(
    [
        "choices",
        "delta",
        "content",
        "reasoning_content",
        "finish_reason",
        "usage",
        "completion_tokens",
        "prompt_tokens_details",
        "error",
        "message",
        "code",
        "object",
        "sglext",
        "spec_tokens_details",
        "spec_accept_length",
    ]
)
JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(exclude_categories=()), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)


@given(
    st.lists(JSON_VALUES | st.dictionaries(KEYS, JSON_VALUES, max_size=5), max_size=4),
    st.sampled_from([200, 400]),
)
def test_no_json_whatever_can_keep_a_request_from_its_row(values: list[Any], status: int) -> None:
    row = arrow_row(decoded(*(event(value) for value in values), status=status))
    assert row["outcome"] in set(Outcome)


@given(st.lists(st.binary(max_size=60), max_size=4), st.sampled_from([200, 400]))
def test_no_bytes_whatever_can_keep_a_request_from_its_row(blocks: list[bytes], status: int) -> None:
    assert arrow_row(decoded(*blocks, status=status))["outcome"] != "ok"
