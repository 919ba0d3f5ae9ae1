"""The peers' runner: its arithmetic by hand, each tool's command and report, and one run of ours from end to end."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from bench.figures import quantiles
from bench.host import Host
from bench.peers.__main__ import arguments, main, runs
from bench.peers.measure import CpuOfTree, gap_p99_ms, measure, most_at_once, version_of, why_missing
from bench.peers.report import peer_tables
from bench.peers.tools import TOOLS, Places, Said, Tool
from bench.product import from_tables, from_truth, sent_in
from bench.report import main as render
from bench.work import Work
from loadgen.errors import RunFailed
from loadgen.sink import running_sink
from loadgen.sink.truth import STAMP, SentRequest

MS = 10**6
WORK = Work(4, 10, 5_000, ttft_us=50_000, requests=8)


@pytest.fixture
def places(tmp_path: Path) -> Places:
    for name in ("peers", "sglang", "tokenizer", "out"):
        (tmp_path / name).mkdir()
    return Places(tmp_path / "peers", tmp_path / "sglang", tmp_path / "tokenizer", tmp_path / "out")


def row(request: int, read_ns: int, last_ns: int) -> SentRequest:
    return SentRequest(request, read_ns, read_ns + 1, last_ns, 3, 1, "k")


def test_streams_held_are_the_most_that_ran_at_once() -> None:
    assert most_at_once([row(1, 0, 10), row(2, 5, 20), row(3, 10, 30), row(4, 40, 50)]) == 2


def test_gaps_are_those_within_a_request() -> None:
    stamps = np.array(
        [(1, 0, 0), (2, 0, 1 * MS), (1, 1, 20 * MS), (3, 0, 500 * MS), (2, 1, 31 * MS), (3, 1, 900 * MS)],
        STAMP,
    )
    assert gap_p99_ms(stamps, {1, 2}) == pytest.approx(20 + 0.99 * 10)


def test_cpu_between_samples_goes_by_a_straight_line() -> None:
    cpu = CpuOfTree(root=None, at_ns=[0, 100, 200], total_s=[1.0, 2.0, 6.0])
    assert cpu.between(50, 150) == pytest.approx(4.0 - 1.5)


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_each_tool_is_asked_for_the_same_work(tool: Tool, places: Places) -> None:
    command = " ".join(tool.command(places, WORK, "http://127.0.0.1:1234"))
    assert "1234" in command
    for number in (WORK.streams, WORK.requests, WORK.chunks):
        assert str(number) in command
    if tool.env_name:
        assert str(places.tokenizer) in command


REPORTS = {
    "loadgen": ("stdout", {"ttft_ms": {"mean": 1.5}, "gap_ms": {"p99": 2.5}}),
    "sglang rust client": ("result.jsonl", {"mean_ttft_ms": 1.5, "p99_itl_ms": 2.5}),
    "sglang bench_serving": ("result.jsonl", {"mean_ttft_ms": 1.5, "p99_itl_ms": 2.5}),
    "vllm bench serve": ("result.json", {"mean_ttft_ms": 1.5, "p99_itl_ms": 2.5}),
    "aiperf": (
        "profile_export_aiperf.json",
        {"time_to_first_token": {"avg": 1.5}, "inter_chunk_latency": {"p99": 2.5}},
    ),
    "guidellm": (
        "result.json",
        {
            "benchmarks": [
                {
                    "metrics": {
                        "time_to_first_token_ms": {"successful": {"mean": 1.5}},
                        "inter_token_latency_ms": {"successful": {"percentiles": {"p99": 2.5}}},
                    }
                }
            ]
        },
    ),
}


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_each_report_is_read(tool: Tool, places: Places) -> None:
    name, report = REPORTS[tool.name]
    (places.out / name).write_text(json.dumps(report) + "\n")
    assert tool.said(places.out) == Said(1.5, 2.5)


def test_a_tool_that_is_not_there_says_why(places: Places) -> None:
    tool = next(tool for tool in TOOLS if tool.name == "aiperf")
    assert version_of(tool, places) is None
    assert why_missing(tool, places) == "not installed (make bench-peers)"
    home = places.peers / "aiperf"
    (home / "lib/python3.11/site-packages/aiperf-0.13.0.dist-info").mkdir(parents=True)
    assert version_of(tool, places) == "0.13.0"
    (home / ".failed").write_text("no matching distribution\n")
    assert version_of(tool, places) is None
    assert why_missing(tool, places) == "could not be installed: no matching distribution"


def test_a_missing_tool_is_a_row_of_the_table(places: Places) -> None:
    options = arguments(["aiperf", "--streams", "4"])
    options.peers, options.sglang = places.peers, places.peers / "none"
    (missing,) = runs(options, Host.this(), places.out)
    assert missing["error"] == "not installed (make bench-peers)"
    result = {
        "date": "2026-12-01",
        "host": Host.this().facts(),
        "repeats": 1,
        "versions": {"aiperf": None},
        "runs": [missing],
    }
    text = peer_tables(result)
    assert "| aiperf | 4 | - | - | - | - | - | - | not installed (make bench-peers) |" in text
    assert "aiperf not installed" in text


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("import sys; sys.exit('no such option')", "ended with 1: no such option"),
        ("print('done')", "it finished no request"),
    ],
)
def test_a_tool_that_does_not_do_its_work_is_said(places: Places, script: str, said: str) -> None:
    tool = replace(TOOLS[0], command=lambda *_: ["python3", "-c", script])
    with running_sink() as sink, pytest.raises(RunFailed, match=said):
        measure(tool, WORK, places, sink, Host.this())


def test_a_report_that_cannot_be_read_is_said(places: Places) -> None:
    def unreadable(_: Path) -> Said:
        return Said(**json.loads("{}"))

    tool = replace(TOOLS[0], said=unreadable)
    with running_sink() as sink, pytest.raises(RunFailed, match=r"its report cannot be read \(TypeError"):
        measure(tool, WORK, places, sink, Host.this())


def test_ours_from_end_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(Path(__file__).resolve().parents[1])
    out = tmp_path / "peers.json"
    assert main(["loadgen", "--streams", "8", "--rounds", "3", "--chunks", "6", "--out", str(out)]) == 0
    (found,) = json.loads(out.read_text())["runs"]
    assert (found["held"], found["finished"], found["error"]) == (8, 24, None)
    assert found["true_ttft_ms"] >= 200
    assert found["chunks_per_s"] > 0
    assert "| loadgen | 8 | 8 |" in capsys.readouterr().out


def test_results_are_rendered_into_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page, results = tmp_path / "page.md", tmp_path / "peers.json"
    page.write_text("a\n<!-- peers -->\nold\n<!-- /peers -->\nb\n")
    run = {"peer": "loadgen", "streams": 64, "error": "it ended"}
    result = {
        "kind": "peers",
        "date": "2026-12-01",
        "host": Host.this().facts(),
        "repeats": 1,
        "versions": {"aiperf": "0.13.0"},
        "runs": [run],
    }
    results.write_text(json.dumps(result))
    monkeypatch.setattr("bench.report.PAGE", page)
    render([str(results)])
    text = page.read_text()
    assert text.startswith("a\n<!-- peers -->\n\n2026-12-01, ")
    assert "| loadgen | 64 | - | - | - | - | - | - | it ended |\n\n<!-- /peers -->\nb\n" in text
    assert "old" not in text


def test_an_unknown_tool_is_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        arguments(["nonsense"])
    assert "no tool nonsense; there are loadgen, sglang rust client" in capsys.readouterr().err


def test_the_tables_figures_and_the_truths_are_of_the_same_requests() -> None:
    window = pa.table(
        {
            "sent_ns": [100 * MS, 110 * MS],
            "outcome": ["ok", "ok"],
            "chunk_ns": [[10 * MS, 30 * MS, 60 * MS], [20 * MS, 40 * MS, 60 * MS]],
        }
    )
    warmup, first, second, drain = (row(n, at * MS, 0) for n, at in ((1, 50), (2, 101), (3, 111), (4, 180)))
    assert sent_in(window, [drain, second, warmup, first]) == [first, second]
    found = from_tables(window)
    assert found["ttft_ms"] == quantiles(np.array([10, 20]) * MS, MS)
    assert found["tpot_ms"] == quantiles(np.array([25, 20]) * MS, MS)
    assert found["gap_ms"] == quantiles(np.array([20, 30, 20, 20]) * MS, MS)
    stamps = np.array([(2, 0, 0), (3, 0, 5), (2, 1, 20), (4, 0, 7), (3, 1, 45), (2, 2, 50)], STAMP)
    sent = [SentRequest(2, 0, 4, 50, 3, 1, ""), SentRequest(3, 0, 6, 45, 2, 1, "")]
    true = from_truth(sent, stamps)
    assert true["gap_ms"] == quantiles(np.array([20, 30, 40]), MS)
    assert true["ttft_ms"] == quantiles(np.array([4, 6]), MS)
    assert true["tpot_ms"] == quantiles(np.array([23, 39]), MS)
