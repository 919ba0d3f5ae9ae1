"""The plan in words: what would be started, with which command lines, and what it would cost at least."""

import shlex
from pathlib import Path

from cluster.show_plan import plan_lines
from loadgen.config import parse_sweep, read_sweep
from loadgen.plan import make_plan

SWEEP = """
name: two
platforms:
  - name: box
    server:
      control: process
      endpoint: http://127.0.0.1:31999
      command: [serve, --port, "{port}", --name, "two words", --api-key, sk-1]
      env: {HF_TOKEN: hf-1, GREETING: "it's me"}
  - name: far
    server: {control: process, endpoint: "http://127.0.0.1:32000", command: [serve]}
axes:
  budget: {flag: --budget}
  topk: {env: TOPK}
server_configs:
  - name: tree
    fixed: {topk: 4}
    grid: {budget: [8, 16]}
workloads:
  - {context_tokens: [512, 60], output_tokens: 32}
load: {concurrency: [4, 1]}
repeats: 2
grading: {max_tokens: 4096}
"""


def lines_of(text: str) -> list[str]:
    sweep = parse_sweep(text, "sweep.yaml")
    return list(plan_lines(sweep, make_plan(sweep, None)))


def test_every_start_is_a_command_line_that_a_shell_would_run_without_its_secrets():
    lines = lines_of(SWEEP)
    starts = [line.strip() for line in lines if "serve" in line and "TOPK" in line]
    assert len(starts) == 4
    words = shlex.split(starts[1])
    assert words == [
        "HF_TOKEN=***", "GREETING=it's me", "TOPK=4",
        "serve", "--port", "31999", "--name", "two words", "--api-key", "***", "--budget", "16",
    ]  # fmt: skip
    assert not any("hf-1" in line or "sk-1" in line for line in lines)


def test_counts_and_loads_are_those_of_the_plan():
    lines = lines_of(SWEEP)
    assert lines[0] == "sweep two: 36 cell executions, 4 server starts"
    assert "  server config tree-budget8 (topk=4, budget=8): 9 executions" in lines
    assert lines.count("    workload text: context 60, 512 x concurrency 1, 4") == 4
    assert lines.count("    grading: once, before the load") == 4


def test_an_external_server_is_said_to_be_left_alone():
    text = (
        SWEEP[: SWEEP.index("axes:")]
        + "workloads:\n  - {context_tokens: 60, output_tokens: 32}\nload: {concurrency: 1}\n"
    )
    external = text.replace("control: process, endpoint", "control: external, endpoint").replace(
        ", command: [serve]}", "}"
    )
    lines = lines_of(external)
    assert "platform far (external, http://127.0.0.1:32000)" in lines
    assert lines.count("    already running; never touched") == 1
    assert "  server config default (no axes): 1 execution" in lines


def test_open_loops_searches_and_several_endpoints_are_said():
    text = """
name: t
platforms:
  - name: box
    server:
      control: external
      endpoints: [{url: "http://10.0.0.5:1"}, {url: "http://10.0.0.6:1", weight: 3}]
workloads: [{context_tokens: 60, output_tokens: 32}]
load: {concurrency: saturate, rate: [2, 0.5], arrivals: {process: gamma, burstiness: 0.25}}
"""
    lines = lines_of(text)
    assert "platform box (external, http://10.0.0.5:1 weight 1, http://10.0.0.6:1 weight 3)" in lines
    assert [line.strip() for line in lines if "workload text" in line] == [
        (
            "workload text: context 60 x concurrency from 1 doubled up to 1024 until output tok/s gains less than 5% "
            "(at most 15 steps)"
        ),
        "workload text: context 60 x gamma0.25 arrivals at 0.5, 2 requests/s",
    ]
    trace = text.replace(
        "rate: [2, 0.5], arrivals: {process: gamma, burstiness: 0.25}", "arrivals: {trace: a.csv}"
    )
    assert "    workload text: context 60 x arrivals as in a.csv" in lines_of(trace)


CONFIGS = Path(__file__).parents[1] / "configs"


def test_the_example_of_open_loop_and_saturation_is_a_plan():
    sweep, _ = read_sweep(CONFIGS / "open-loop.yaml")
    lines = list(plan_lines(sweep, make_plan(sweep, None)))
    assert lines[0] == "sweep open-loop: 3 cell executions, 1 server start"
    loads = [line.strip() for line in lines if line.startswith("    workload")]
    assert loads == [
        "workload prose: context 512 x concurrency from 4 doubled up to 64 until output tok/s gains less than 5% (at most 9 steps)",
        "workload prose: context 512 x poisson arrivals at 1, 4 requests/s",
    ]
