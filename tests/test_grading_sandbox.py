"""Each promise of the sandbox's docstring, and reported attacks. Nothing hostile runs outside of `run_program`."""

import ast
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil
import pytest

from loadgen.grading.problems import Call
from loadgen.grading.sandbox import Limits, Verdict, run_program

CASES = sorted((Path(__file__).parent / "fixtures/grading/sandbox").glob("*.json"))
HONEST = "from collections import Counter\ndef f(x):\n    return Counter(x)['a']"
HONEST_CALLS = [Call(("banana",), 3)]
QUICK = Limits(wall_s=5.0, cpu_s=3.0)


def probe(body, expected=None, limits=QUICK):
    """Runs `body` as the inside of a function of no arguments."""
    lines = "\n".join("    " + line for line in body.strip().splitlines())
    return run_program(f"import os, sys\ndef f():\n{lines}\n", "f", [Call((), expected)], limits)


LAYERS = probe("return 1", 1).sandbox
HAS_NAMESPACES = LAYERS.startswith("namespaces")
STOPS_A_FORK = probe("os.fork()").verdict is Verdict.RUNTIME_ERROR
needs_namespaces = pytest.mark.skipif(not HAS_NAMESPACES, reason=LAYERS)
needs_filter = pytest.mark.skipif("system call filter" not in LAYERS, reason=LAYERS)


