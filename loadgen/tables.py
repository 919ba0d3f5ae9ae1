"""The tables of a run: their columns, units and null meanings, and records -> Arrow.

`docs/data.md` is generated from this file (`python -m loadgen.tables`), and a test keeps the two equal.
"""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass

import pyarrow as pa

from loadgen.metrics.meanings import COMPAT, LATENCIES, STATISTICS
from loadgen.record_columns import record_batches
from loadgen.records import RequestRecord
from loadgen.schema import CELL_KEY as _CELL_KEY
from loadgen.schema import SCHEMA_VERSION, Column, Table
from loadgen.worker_table import WORKERS

__all__ = ["SCHEMA_VERSION", "WORKERS", "Column", "Table"]

_STR = pa.string()
_I64 = pa.int64()
_I32 = pa.int32()
_F64 = pa.float64()
_BOOL = pa.bool_()
_STRS = pa.list_(pa.string())
_WORDS = pa.list_(pa.dictionary(pa.int8(), pa.string()))  # few different words, a byte each


# One column a line, to be read as a table.
# fmt: off
REQUESTS = Table(
    "requests",
    "one request sent (warm-up and drain included), load and evaluation alike",
    (
        *_CELL_KEY,
        Column("request_index", _I64, "", "Number of the request in its cell and repeat, from 0; fixes its prompt."),
        Column("platform", _STR, "", "Platform name."),
        Column("server_id", _STR, "", "The server life that answered; key of `servers`."),
        Column("worker", _STR, "", "Load worker that sent it."),
        Column("time_scale", _F64, "", "How many times faster than real the (simulated) server's clock ran; 1 on a real server. Multiply real durations with it to get the server's."),
        Column("simulated", _BOOL, "", "Whether a simulated server answered.", "unknown"),
        Column("phase", _STR, "", "warmup, measure or drain, by the time of sending."),
        Column("problem", _STR, "", "Grading problem asked.", "a load request"),
        Column("scheduled_ns", _I64, "ns, monotonic", "When it was due."),
        Column("sent_ns", _I64, "ns, monotonic", "When it went to a connection; where a new one had to be made, that counts.", "never sent"),
        Column("connected_ns", _I64, "ns, monotonic", "A new connection was ready for it.", "it went out on an open connection, or none was made"),
        Column("written_ns", _I64, "ns, monotonic", "Its last byte was handed to the kernel.", "never, or unknown (fallback transport)"),
        Column("headers_ns", _I64, "ns, monotonic", "Response headers read.", "none came"),
        Column("first_chunk_ns", _I64, "ns, monotonic", "First event of the stream, text or not (a role-only chunk counts here only).", "none came"),
        Column("first_token_ns", _I64, "ns, monotonic", "First chunk with text, reasoning or answer.", "no text came"),
        Column("first_answer_ns", _I64, "ns, monotonic", "First chunk with answer text.", "no answer text came"),
        Column("last_token_ns", _I64, "ns, monotonic", "Last chunk with text.", "no text came"),
        Column("first_choice_ns", _I64, "ns, monotonic", "First event with a choice, with text or without.", "none came"),
        Column("last_choice_ns", _I64, "ns, monotonic", "Last event with a choice; the finish event counts, one with usage alone does not.", "none came"),
        Column("choice_events", _I32, "", "Events with a choice."),
        Column("last_event_ns", _I64, "ns, monotonic", "Last event, [DONE] included.", "none came"),
        Column("done_ns", _I64, "ns, monotonic", "End of the response, or of waiting for it; of a whole answer whose connection was left open, its last byte.", "unknown: the client was lost"),
        Column("outcome", _STR, "", "Exactly one of: ok, connect_error, timeout_first_byte, idle_timeout, total_timeout, http_error, rejected, in_stream_error, truncated_stream, empty_stream, malformed, reset, client_lost, cut."),
        Column("http_status", _I32, "", "Status of the response.", "no response"),
        Column("error", _STR, "", "What the server or the network said (shortened). On an ok request: how its connection ended after the whole answer.", "no error"),
        Column("finish_reason", _STR, "", "As the server gave it: stop, length, abort, ...", "none came"),
        Column("token_source", _STR, "", "continuous_usage: counts per chunk and total are the server's; usage: only the total is.", "no usage came"),
        Column("target_prompt_tokens", _I32, "tokens", "Prompt length asked for.", "not a length-controlled prompt"),
        Column("max_tokens", _I32, "tokens", "Output limit sent."),
        Column("prompt_tokens", _I32, "tokens", "Prompt length by the server's usage, chat template included.", "unknown"),
        Column("output_tokens", _I32, "tokens", "Completion tokens by the server's usage.", "unknown"),
        Column("reasoning_tokens", _I32, "tokens", "Of these, reasoning, as the server counts it (SGLang with speculation: may exceed output_tokens when the answer was cut).", "unknown"),
        Column("cached_tokens", _I32, "tokens", "Prompt tokens taken from the prefix cache.", "unknown (server flag --enable-cache-report)"),
        Column("spec_verify_steps", _I32, "", "Verify steps of speculative decoding.", "unknown or no speculation"),
        Column("spec_accept_length", _F64, "tokens per step", "Output tokens per verify step as the server gives it, bonus token included.", "unknown or no speculation"),
        Column("accept_source", _STR, "", "Where these two come from: spec_tokens_details (chat stream) or meta_info (/generate).", "unknown or no speculation"),
        Column("response_bytes", _I64, "bytes", "Body bytes read."),
        Column("blocks", _I32, "", "Network reads that brought them."),
        Column("resends", _I32, "", "Times it was sent again because the server had closed the idle connection it went out on; the time lost counts."),
        Column("stamp_source", _STR, "", "Whose stamps the arrivals are: kernel (when the bytes came), user (when we read them) or mixed.", "no body was read"),
        Column("shared_events", _I32, "", "Chunks whose read went on with a later event: their arrival is an upper bound."),
        Column("client_lag_max_ns", _I64, "ns", "Greatest of the lags below.", "no read had a kernel stamp"),
        Column("read_lag_us", pa.list_(_I32), "us", "For each read with a kernel stamp: how much later we read it.", "no read had a kernel stamp"),
        Column("chunk_ns", pa.list_(_I64), "ns since sent_ns", "Arrival of each chunk that carries text."),
        Column("chunk_tokens", pa.list_(_I32), "tokens", "Running completion count after each of these chunks.", "the server gave no running count"),
        Column("chunk_kind", _WORDS, "", "reasoning, answer, or both (one event with text of each), for each of these chunks."),
    ),
)

