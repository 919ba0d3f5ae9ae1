"""The table `workers`: what each load worker can say of itself in each execution of a cell. See docs/client.md."""

import pyarrow as pa

from loadgen.schema import CELL_KEY, Column, Table

_STR = pa.string()
_I64 = pa.int64()
_I32 = pa.int32()
_F64 = pa.float64()

# One column a line, to be read as a table.
# fmt: off
WORKERS = Table(
    "workers",
    "one load worker's part of one execution of a cell: what it can say of itself",
    (
        *CELL_KEY,
        Column("worker", _STR, "", "Its name, as in `requests`."),
        Column("host", _STR, "", "Host it ran on."),
        Column("pid", _I64, "", "Its process."),
        Column("cores", pa.list_(_I32), "", "Cores that the measuring thread could use; empty where the system does not say."),
        Column("is_pinned", pa.bool_(), "", "Whether that is one core, reserved for it."),
        Column("transport", _STR, "", "raw (our own client) or aiohttp."),
        Column("streams", _I32, "", "Its part of the closed loop's streams.", "open loop"),
        Column("wall_s", _F64, "s, real time", "From the first request to the end of the last; what follows is of this time."),
        Column("cpu_s", _F64, "s", "CPU that the measuring thread used."),
        Column("cpu_steal_share", _F64, "", "Time that the hypervisor took from its cores, of all.", "the system does not say"),
        Column("voluntary_switches", _I64, "", "Times that it slept until something came."),
        Column("involuntary_switches", _I64, "", "Times that it was put off its core for another."),
        Column("gc_pauses", _I32, "", "Collections of Python's garbage; the collector is off within a cell."),
        Column("gc_pause_max_ms", _F64, "ms", "The longest of them; 0: none."),
        Column("requests", _I64, "", "Requests that it sent."),
        Column("unsent_requests", _I64, "", "Open loop: requests that were due, waited for max_in_flight, and had not been sent when the window closed; they have no row."),
        Column("new_connections", _I64, "", "Requests that waited for a new connection."),
        Column("resends", _I64, "", "Requests sent again because the server had closed the idle connection."),
        Column("reads", _I64, "", "Network reads of response bodies."),
        Column("unstamped_reads", _I64, "", "Of these, without a kernel stamp."),
        Column("read_bytes", _I64, "bytes", "What they brought."),
        Column("chunks", _I64, "", "Chunks with text."),
        Column("shared_chunks", _I64, "", "Of these, those whose read went on with a later event: their arrival is an upper bound."),
        Column("read_lag_p50_ms", _F64, "ms", "Median of how much later it read bytes than the kernel had them.", "no read had a kernel stamp"),
        Column("read_lag_p99_ms", _F64, "ms", "99th percentile of that lag.", "no read had a kernel stamp"),
        Column("read_lag_max_ms", _F64, "ms", "Greatest such lag.", "no read had a kernel stamp"),
        Column("loop_lag_p99_ms", _F64, "ms", "99th percentile of how late it woke for a timer of 10 ms.", "too short for a sample"),
        Column("send_lag_p50_ms", _F64, "ms", "Median of sent - scheduled.", "nothing sent"),
        Column("send_lag_p99_ms", _F64, "ms", "99th percentile of sent - scheduled.", "nothing sent"),
        Column("send_lag_max_ms", _F64, "ms", "Greatest sent - scheduled.", "nothing sent"),
        Column("first_sent_ns", _I64, "ns, monotonic", "When its first request went out.", "nothing sent"),
        Column("decode_s", _F64, "s", "What understanding the answers took, after the last had ended."),
    ),
)
# fmt: on
