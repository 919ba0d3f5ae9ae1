"""Tables -> the figures of a cell. Pure; any figure can be computed again from a finished run.

Conventions. Latencies are over the ok requests sent in the measurement window: from when they were due in open loop,
from when they were sent in closed loop. All durations are in the server's time: real time x time scale. What is
unknown is None.
"""

from loadgen.metrics.accounting import accounting_faults
from loadgen.metrics.columns import CHUNK_LISTS
from loadgen.metrics.summary import summarize
from loadgen.metrics.window import Window

__all__ = ["CHUNK_LISTS", "Window", "accounting_faults", "summarize"]