RESPONSES = Table(
    "responses",
    "one answer kept as text: every evaluation answer, and the first few of each load cell",
    (
        *_CELL_KEY,
        Column("request_index", _I64, "", "Key into `requests`."),
        Column("problem", _STR, "", "Grading problem asked.", "a load request"),
        Column("simulated", _BOOL, "", "Whether a simulated server answered.", "unknown"),
        Column("prompt", _STR, "", "The user message sent."),
        Column("reasoning", _STR, "", "Text of the reasoning field(s), joined."),
        Column("content", _STR, "", "Text of the content field, joined."),
        Column("finish_reason", _STR, "", "As the server gave it.", "none came"),
    ),
)

GRADES = Table(
    "grades",
    "one graded answer",
    (
        *_CELL_KEY,
        Column("request_index", _I64, "", "Key into `requests` and `responses`."),
        Column("problem", _STR, "", "Name of the problem; its entry point."),
        Column("simulated", _BOOL, "", "Whether a simulated server answered.", "unknown"),
        Column("extraction_kind", _STR, "", "code, no_code, no_entry_point, truncated, empty_answer, answer_in_reasoning; or no_response."),
        Column("extraction_rule", _STR, "", "Which rule chose the program.", "no program"),
        Column("flags", _STRS, "", "finish_length, delimiter_missing, code_in_reasoning_only, in_reasoning, unparsed."),
        Column("program", _STR, "", "The code that ran.", "no program"),
        Column("verdict", _STR, "", "pass, wrong_answer, runtime_error, compile_error, missing_entry_point, missing_dependency, timeout, memory_limit, output_limit, crashed, protocol_error; or ungraded (the harness could not tell).", "no program was run"),
        Column("mark", _STR, "", "What the report prints: PASS, FAIL, TRUNC, NONE (no program in the answer), UNGRADED, ERROR (the request failed). Only PASS and FAIL speak of the program."),
        Column("message", _STR, "", "First lines of what went wrong.", "nothing went wrong"),
        Column("tests_passed", _I32, "", "Calls that returned what was expected.", "no program was run"),
        Column("tests_total", _I32, "", "Calls of the problem."),
        Column("run_ms", _F64, "ms", "Wall time of the program's process.", "no program was run"),
        Column("output_tokens", _I32, "tokens", "Of the answer, by the server's usage.", "unknown"),
        Column("output_tps", _F64, "tokens/s", "output_tokens over the whole request's time, prefill included, in the server's time.", "unknown"),
        Column("sandbox", _STR, "", "What contained the program.", "no program was run"),
    ),
)

