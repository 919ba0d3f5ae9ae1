"""How the servers of the conformance tests are started: the flags, the same for every make, and when."""

from pathlib import Path

from live_server import LiveServer, free_port

API_KEY = "conformance-key"
SEED = 20260
CONTEXT_TOKENS = 4096

COMMON_FLAGS = (
    "--served-model-name", "conformance", "--random-seed", str(SEED), "--reasoning-parser", "kimi_k2",
    "--context-length", str(CONTEXT_TOKENS), "--enable-metrics", "--enable-cache-report",
)  # fmt: skip
PLAIN_FLAGS = ("--max-running-requests", "2", "--max-queued-requests", "1")
NGRAM_FLAGS = (
    "--max-running-requests", "4", "--api-key", API_KEY, "--decode-log-interval", "4",
    "--speculative-algorithm", "NGRAM", "--speculative-num-draft-tokens", "8",
    "--speculative-ngram-max-bfs-breadth", "1",
)  # fmt: skip

Command = list[str]


class Servers:
    """Starts servers of one make (`program`) when they are asked for, and again when a test has ended one."""

    def __init__(self, program: Command, logs: Path, ready_timeout_s: float) -> None:
        self.program = program
        self.logs = logs
        self.ready_timeout_s = ready_timeout_s
        self.started: dict[tuple[str, ...], LiveServer] = {}

    def get(self, flags: tuple[str, ...], api_key: str | None = None) -> LiveServer:
        server = self.started.get(flags)
        if server is None or not server.running:
            port = free_port()
            command = [*self.program, "--port", str(port), *COMMON_FLAGS, *flags]
            server = LiveServer(command, port, self.logs / f"server-{port}.log", api_key)
            server.wait_ready(self.ready_timeout_s)
            self.started[flags] = server
        return server

    def stop(self) -> None:
        for server in self.started.values():
            if server.running:
                server.stop()
