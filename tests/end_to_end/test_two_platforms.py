"""A sweep of two platforms on Ray, by the command line: lives, tables, grades, marks and report."""

import pyarrow.dataset as pads

from loadgen import tables
from loadgen.store import Run

SWEEP = """
name: two
platforms:
  - name: pcie
    gpu: {{kind: RTX PRO 6000, count: 8, interconnect: PCIe}}
    server: &server
      control: process
      endpoint: http://127.0.0.1:{port}
      command: [loadgen, sim, --profile, pcie, --time-scale, "30", --port, "{{port}}", --reasoning-parser, kimi_k2,
                --enable-metrics, --enable-cache-report, --speculative-draft-model-path, draft]
      env: {{SGLANG_EXPOSE_OWN_ENV_VARS: "1", HF_TOKEN: hf_secret}}
      ready_timeout_s: 60
      stop_timeout_s: 10
  - name: nvlink
    gpu: {{kind: B300, count: 8, interconnect: NVLink}}
    server:
      <<: *server
      endpoint: http://127.0.0.1:{other_port}
axes:
  algorithm: {{flag: --speculative-algorithm}}
  topk: {{env: SGLANG_DDTREE_MAX_TOPK}}
  max_running: {{flag: --max-running-requests}}
server_configs:
  - name: set
    fixed: {{algorithm: DDTREE, topk: 4, max_running: 64}}
  - name: unset
    fixed: {{algorithm: DDTREE, topk: 4, max_running: null}}
workloads:
  - {{context_tokens: 60, output_tokens: 32}}
load: {{concurrency: [4, 64], measure_min_s: 2}}
repeats: 2
clients: {{workers_per_platform: 2, allow_shared_cores: true}}
grading: {{max_tokens: 4096}}
"""


def test_two_platforms_two_configs_two_repeats_on_ray(cli):
    path = cli.folder / "sweep.yaml"
    path.write_text(SWEEP.format(port=cli.free_port(), other_port=cli.free_port()), encoding="utf-8")

    code, output = cli.run("run", "sweep.yaml", "--out", "run")

    assert code == 0, output
    folder = cli.folder / "run"
    run = Run.open(folder)
    servers = run.read("servers").to_pylist()
    assert len({server["pid"] for server in servers}) == 4
    assert {server["state"] for server in servers} == {"stopped"}
    assert all(server["simulated"] and server["time_scale"] == 30 for server in servers)
    assert all('"topk": "verified"' in server["proof"] for server in servers)
    assert not any("hf_secret" in str(server) for server in servers)

    cells = run.read("cells").to_pylist()
    assert len(cells) == 4 * (1 + 2 * 2)
    by_id = {(cell["cell_id"], cell["repeat"]): cell for cell in cells}
    assert "queue_measured" in by_id["pcie.unset.text.ctx60.c64", 0]["checks"]
    assert "48 requests at once, 64" in " ".join(by_id["pcie.unset.text.ctx60.c64", 0]["check_details"])
    assert "queue_measured" not in by_id["pcie.set.text.ctx60.c64", 1]["checks"]
    assert all(cell["passed"] == 5 for cell in cells if cell["kind"] == "eval")

    requests = run.read("requests").to_pylist()
    assert {request["worker"] for request in requests} >= {"pcie-w0", "pcie-w1", "nvlink-w0", "nvlink-w1"}
    for cell in cells:
        mine = [r for r in requests if (r["cell_id"], r["repeat"]) == (cell["cell_id"], cell["repeat"])]
        assert len(mine) == cell["sent"] == cell["ok"] + cell["cut"] + cell["errors"]
        assert sorted(r["request_index"] for r in mine) == sorted({r["request_index"] for r in mine})
    salts = [
        tuple(response["prompt"].split()[:10])
        for response in run.read("responses").to_pylist()
        if not response["problem"]
    ]
    assert len(set(salts)) == len(salts)
    hosts = run.read("hosts").to_pylist()
    assert [host["worker_niceness"] for host in hosts] == [0]

    for table in tables.TABLES:
        assert pads.dataset(folder / table.name).schema.names == table.schema.names
    for text in (output, (folder / "report.md").read_text(), (folder / "report.html").read_text()):
        assert "SIMULATED" in text
        assert "queue_measured" in text
        assert "5/5 passed" in text
        assert "hf_secret" not in text
    assert str(folder / "report.html") in output or "run/report.html" in output
    for table in ("requests", "responses", "grades", "cells", "servers", "server_samples"):
        assert set(run.read(table)["simulated"].to_pylist()) == {True}, (
            f"{table} does not say that it is simulated"
        )