_QUANTILES = tuple(
    column
    for name, (what, unit) in LATENCIES.items()
    for column in (
        *(
            Column(f"{name}_{stat}_ms", _F64, "ms, server's time", f"{what}: {label} over the ok requests sent in the window.", "none of them has it")
            for stat, label in STATISTICS.items()
        ),
        Column(f"{name}_n", _I64, unit, f"The n of the {name} figures.", "no figures"),
    )
)
_COMPAT = tuple(
    Column(f"compat_{name}", _F64, "ms, server's time" if name.endswith("_ms") else "tokens per chunk", f"{tool} would print: {rule}.", "no request gives it: token counts or moments unknown")
    for tool, rules in COMPAT.items()
    for name, rule in rules.items()
)

CELLS = Table(
    "cells",
    "one execution of a cell. Its file is written last: a cell without a row here has not been committed",
    (
        *_CELL_KEY,
        Column("kind", _STR, "", "load or eval."),
        Column("status", _STR, "", "done or failed."),
        Column("failure", _STR, "", "Why it failed.", "it did not"),
        Column("platform", _STR, "", "Platform name."),
        Column("config", _STR, "", "Server config name."),
        Column("axes", _STR, "", "Axis values of the config, as a JSON object."),
        Column("workload", _STR, "", "Workload name (eval: the problem set)."),
        Column("context_tokens", _I32, "tokens", "Prompt length asked for.", "eval"),
        Column("max_tokens", _I32, "tokens", "Output limit."),
        Column("temperature", _F64, "", "Sampling temperature."),
        Column("concurrency", _I32, "", "Closed-loop streams asked for.", "open loop"),
        Column("rate", _F64, "1/s, server's time", "Open-loop requests asked for.", "closed loop, or a trace"),
        Column("arrivals", _STR, "", "How they came: constant, poisson, gamma and its burstiness, or trace-NAME.", "closed loop"),
        Column("server_id", _STR, "", "The server life measured.", "none started"),
        Column("simulated", _BOOL, "", "Whether the server says that it is a simulation.", "none started"),
        Column("time_scale", _F64, "", "Its clock's speed-up; all durations in this table are already multiplied by it.", "none started"),
        Column("started_unix_ns", _I64, "ns since 1970", "When the execution began."),
        Column("window_start_ns", _I64, "ns, monotonic", "Start of the measurement window.", "no window"),
        Column("window_end_ns", _I64, "ns, monotonic", "End of it.", "no window"),
        Column("window_s", _F64, "s, server's time", "Its length.", "no window"),
        Column("sent", _I64, "", "Requests sent, warm-up and drain included: the sum over all outcomes."),
        Column("ok", _I64, "", "Of these, ok."),
        Column("cut", _I64, "", "Of these, cut by the end of the cell."),
        Column("errors", _I64, "", "Of these, neither ok nor cut."),
        Column("outcomes", _STR, "", "Count of each outcome, as a JSON object."),
        Column("n", _I64, "", "Ok requests sent in the window: the n of the latency figures."),
        Column("error_rate", _F64, "", "Errors over ended requests of the window.", "none ended"),
        Column("output_tps", _F64, "tokens/s, server's time", "Output tokens stamped inside the window over its length; those of failed requests do not count.", "no window or token counts unknown"),
        Column("peak_tps", _F64, "tokens/s, server's time", "The same of the busiest part of the window, cut into as many equal parts as it has whole seconds; never below output_tps.", "no window or token counts unknown"),
        Column("request_rate", _F64, "1/s, server's time", "Ok requests ended inside the window over its length.", "no window"),
        Column("compat_output_tps", _F64, "tokens/s, server's time", "What other tools print: all ok output tokens over the time from first send to last end.", "unknown"),
        Column("stream_tps", _F64, "tokens/s, server's time", "Mean over ok requests of output tokens over the whole request's time, prefill included.", "unknown"),
        *_QUANTILES,
        Column("accept_length", _F64, "tokens per step", "Output tokens over verify steps, each summed first; the bonus token of a step and the first token count, as SGLang counts them.", "unknown or no speculation"),
        Column("accept_length_source", _STR, "", "requests: from the details of the window's ok requests; counters: from the change of the servers' counters over the cell, warm-up and drain included.", "unknown or no speculation"),
        Column("prompt_tokens_mean", _F64, "tokens", "Mean prompt length by the server.", "unknown"),
        Column("prompt_length_source", _STR, "", "How the prompts were made to length: tokenizer (the server's), tokenizer_file, usage (within 1 %), or dataset (as long as the data has them).", "eval"),
        Column("prompt_length_error_max", _I64, "tokens", "Largest difference between the prompt length asked for and the server's count.", "unknown, or not length-controlled"),
        Column("output_tokens_mean", _F64, "tokens", "Mean output length by the server.", "unknown"),
        Column("output_length_mismatches", _I64, "requests", "Ok requests of the window whose output is not max_tokens long.", "lengths unknown"),
        Column("cached_fraction", _F64, "", "Cached over prompt tokens of the window's requests.", "unknown"),
        Column("in_flight_mean", _F64, "", "Requests in flight, time average over the window.", "no window"),
        Column("send_lag_p50_ms", _F64, "ms, real time", "Median of sent - scheduled.", "nothing sent"),
        Column("send_lag_p99_ms", _F64, "ms, real time", "99th percentile of sent - scheduled.", "nothing sent"),
        Column("send_lag_max_ms", _F64, "ms, real time", "Greatest of them.", "nothing sent"),
        Column("loop_lag_p99_ms", _F64, "ms, real time", "99th percentile of how late the worker's event loop woke.", "not sampled"),
        Column("workers", _I32, "", "Load workers that shared the cell.", "nothing was measured"),
        Column("worker_cpu", _F64, "cores", "CPU the busiest worker used, over the cell.", "not sampled"),
        Column("client_lag_p99_ms", _F64, "ms, real time", "99th percentile of how much later the client read bytes than the kernel had them; of the worker where it is greatest.", "no read had a kernel stamp"),
        Column("stamp_source", _STR, "", "Whose stamps the arrivals are: kernel (when the bytes came), user (when we read them) or mixed.", "nothing was read"),
        Column("unstamped_read_share", _F64, "", "Reads without a kernel stamp, of all.", "nothing was read"),
        Column("shared_chunk_share", _F64, "", "Chunks whose read went on with a later event, of all: their arrival is an upper bound.", "no chunk came"),
        Column("cpu_steal_share", _F64, "", "Time that the hypervisor took from the cores of a worker, of all; of the worker where it is greatest.", "the system does not say"),
        Column("start_spread_ms", _F64, "ms, real time", "From the first request of the first worker to that of the last; the ramp is in it.", "nothing sent"),
        Column("worker_chunk_rate", _F64, "1/s, real time", "Chunks that came to the busiest worker in the window, a second.", "no window"),
        Column("client_load_share", _F64, "", "That rate over the ceiling that `loadgen calibrate` measured on this host at the nearest shape.", "not calibrated for such a shape"),
        Column("server_lag_p99_ms", _F64, "ms, real time", "How late the simulated server itself was; it says so in /server_info.", "not a simulated server"),
        *_COMPAT,
        Column("passed", _I32, "", "Programs that passed.", "not an evaluation, or not graded yet"),
        Column("graded", _I32, "", "Programs that were run and judged: PASS or FAIL.", "not an evaluation, or not graded yet"),
        Column("truncated", _I32, "", "Answers cut by max_tokens; they count neither as passed nor as failed programs.", "not an evaluation, or not graded yet"),
        Column("problems", _I32, "", "Problems asked.", "not an evaluation"),
        Column("saturation", _STR, "", "The verdict of the search that this cell is the knee of. What more streams ran into: server, queue, client, max (the config's own bound) or unknown.", "not the knee of a search"),
        Column("saturation_detail", _STR, "", "It in words.", "not the knee of a search"),
        Column("checks", _STRS, "", "Stated doubts about the numbers of this row, by name; empty: valid."),
        Column("check_details", _STRS, "", "One sentence for each of them."),
    ),
)

