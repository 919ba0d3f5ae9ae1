"""Small sweeps on simulated servers, run as a user runs them: by the command line, in a process of its own."""

import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

SWEEP = """
name: small
platforms:
  - name: pcie
    gpu: {{kind: RTX PRO 6000, count: 8, interconnect: PCIe}}
    server:
      control: process
      endpoint: http://127.0.0.1:{port}
      command: [loadgen, sim, --profile, pcie, --time-scale, "40", --port, "{{port}}", --reasoning-parser, kimi_k2,
                --enable-metrics, --enable-cache-report, --speculative-draft-model-path, draft]
      ready_timeout_s: 60
      stop_timeout_s: 10
axes:
  algorithm: {{flag: --speculative-algorithm}}
  budget: {{flag: --speculative-ddtree-budget}}
server_configs:
  - name: ddtree
    fixed: {{algorithm: DDTREE}}
    grid: {{budget: [8, 16]}}
workloads:
  - context_tokens: [60, 512]
    output_tokens: 32
load: {{concurrency: [1, 4], measure_min_s: {measure_s}}}
grading: {{max_tokens: 4096}}
"""


@dataclass(frozen=True)
class Cli:
    """`loadgen` in a folder of its own."""

    folder: Path

    def start(self, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "cluster.cli", *words],
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "COLUMNS": "200"},
        )

    def run(self, *words: str, timeout_s: float = 240) -> tuple[int, str]:
        process = self.start(*words)
        try:
            output, _ = process.communicate(timeout=timeout_s)
        finally:
            process.kill()
        return process.returncode, output

    @staticmethod
    def free_port() -> int:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port: int = probe.getsockname()[1]
            return port

    def write_sweep(self, measure_s: float = 2, text: str = SWEEP) -> Path:
        path = self.folder / "sweep.yaml"
        path.write_text(text.format(port=self.free_port(), measure_s=measure_s), encoding="utf-8")
        return path


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(tmp_path)