@pytest.fixture(autouse=True)
def leaves_nothing(tmp_path, monkeypatch):
    """No process, descriptor or directory is left by any run."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    me = psutil.Process()
    files_before = me.num_fds()
    yield
    assert me.children(recursive=True) == []
    assert list(tmp_path.iterdir()) == []
    assert me.num_fds() == files_before


def literal(value):
    return ast.literal_eval(value["$py"]) if isinstance(value, dict) and value.keys() == {"$py"} else value


@pytest.mark.parametrize("path", CASES, ids=lambda path: path.stem)
def test_reported_programs(path, monkeypatch):
    """Hostile, odd and honest programs: the verdict is one of those named, and nothing that must not happen does."""
    monkeypatch.setenv("CANARY_API_KEY", "sk-canary-000")
    case = json.loads(path.read_text())
    if case["kind"] in ("attack", "probe") and not (HAS_NAMESPACES and STOPS_A_FORK):
        pytest.skip(f"not attacked here: {LAYERS}")
    calls = [Call(tuple(map(literal, args)), literal(expected)) for args, expected in case["tests"]]
    target = Path("/tmp/CANARY_CHMOD_TARGET")
    target.write_text("12345")
    before = target.stat()
    limit_s = min(2.0, case["timeout_s"])
    try:
        result = run_program(case["code"], case["entry_point"], calls, Limits(wall_s=limit_s, cpu_s=limit_s))
        after = target.stat()
    finally:
        target.unlink()
    assert result.verdict in case["expect_verdict_in"], result.message
    assert (after.st_mode, after.st_mtime_ns, after.st_size) == (
        before.st_mode,
        before.st_mtime_ns,
        before.st_size,
    )
    assert list(Path("/tmp").glob("CANARY*")) == []
    if {"type": "next_case_affected"} in case["must_not_happen"]:
        assert run_program(HONEST, "f", HONEST_CALLS, QUICK).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("program", "verdict"),
    [
        ("def f(x): return 3", Verdict.PASS),
        ("def f(x): return 4", Verdict.WRONG_ANSWER),
        ("def f(x): raise ValueError('no')", Verdict.RUNTIME_ERROR),
        ("def f(x): raise SystemExit(0)", Verdict.RUNTIME_ERROR),
        ("raise SystemExit(0)", Verdict.RUNTIME_ERROR),
        ("def f(x): return f(x)", Verdict.RUNTIME_ERROR),
        ("def f(x): return int(input())", Verdict.RUNTIME_ERROR),
        ("def f(x) return 3", Verdict.COMPILE_ERROR),
        ("\0", Verdict.COMPILE_ERROR),
        ("def g(x): return 3", Verdict.MISSING_ENTRY_POINT),
        ("f = 3", Verdict.MISSING_ENTRY_POINT),
        ("import no_such_module", Verdict.MISSING_DEPENDENCY),
        ("import sys\nsys.exit()", Verdict.RUNTIME_ERROR),
        ("import os\ndef f(x): os._exit(0)", Verdict.CRASHED),
        ("import os\nos._exit(0)", Verdict.CRASHED),
        ("import ctypes\ndef f(x): ctypes.string_at(0)", Verdict.CRASHED),
        ("def f(x): return [0] * 10**9", Verdict.MEMORY_LIMIT),
        ("def f(x): return 'x' * 2_000_000", Verdict.OUTPUT_LIMIT),
    ],
)
def test_verdicts(program, verdict):
    result = run_program(program, "f", [Call(("banana",), 3)], QUICK)
    assert result.verdict is verdict, result.message
    assert (result.message is None) == (verdict is Verdict.PASS)
    assert (result.tests_passed, result.tests_total) == (int(verdict is Verdict.PASS), 1)


def test_a_method_of_a_class():
    program = "class Solution:\n    def f(self, x):\n        return x + 1"
    assert run_program(program, "Solution.f", [Call((1,), 2)], QUICK).verdict is Verdict.PASS


def test_every_call_is_counted_and_the_first_failure_is_the_verdict():
    calls = [Call((n,), n) for n in range(5)]
    result = run_program("def f(x): return x if x % 2 else 1 // x - 1", "f", calls, QUICK)
    assert (result.verdict, result.tests_passed, result.tests_total) == (Verdict.RUNTIME_ERROR, 2, 5)
    assert result.message.startswith("call 1 of 5: ZeroDivisionError")


@pytest.mark.parametrize("body", ["while True: pass", "import time\ntime.sleep(60)"])
def test_time_is_limited(body):
    began = time.monotonic()
    result = probe(body, None, Limits(wall_s=1.5, cpu_s=1.0))
    assert result.verdict is Verdict.TIMEOUT
    assert time.monotonic() - began < 10  # it would be 60 s, or for ever


def test_memory_and_files_and_descriptors_are_limited():
    assert probe("bytearray(600 << 20)").verdict is Verdict.MEMORY_LIMIT
    big_file = "open('a', 'wb').write(bytes(17 << 20))"
    assert "File too large" in probe(big_file).message
    assert "Too many open files" in probe("return len([open('/dev/null') for _ in range(300)])").message


@needs_namespaces
def test_the_memory_disk_is_limited():
    body = "for n in range(9):\n    with open(str(n), 'wb') as file:\n        file.write(bytes(15 << 20))"
    assert "No space left" in probe(body).message


def test_input_is_at_its_end_and_output_goes_nowhere(capfd):
    assert probe("print('x' * 100)\nos.write(2, b'y')\nreturn sys.stdin.read()", "").verdict is Verdict.PASS
    assert capfd.readouterr() == ("", "")


def test_the_environment_is_empty_and_arguments_say_nothing(monkeypatch):
    monkeypatch.setenv("CANARY_API_KEY", "sk-canary-000")
    body = "return [set(os.environ) - {'LC_CTYPE'}, 'solution' in sys.modules, 'loadgen' in sys.modules]"
    result = probe(body, [set(), True, False])  # Python itself sets LC_CTYPE when it has no locale
    assert result.verdict is Verdict.PASS, result.message


@needs_filter
@pytest.mark.parametrize(
    "body",
    [
        "os.fork()",
        "os.execv('/bin/true', ['true'])",
        "os.posix_spawn('/bin/true', ['true'], {})",
        "import subprocess\nsubprocess.run(['/bin/true'])",
        "import socket\nsocket.socket()",
        "import socket\nsocket.socket(socket.AF_UNIX)",
        "os.kill(os.getppid(), 9)",
        "os.kill(-1, 9)",
        "os.pidfd_open(os.getpid())",
        "import resource\nresource.prlimit(os.getppid() or 2, resource.RLIMIT_CPU)",
        "os.setpriority(os.PRIO_USER, 0, 19)",
        "os.memfd_create('x')",
    ],
)
def test_the_filter_refuses(body):
    assert "Operation not permitted" in probe(body).message


@needs_filter
def test_threads_and_event_loops_still_work():
    body = (
        "import asyncio, threading\nasync def one():\n    return 1\nout = []\n"
        "t = threading.Thread(target=out.append, args=(2,))\nt.start()\nt.join()\n"
        "import signal\nsignal.raise_signal(signal.SIGCHLD)\nreturn [asyncio.run(one()), *out]"
    )
    assert probe(body, [1, 2]).verdict is Verdict.PASS


@needs_namespaces
def test_the_hosts_files_are_out_of_reach(tmp_path_factory):
    secret = tmp_path_factory.mktemp("host") / "secret"
    secret.write_text("canary-answer-5150")
    package = Path(run_program.__code__.co_filename).parent
    places = [
        secret,
        Path(__file__),
        package / "problems.py",
        Path("/etc/passwd"),
        Path("/proc/self/environ"),
    ]
    paths = [str(place) for place in places]
    assert all(place.exists() for place in places)
    assert probe(f"return [os.path.exists(p) for p in {paths}]", [False] * len(paths)).verdict is Verdict.PASS
    body = "bad = []\nfor d in [os.path.dirname(os.__file__), '/usr', '/lib']:\n    try:\n        open(d + '/x', 'w')\n"
    body += "        bad.append(d)\n    except OSError as e:\n        assert e.errno == 30, e\nreturn bad"
    assert probe(body, []).verdict is Verdict.PASS


@needs_namespaces
def test_it_is_alone_in_its_namespaces():
    assert probe("return [os.getpid(), os.getppid(), os.getuid()]", [1, 0, 65534]).verdict is Verdict.PASS


def test_no_datagram_leaves():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.settimeout(0.3)
        port = listener.getsockname()[1]
        probe(
            f"import socket\nsocket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', {port}))"
        )
        with pytest.raises(TimeoutError):
            listener.recv(10)


FORGER = """
import os, stat
def channels():
    return [n for n in range(3, 64) if is_pipe(n)]