SERVERS = Table(
    "servers",
    "one server life: a start, or an attempt of one",
    (
        Column("server_id", _STR, "", "Id of the life."),
        Column("platform", _STR, "", "Platform name."),
        Column("config", _STR, "", "Server config name."),
        Column("axes", _STR, "", "Axis values asked for, as a JSON object."),
        Column("control", _STR, "", "process or external."),
        Column("state", _STR, "", "ready, stopped, failed, died or lost (its head ended without stopping it)."),
        Column("failure", _STR, "", "Why it failed or died.", "it did not"),
        Column("pid", _I64, "", "Process id on its host.", "external, or never started"),
        Column("command", _STRS, "", "Command line, secrets masked; empty for external."),
        Column("env", _STR, "", "Environment set for it, secrets masked, as a JSON object."),
        Column("endpoint", _STR, "", "Base URL; of several, with spaces between."),
        Column("model", _STR, "", "Model id it answers to.", "never ready"),
        Column("version", _STR, "", "Version it reports.", "unknown"),
        Column("simulated", _BOOL, "", "Whether it says that it is a simulation.", "never ready"),
        Column("time_scale", _F64, "", "Speed-up of its clock; 1 on a real server.", "never ready"),
        Column("started_unix_ns", _I64, "ns since 1970", "When it was started, or found."),
        Column("ready_s", _F64, "s, real time", "Start to the first real completion.", "never ready"),
        Column("stopped_unix_ns", _I64, "ns since 1970", "When it was gone.", "still running, or external"),
        Column("exit_code", _I32, "", "Exit code; negative: signal.", "still running, external or unknown"),
        Column("max_running_requests", _I64, "", "The effective limit that it reports.", "unknown"),
        Column("end_marks", _STR, "", "How its streams end, as a probe before the first cell found it: finish_reason, [DONE], or both. Answers without them count as cut short.", "the probe did not end well: finish_reason is taken"),
        Column("token_counts", _STR, "", "What the probe's stream said of tokens: continuous_usage (a running count on every chunk), usage (the total only), none.", "the probe did not end well"),
        Column("spec_details", _BOOL, "", "Whether the probe's stream had details of speculative decoding.", "the probe did not end well"),
        Column("proof", _STR, "", "For each axis: verified, mismatch or unverifiable, as a JSON object."),
        Column("server_info", _STR, "", "Its own report of its settings, secrets masked, as JSON.", "it gives none"),
        Column("log_path", _STR, "", "Its log, relative to the run folder.", "external"),
        Column("log_tail", _STR, "", "Last lines of the log, for a life that failed or died.", "it did neither"),
    ),
)

