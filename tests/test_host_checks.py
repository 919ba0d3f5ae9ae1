"""What a host cannot do is refused before anything starts; what makes its numbers doubtful is said. Real namespaces where we may."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from cluster.host_checks import (
    HostFacts,
    Need,
    has_kernel_stamps,
    host_facts,
    host_warnings,
    need_of,
)
from loadgen.config import parse_sweep
from loadgen.errors import RunFailed
from loadgen.plan import make_plan

GOOD = HostFacts(
    open_files=100_000,
    ephemeral_ports=28_232,
    listen_backlog=4096,
    cpu_governors=("performance",),
    clock_source="tsc",
    kernel_stamps=True,
    memory_available_bytes=8 << 30,
    disk_free_bytes=100 << 30,
)
SMALL = Need(
    connections_per_worker=64,
    connections_per_endpoint=64,
    workers=1,
    disk_bytes=1 << 20,
    is_raw=True,
    has_local_server=True,
)
SWEEP = """
name: s
platforms:
  - name: one
    server: {{control: external, endpoint: "http://127.0.0.1:1"}}
  - name: two
    server: {{control: external, endpoints: [{{url: "http://10.0.0.1:1", weight: 3}}, {{url: "http://10.0.0.2:1"}}]}}
workloads: [{{context_tokens: 60, output_tokens: 16}}]
load: {load}
clients: {{workers_per_platform: 3}}
"""


def need(load: str) -> Need:
    sweep = parse_sweep(SWEEP.format(load=load), "s.yaml")
    return need_of(sweep, make_plan(sweep))


def test_a_sound_host_has_nothing_to_say() -> None:
    assert host_warnings(GOOD, SMALL) == []


@pytest.mark.parametrize(
    ("facts", "asked", "why"),
    [
        (
            replace(GOOD, open_files=1000),
            replace(SMALL, connections_per_worker=873),
            "needs 1001 descriptors",
        ),
        (replace(GOOD, ephemeral_ports=63), SMALL, "64 connections to one endpoint need as many ports"),
        (GOOD, replace(SMALL, disk_bytes=101 << 30), "writes 101.0 GiB or more, the disk has 100.0 GiB free"),
    ],
)
def test_what_cannot_work_is_one_line_that_says_how_to_mend_it(
    facts: HostFacts, asked: Need, why: str
) -> None:
    with pytest.raises(RunFailed, match=why) as failure:
        host_warnings(facts, asked)
    assert "\n" not in str(failure.value)


@pytest.mark.parametrize(
    ("facts", "asked"),
    [
        (replace(GOOD, open_files=1000), replace(SMALL, connections_per_worker=872)),
        (replace(GOOD, ephemeral_ports=80), SMALL),
        (replace(GOOD, ephemeral_ports=None), replace(SMALL, connections_per_endpoint=10**6)),
        (replace(GOOD, cpu_governors=(), clock_source=None, listen_backlog=None), SMALL),
        (replace(GOOD, kernel_stamps=False), replace(SMALL, is_raw=False)),
        (replace(GOOD, listen_backlog=16), replace(SMALL, has_local_server=False)),
    ],
)
def test_what_is_just_enough_or_unknown_is_no_reason(facts: HostFacts, asked: Need) -> None:
    assert host_warnings(facts, asked) == []


@pytest.mark.parametrize(
    ("facts", "word"),
    [
        (replace(GOOD, ephemeral_ports=79), "take most of its 79 ports"),
        (replace(GOOD, listen_backlog=127), "somaxconn is 127"),
        (replace(GOOD, cpu_governors=("performance", "powersave")), "governor is powersave"),
        (replace(GOOD, clock_source="hpet"), "clock source is hpet"),
        (replace(GOOD, kernel_stamps=False), "no kernel stamps"),
        (replace(GOOD, memory_available_bytes=500 << 20), "may take 512 MiB, 500 MiB are free"),
        (replace(GOOD, disk_free_bytes=1_500_000), "the run writes 1 MiB or more, the disk has 1 MiB free"),
    ],
)
def test_what_makes_numbers_doubtful_is_said(facts: HostFacts, word: str) -> None:
    (warning,) = host_warnings(facts, SMALL)
    assert word in warning


def test_a_plan_needs_the_connections_of_its_largest_cell() -> None:
    asked = need("{concurrency: [10, 1000]}")
    assert (asked.connections_per_worker, asked.connections_per_endpoint) == (334, 1000)
    assert (asked.workers, asked.has_local_server, asked.is_raw) == (6, True, True)
    assert need("{rate: 3, max_in_flight: 50}").connections_per_worker == 17
    assert need("{rate: 3}").connections_per_endpoint == 0
    assert asked.disk_bytes > 0
    assert need("{concurrency: saturate, saturate: {max: 300}}").connections_per_worker == 100


def test_facts_are_read_where_the_kernel_keeps_them(tmp_path: Path) -> None:
    for path, text in {
        "proc/sys/net/ipv4/ip_local_port_range": "1000\t1009\n",
        "proc/sys/net/core/somaxconn": "77\n",
        "sys/devices/system/clocksource/clocksource0/current_clocksource": "hpet\n",
        "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor": "powersave\n",
    }.items():
        file = tmp_path / path
        file.parent.mkdir(parents=True)
        file.write_text(text)
    facts = host_facts(tmp_path / "runs" / "new", tmp_path)
    assert (facts.ephemeral_ports, facts.listen_backlog, facts.clock_source) == (10, 77, "hpet")
    assert facts.cpu_governors == ("powersave",)
    assert facts.disk_free_bytes > 0
    assert facts.memory_available_bytes > 0
    elsewhere = host_facts(tmp_path, tmp_path / "no")
    assert (elsewhere.ephemeral_ports, elsewhere.clock_source, elsewhere.cpu_governors) == (None, None, ())


def test_the_kernel_stamps_reads_here() -> None:
    assert has_kernel_stamps() is (sys.platform == "linux")


def test_in_a_network_namespace_with_few_ports_the_run_is_refused() -> None:
    """The real /proc of another network namespace (field bug: ports exhausted in the middle of a run)."""
    narrow = "echo '20000 20031' > /proc/sys/net/ipv4/ip_local_port_range"
    program = (
        "from pathlib import Path; from cluster.host_checks import host_warnings, Need, host_facts\n"
        "host_warnings(host_facts(Path('.')), Need(1, 64, 1, 1, True, False))"
    )
    if subprocess.run(["unshare", "-rn", "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user may not make network namespaces")
    done = subprocess.run(
        ["unshare", "-rn", "sh", "-c", f'{narrow} && exec "$0" -c "$1"', sys.executable, program],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parent.parent,
        check=False,
    )
    assert done.returncode == 1
    assert "64 connections to one endpoint need as many ports, this host has 32" in done.stderr
