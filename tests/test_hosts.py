"""Facts of this host fit their table and are the kernel's own."""

import json
import os
import resource
import socket
from pathlib import Path

import aiohttp

from cluster import hosts
from cluster.host_checks import HostFacts
from cluster.roles import WorkerFacts
from loadgen.tables import HOSTS


def test_the_environment_is_json_with_the_versions_that_run():
    environment = json.loads(json.dumps(hosts.environment()))
    assert environment["versions"]["aiohttp"] == aiohttp.__version__
    assert environment["host"] == socket.gethostname()
    assert environment["cpus"] == os.cpu_count()
    memory_kb = int(Path("/proc/meminfo").read_text().split()[1])
    assert abs(environment["memory_bytes"] - memory_kb * 1024) < 1 << 20


def test_the_heads_row_fits_the_table_with_and_without_ray_and_workers():
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    facts = HostFacts(limit, 28_232, 4096, ("performance", "powersave"), "tsc", True, 1 << 30, 1 << 40)
    rows = [
        hosts.head_row("s1", WorkerFacts(0, limit), facts, uses_ray=True),
        hosts.head_row("s2", None, facts, uses_ray=False),
    ]
    with_ray, without = HOSTS.from_rows(rows).to_pylist()
    assert (with_ray["worker_niceness"], with_ray["max_open_files"]) == (0, limit)
    assert with_ray["ray"]
    assert (without["ray"], without["worker_niceness"], without["session"]) == (None, None, "s2")
    assert (with_ray["ephemeral_ports"], with_ray["cpu_governor"]) == (28_232, "performance, powersave")
    assert (with_ray["kernel_stamps"], with_ray["disk_free_bytes"]) == (True, 1 << 40)
