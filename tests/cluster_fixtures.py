"""Servers as programs of our own making, and the pieces that a sweep of one platform needs."""

import contextlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
from scripted_server import closed_port

from cluster.processes import LIFE_VARIABLE
from cluster.servers import PlatformServer
from loadgen.job import CellJob
from loadgen.plan import Cell, Life
from loadgen.prompts.sources import Source
from loadgen.schedule import Shard
from loadgen.spec import Limits, Load, Platform
from loadgen.store import Run

# Answers what readiness asks for; the words of its command line say what is wrong with it.
PROGRAM = """
import http.server, json, os, signal, sys, threading, time

port, *words = sys.argv[1:]
print(json.dumps({"argv": words, "env": dict(os.environ)}), flush=True)
refused = [0]


class Answers(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        models = {"data": [{"id": "m"}]}
        if "locked" in words:
            return self.say(401, {"message": "a key, please"})
        self.say(200, models) if self.path == "/v1/models" else self.say(404, {})

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"] or 0))
        if self.path != "/v1/chat/completions":
            return self.say(404, {})
        if "loading" in words and refused[0] < 3:
            refused[0] += 1
            return self.say(503, {"error": {"message": "Loading model"}})
        if "dumb" in words:
            return self.say(400, {"error": {"message": "no chat template"}})
        self.say(200, {"choices": [{"message": {"content": "Hello."}}], "usage": {"prompt_tokens": 9}})

    def say(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


if "exit" in words:
    print("torch.OutOfMemoryError: no room\\x1b[31m; key sk-hidden; api_key='sk-other'", flush=True)
    sys.exit(1)
if "stubborn" in words:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if "daemon" in words and os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
elif "daemon" in words:
    signal.signal(signal.SIGUSR1, lambda *_: os._exit(0))
    signal.pause()
if "silent" in words:
    signal.pause()
http.server.ThreadingHTTPServer(("127.0.0.1", int(port)), Answers).serve_forever()
"""


def new_run(folder: Path) -> Run:
    return Run.create(folder / "run", config_text="name: t\n", plan={}, environment={})


def program(folder: Path, *words: str) -> list[str]:
    """The command of a server of PROGRAM."""
    path = folder / "server.py"
    path.write_text(PROGRAM, encoding="utf-8")
    return [sys.executable, str(path), "{port}", *words]


def ours(command: list[str], port: int | None = None, **more: Any) -> Platform:
    """A platform whose server is started with `command`."""
    server = {
        "control": "process",
        "endpoint": f"http://127.0.0.1:{port or closed_port()}",
        "command": command,
        "ready_timeout_s": 20.0,
        "stop_timeout_s": 5.0,
        **more,
    }
    return Platform.model_validate({"name": "box", "server": server})


def a_life(**more: Any) -> Life:
    return Life(
        **{"platform": "box", "config": "plain", "axes": {}, "flags": (), "env": {}, "executions": (), **more}
    )


def server_of(folder: Path, *words: str, **more: Any) -> PlatformServer:
    return PlatformServer(ours(program(folder, *words), **more), {}, new_run(folder))


def the_row(server: PlatformServer) -> dict[str, Any]:
    (row,) = server._run.read("servers").to_pylist()
    return dict(row)


def living(server_id: str) -> list[psutil.Process]:
    """Processes that carry the mark of a server life, found without the code under test."""
    return list(_living(server_id))


def _living(server_id: str) -> Iterator[psutil.Process]:
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(LIFE_VARIABLE) == server_id and process.status() != psutil.STATUS_ZOMBIE:
                yield process


def said_at_start(server: PlatformServer) -> dict[str, Any]:
    """What the program saw of its own command line and environment."""
    log = server._run.path / the_row(server)["log_path"]
    first: dict[str, Any] = json.loads(log.read_text(encoding="utf-8").splitlines()[0])
    return first


def cell_job(
    endpoint: str,
    *,
    platform: str = "box",
    worker: str = "box-w0",
    measure_min_s: float = 1,
    model: str = "m",
) -> CellJob:
    """A worker's part of a small load cell on a simulator at time scale 40."""
    load = {"concurrency": [1], "measure_min_s": measure_min_s, "measure_max_s": 800.0, "drain_max_s": 20.0}
    return CellJob(
        cell=Cell(f"{platform}.plain.c1", "load", platform, "plain", "text", 60, 16, 0.0, 1, ignore_eos=True),
        repeat=0,
        run_id="run",
        seed=1,
        shard=Shard(0, 1, 1),
        worker=worker,
        endpoint=endpoint,
        api_key_env=None,
        model=model,
        server_id="s",
        time_scale=40.0,
        load=Load.model_validate({**load, "measure_min_requests": 2}),
        limits=Limits(),
        corpus=Source(),
    )
