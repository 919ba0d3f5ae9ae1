"""Answers in one piece: the JSON of chat and text completions, and both forms of SGLang's own /generate."""

from collections.abc import Callable
from typing import Any

from loadgen.sim import wire
from loadgen.sim.answers import Answer
from loadgen.sim.scheduler import Sequence
from loadgen.sim.wire import View

_STREAM_ONLY = ("spec_cap_length", "spec_block_accept_length", "spec_cap_lens_histogram")  # not in meta_info


def chat_json(answer: Answer, view: View, seq: Sequence) -> dict[str, Any]:
    """A chat completion."""
    message = {
        "role": "assistant",
        "content": wire.content_text(answer, view, seq.generated),
        "reasoning_content": wire.reasoning_text(answer, view, seq.generated) or None,
    }
    whole = _completion(answer, view, seq, {"message": message}, chat=True)
    found = wire.extensions(view, seq)
    return {**whole, "sglext": found} if found else whole


def completion_json(answer: Answer, view: View, seq: Sequence) -> dict[str, Any]:
    """A text completion."""
    return _completion(answer, view, seq, {"text": _shown(answer, seq)}, chat=False)


class Native:
    """/generate. `unix_s` turns simulated seconds into the server's own Unix time."""

    def __init__(self, unix_s: Callable[[float], float], metrics: bool) -> None:
        self._unix_s = unix_s
        self._metrics = metrics

    def json(self, answer: Answer, view: View, seq: Sequence) -> dict[str, Any]:
        """Text and tokens so far, and the account of the request."""
        return {
            "text": _shown(answer, seq),
            "output_ids": list(answer.ids[: seq.generated]),
            "meta_info": self._meta(answer, view, seq),
        }

    def encoder(self, answer: Answer, view: View, seq: Sequence) -> wire.Encoder:
        """Events of a stream; each holds the whole text so far."""
        return _NativeEncoder(self, answer, view, seq)

    def _meta(self, answer: Answer, view: View, seq: Sequence) -> dict[str, Any]:
        admitted_s = seq.arrival_s if seq.admitted_s is None else seq.admitted_s
        first_s = seq.arrival_s if seq.first_token_s is None else seq.first_token_s
        cached = {"device": seq.cached_tokens, "host": 0} if seq.cached_tokens else None
        return {
            "id": view.rid,
            "finish_reason": _finish_object(answer, seq),
            "prompt_tokens": len(seq.prompt_ids),
            "weight_version": "default",
            "num_retractions": 0,
            "storage_prefetch_wait": 0.0,
            "storage_staging_wait": 0.0,
            "forward_entry_time": self._unix_s(admitted_s),
            "prefill_finished_time": self._unix_s(first_s),
            "queue_time": admitted_s - seq.arrival_s,
            "reasoning_tokens": 0,
            "completion_tokens": seq.generated,
            "cached_tokens": seq.cached_tokens,
            "cached_tokens_details": cached,
            "dp_rank": None,
            **(self._at_end(view, seq) if seq.end else {}),
        }

    def _at_end(self, view: View, seq: Sequence) -> dict[str, Any]:
        ended_s = seq.ended_s or seq.arrival_s
        first_s = seq.first_token_s
        at_end: dict[str, Any] = {
            "weight_versions": [{"version": "default", "start": 0, "end": seq.generated}],
            "e2e_latency": ended_s - seq.arrival_s,
            **{
                k: v
                for k, v in wire.spec_details(seq, view.proposed_per_step).items()
                if k not in _STREAM_ONLY
            },
            "request_received_ts": self._unix_s(seq.arrival_s),
            "api_server_dispatch_finish_ts": self._unix_s(seq.arrival_s),
            "request_finished_ts": self._unix_s(ended_s),
            "response_sent_to_client_ts": self._unix_s(ended_s),
        }
        if first_s is not None:
            at_end["first_token_latency"] = first_s - seq.arrival_s
            if self._metrics and ended_s > first_s:
                at_end["decode_throughput"] = seq.generated / (ended_s - first_s)
        return at_end


class _NativeEncoder:
    def __init__(self, native: Native, answer: Answer, view: View, seq: Sequence) -> None:
        self._native, self._answer, self._view, self._seq = native, answer, view, seq

    def first(self, stop: int) -> bytes:
        return self.step(0, stop)

    def step(self, start: int, stop: int) -> bytes:  # noqa: ARG002 - cumulative: the whole text each time
        return wire.event(self._native.json(self._answer, self._view, self._seq))

    def last(self, start: int, stop: int) -> bytes:
        return self.step(start, stop) + wire.DONE


def _completion(
    answer: Answer, view: View, seq: Sequence, shown: dict[str, Any], *, chat: bool
) -> dict[str, Any]:
    reason, matched = wire.finish_reason(answer, seq)
    choice = {"index": 0, **shown, "logprobs": None, "finish_reason": reason, "matched_stop": matched}
    versions = [{"version": "default", "start": 0, "end": seq.generated}]
    return {
        "id": view.rid,
        "object": "chat.completion" if chat else "text_completion",
        "created": view.created,
        "model": view.model,
        "choices": [choice],
        "usage": wire.usage(answer, view, seq, seq.generated, chat=chat),
        "metadata": {"weight_version": "default", "weight_versions": versions},
    }


def _shown(answer: Answer, seq: Sequence) -> str:
    end = answer.ends[seq.generated - 1] if seq.generated else 0
    return answer.text[: min(end, answer.visible)]


def _finish_object(answer: Answer, seq: Sequence) -> dict[str, Any] | None:
    if seq.end is None:
        return None
    reason, matched = wire.finish_reason(answer, seq)
    if reason == "abort":
        return {
            "type": "abort",
            "message": "Abort in decode running batch.",
            "status_code": None,
            "err_type": None,
        }
    return (
        {"type": "stop", "matched": matched}
        if reason == "stop"
        else {"type": "length", "length": seq.generated}
    )