def is_pipe(n):
    try:
        return stat.S_ISFIFO(os.fstat(n).st_mode)
    except OSError:
        return False
def say(data):
    for n in channels():
        try:
            os.write(n, data)
        except OSError:
            pass
"""


@pytest.mark.parametrize(
    "program",
    [
        FORGER + "say(b'{\"value\":true}\\n' * 4)\ndef f(x): return 0",
        FORGER + "def f(x):\n    say(b'{\"value\":3}\\n')\n    return 3",
        FORGER + 'def f(x):\n    say(b\'{"verdict":"pass"}\\n\')\n    os._exit(0)',
        FORGER + "def f(x):\n    say(b'{\"value\":3')\n    os._exit(0)",
        FORGER + "def f(x):\n    say(b'[' * 100000 + b'\\n')\n    os._exit(0)",
        FORGER + "def f(x):\n    say(b'\\xff\\n')\n    os._exit(0)",
        FORGER + "def f(x):\n    for _ in range(100): say(b' ' * 60000)\n    return 3",
        FORGER + 'def f(x):\n    say(b\'{"error":"pass","message":""}\\n\')\n    os._exit(0)',
    ],
)
def test_forged_frames_are_a_protocol_error(program):
    result = run_program(program, "f", [Call(("a",), 3), Call(("b",), 3)], QUICK)
    assert result.verdict is Verdict.PROTOCOL_ERROR, result


def test_a_frame_after_the_last_call_is_a_protocol_error():
    program = (
        FORGER + "import time\ndef f(x):\n    say(b'{\"value\":3}\\n')\n    time.sleep(0.5)\n    return 3"
    )
    result = run_program(program, "f", [Call(("a",), 3)], QUICK)
    assert (result.verdict, result.message) == (Verdict.PROTOCOL_ERROR, "more frames than calls")


def test_a_program_cannot_speak_for_the_guard():
    said = '{"nonce":"","started":"forged","ended":0}'
    program = FORGER + f"def f(x):\n    for n in range(64):\n        try: os.write(n, b'{said}\\n')\n"
    program += "        except OSError: pass\n    return 3"
    result = run_program(program, "f", [Call(("a",), 3)], QUICK)
    assert result.verdict is Verdict.PROTOCOL_ERROR
    assert result.sandbox != "forged"


def test_closing_its_channel_ends_a_program_at_once():
    began = time.monotonic()
    result = probe("os.closerange(0, 256)\nimport time\ntime.sleep(60)", None, Limits(wall_s=30))
    assert result.verdict is Verdict.PROTOCOL_ERROR
    assert time.monotonic() - began < 15  # not its 30 s


def test_hostile_text_does_not_reach_a_message_raw():
    message = probe("raise ValueError('\\x1b[2J\\n\\u202e' + 'x' * 10**5)").message
    assert message.isascii()
    assert message.isprintable()
    assert len(message) < 1000


def test_programs_run_side_by_side_from_threads():
    verdicts = []

    def run():
        verdicts.append(run_program(HONEST, "f", HONEST_CALLS, QUICK).verdict)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert verdicts == [Verdict.PASS] * 4


def test_a_harness_that_cannot_start_the_child_leaves_the_program_ungraded(monkeypatch, tmp_path_factory):
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    result = run_program(HONEST, "f", HONEST_CALLS, QUICK)
    assert (result.verdict, result.tests_passed) == (Verdict.UNGRADED, None)
    broken = tmp_path_factory.mktemp("bin") / "python"
    broken.write_text("#!/bin/sh\necho cannot start >&2\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(broken))
    result = run_program(HONEST, "f", HONEST_CALLS, QUICK)
    assert (result.verdict, result.message) == (Verdict.UNGRADED, "cannot start")


WITHOUT_NAMESPACES = """
import json, os, sys
from loadgen.grading.problems import Call
from loadgen.grading.sandbox import Limits, run_program
programs = json.load(sys.stdin)
results = [run_program(p, "f", [Call((), 1)], Limits(wall_s=2.0, cpu_s=1.0)) for p in programs]
print(json.dumps([[r.verdict, r.message, r.sandbox] for r in results]))
"""


@pytest.mark.skipif(
    shutil.which("unshare") is None or not HAS_NAMESPACES, reason="needs unshare(1) to take them away"
)
def test_a_host_without_namespaces_is_said_and_the_rest_still_holds():
    """Run where the kernel grants no further user namespace, as in a plain container."""
    programs = [
        "def f(): return 1",
        "import os\ndef f(): return os.fork()",
        "import os\ndef f(): os.kill(os.getppid(), 9)",
        "def f():\n    while True: pass",
        "import time\ndef f(): time.sleep(60)",
    ]
    shell = 'echo 0 > /proc/sys/user/max_user_namespaces && exec "$0" -c "$1"'
    command = ["unshare", "-Ur", "sh", "-c", shell, sys.executable, WITHOUT_NAMESPACES]
    ran = subprocess.run(command, input=json.dumps(programs), capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    results = json.loads(ran.stdout)
    assert [verdict for verdict, _, _ in results] == [
        "pass",
        "runtime_error",
        "runtime_error",
        "timeout",
        "timeout",
    ]
    assert all(sandbox.startswith("no namespaces (unshare: ") for _, _, sandbox in results)


def test_the_guard_kills_what_left_its_session():
    """Without filter and namespaces: a harmless daemon, forked twice in a session of its own."""
    code = (
        "import os, time\nfrom loadgen.grading import _jail\n_jail.guard_self()\nread, write = os.pipe()\n"
        "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n"
        "        os.write(write, str(os.getpid()).encode()); time.sleep(60)\n    os._exit(0)\n"
        "daemon = os.read(read, 20).decode()\n_jail.kill_descendants()\nprint(daemon)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30)
    with pytest.raises(ProcessLookupError):
        os.kill(int(ran.stdout), signal.SIG_DFL)