SERVER_SAMPLES = Table(
    "server_samples",
    "one reading of a server's own counters, before and after a cell",
    (
        *_CELL_KEY,
        Column("server_id", _STR, "", "Key of `servers`."),
        Column("simulated", _BOOL, "", "Whether a simulated server answered.", "unknown"),
        Column("moment", _STR, "", "before or after the cell."),
        Column("unix_ns", _I64, "ns since 1970", "When it was read."),
        Column("running_requests", _I64, "", "Requests running.", "unknown"),
        Column("queued_requests", _I64, "", "Requests waiting.", "unknown"),
        Column("prompt_tokens_total", _F64, "tokens", "Counter since the server's start.", "unknown"),
        Column("output_tokens_total", _F64, "tokens", "Counter since the server's start.", "unknown"),
        Column("cached_tokens_total", _F64, "tokens", "Counter since the server's start.", "unknown"),
        Column("spec_verify_steps_total", _F64, "", "Counter since the server's start.", "unknown or no speculation"),
    ),
)

GPUS = Table(
    "gpus",
    "one reading of one GPU",
    (
        Column("platform", _STR, "", "Platform name."),
        Column("unix_ns", _I64, "ns since 1970", "When it was read."),
        Column("gpu", _I32, "", "Index of the GPU on its host."),
        Column("utilization", _F64, "", "Busy fraction.", "unknown"),
        Column("memory_used_bytes", _I64, "bytes", "Memory in use.", "unknown"),
        Column("power_w", _F64, "W", "Power drawn.", "unknown"),
    ),
)

