"""The journal of a run: what happened, written at once, so that a crash leaves everything up to it."""

import os
import secrets
import traceback
from typing import Any

from cluster.screen import harmless
from loadgen.clock import unix_ns
from loadgen.redact import mask_text
from loadgen.store import Run
from loadgen.tables import JOURNAL

_FAULTS = "logs/faults.log"


class Journal:
    """Appends to the `journal` table of a run. One file for each session (invocation), rewritten whole each time."""

    def __init__(self, run: Run) -> None:
        self.session = f"{unix_ns() // 1_000_000_000}-{os.getpid()}-{secrets.token_hex(2)}"
        self._run = run
        earlier = run.read("journal")["seq"].to_pylist()
        self._next = max(earlier, default=-1) + 1
        self._rows: list[dict[str, Any]] = []

    def add(
        self,
        event: str,
        detail: str | None = None,
        *,
        platform: str | None = None,
        server_id: str | None = None,
        cell: tuple[str, int] | None = None,
    ) -> None:
        """One thing that happened; on disk when this returns."""
        cell_id, repeat = cell or (None, None)
        self._rows.append(
            {
                "seq": self._next,
                "session": self.session,
                "unix_ns": unix_ns(),
                "event": event,
                "platform": platform,
                "server_id": server_id,
                "cell_id": cell_id,
                "repeat": repeat,
                "detail": None if detail is None else harmless(detail),
            }
        )
        self._next += 1
        self._run.write_rows(JOURNAL, f"session-{self.session}", self._rows)

    def fault(self, error: Exception) -> str:
        """An exception that nothing here foresees, in words; its traceback goes into the run folder's log of faults."""
        trace = "".join(traceback.format_exception(error))
        with (self._run.path / _FAULTS).open("a", encoding="utf-8") as log:
            log.write(f"session {self.session}, {unix_ns()} ns\n{mask_text(harmless(trace))}\n")
        words = mask_text(str(error).strip().partition("\n")[0])
        return f"{type(error).__name__}: {words} (not foreseen by loadgen; the traceback is in {_FAULTS})"