HOSTS = Table(
    "hosts",
    "one host that made load or coordinated it",
    (
        Column("host", _STR, "", "Its name."),
        Column("role", _STR, "", "head or client."),
        Column("session", _STR, "", "Which invocation on this run folder."),
        Column("cpus", _I32, "", "Logical processors."),
        Column("memory_bytes", _I64, "bytes", "Memory in all."),
        Column("kernel", _STR, "", "Operating system and release."),
        Column("python", _STR, "", "Python version."),
        Column("ray", _STR, "", "Ray version.", "run without Ray"),
        Column("load_average", _F64, "", "One-minute load when the run began.", "unknown"),
        Column("worker_niceness", _I32, "", "Niceness of the load workers; above 0 their stamps are late.", "unknown"),
        Column("max_open_files", _I64, "", "Descriptor limit of the load workers.", "unknown"),
        Column("ephemeral_ports", _I32, "", "Ports that its connections may use to one endpoint (ip_local_port_range).", "unknown"),
        Column("listen_backlog", _I32, "", "somaxconn: connections that may wait for a server on this host to take them.", "unknown"),
        Column("cpu_governor", _STR, "", "How its cores choose their frequency, each different word once.", "unknown, or not to be chosen (most virtual machines)"),
        Column("clock_source", _STR, "", "What the kernel reads the time from.", "unknown"),
        Column("kernel_stamps", _BOOL, "", "Whether a read over its loopback came with a kernel receive stamp.", "not tried"),
        Column("memory_available_bytes", _I64, "bytes", "Memory that was free to use when the run began.", "unknown"),
        Column("disk_free_bytes", _I64, "bytes", "Free on the run folder's disk then.", "unknown"),
        Column("calibrated_shapes", _I32, "", "Shapes whose ceiling `loadgen calibrate` has measured on it.", "unknown"),
    ),
)

JOURNAL = Table(
    "journal",
    "one thing that happened: starts, stops, failures, decisions",
    (
        Column("seq", _I64, "", "Order within the run."),
        Column("session", _STR, "", "Which invocation on this run folder."),
        Column("unix_ns", _I64, "ns since 1970", "When."),
        Column("event", _STR, "", "run_started, run_resumed, run_ended, server_starting, server_ready, server_failed, server_stopped, server_died, orphan_stopped, cell_started, cell_committed, cell_failed, cell_skipped, cell_client_limited, server_form, saturation, graded, interrupted, warning."),
        Column("platform", _STR, "", "Platform concerned.", "the run as a whole"),
        Column("server_id", _STR, "", "Server life concerned.", "none"),
        Column("cell_id", _STR, "", "Cell concerned.", "none"),
        Column("repeat", _I32, "", "Repeat concerned.", "none"),
        Column("detail", _STR, "", "In words.", "nothing to add"),
    ),
)

# @@on
# fmt: on

TABLES: tuple[Table, ...] = (
    REQUESTS,
    RESPONSES,
    GRADES,
    CELLS,
    SERVERS,
    SERVER_SAMPLES,
    WORKERS,
    GPUS,
    HOSTS,
    JOURNAL,
)


@dataclass(frozen=True, slots=True)
class RequestContext:
    """What all requests of one cell execution share in the `requests` table."""

    cell_id: str
    repeat: int
    platform: str
    server_id: str
    worker: str
    time_scale: float
    simulated: bool | None = None


# A batch of this many chunks is some 20 MB.
_BATCH_ENTRIES = 1 << 20


def request_batches(
    records: Iterable[RequestRecord], context: RequestContext, max_entries: int = _BATCH_ENTRIES
) -> Iterator[pa.RecordBatch]:
    """Records of one worker as batches of rows of `requests`; chunk arrivals become offsets from `sent_ns`.

    `records` is read one at a time and none is kept, so that they can be decoded as they are read.
    """
    return record_batches(records, REQUESTS.schema, asdict(context), max_entries)


def requests_table(records: Iterable[RequestRecord], context: RequestContext) -> pa.Table:
    """All of `request_batches` as one table."""
    return pa.Table.from_batches(request_batches(records, context), schema=REQUESTS.schema)


def markdown() -> str:
    """The data dictionary as Markdown: `docs/data.md`."""
    lines = [
        "# The tables of a run",
        "",
        "Generated by `python -m loadgen.tables > docs/data.md`; do not edit.",
        "",
        (
            f"Schema version {SCHEMA_VERSION}. Each table is a directory of Parquet files in the run folder: "
            "`pyarrow.dataset.dataset('RUN/requests')` opens one. Times in `ns, monotonic` are differences of one host's "
            "monotonic clock and mean nothing alone. *Server's time* is real time on a real server, and simulated time "
            "(real time x `time_scale`) on a simulated one. Unknown is null, never 0."
        ),
    ]
    for table in TABLES:
        lines += ["", f"## {table.name}", "", f"A row is {table.one_row}.", ""]
        lines += ["| column | type | unit | meaning | null means |", "|---|---|---|---|---|"]
        lines += [
            f"| `{c.name}` | {str(c.type).replace('<item: ', '<')} | {c.unit} | {c.meaning} | {c.null or 'never null'} |"
            for c in table.columns
        ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    print(markdown(), end="")  # noqa: T201 - this is the generator's output
