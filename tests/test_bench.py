"""The benchmark's own arithmetic, by hand, and one tiny case from end to end."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from bench.__main__ import arguments, run_case
from bench.cases import CASES
from bench.figures import against_truth, lags, quantiles, seen
from bench.host import Host
from bench.report import PAGE, bench_tables, number, put_between
from bench.stage import Figure, Stage, median, median_ratio
from bench.work import Work, body_parts
from loadgen.errors import RunFailed
from loadgen.sink.truth import SentRequest
from loadgen.transport.exchange import READ, ClockOffsets, Exchange

ROOT = Path(__file__).resolve().parents[1]


def event(stamp_ns: int, request: int = 1) -> bytes:
    return b'data: {"id":"%032x","sts":"%020d"}\n\n' % (request, stamp_ns)


def exchange_of(*reads: tuple[int, int, bytes], sent_ns: int = 0) -> Exchange:
    """Reads as (kernel stamp or 0, our stamp, bytes); the real-time clock is a second ahead here."""
    exchange = Exchange(sent_ns=sent_ns, status=200)
    for kernel_ns, user_ns, block in reads:
        exchange.body += block
        exchange.reads += READ.pack(1 if kernel_ns else 0, kernel_ns, user_ns, len(block))
    return exchange


@pytest.fixture
def offsets() -> ClockOffsets:
    offsets = ClockOffsets()
    offsets.add(0, 10**9)
    return offsets


def test_each_event_belongs_to_the_read_that_ended_it(offsets: ClockOffsets) -> None:
    whole = event(1000), event(2000), event(3000)
    cut = whole[1][:40]
    exchange = exchange_of(
        (1100, 1500, whole[0] + cut), (2100, 2600, whole[1][40:]), (3200, 3900, whole[2] + event(3100))
    )
    stream = seen(exchange, offsets)
    assert stream.event_ns.tolist() == [1000, 2000, 3000, 3100]
    assert stream.arrival_ns.tolist() == [1100, 2100, 3200, 3200]
    assert stream.user_ns.tolist() == [1500, 2600, 3900, 3900]
    assert stream.is_alone.tolist() == [True, True, False, False]
    assert stream.own_lag_ns.tolist() == [400, 500, 700]


def test_lags_are_those_of_the_steady_state(offsets: ClockOffsets) -> None:
    # streams run from 1000 to 4000 and from 2000 to 5000: together from 2000 to 4000
    first = exchange_of(*[(t + 10, t + 110, event(t)) for t in (1000, 2000, 3000, 4000)])
    second = exchange_of((2020, 2220, event(2000)), (0, 3300, event(3000)), (5050, 5500, event(5000)))
    found = lags([seen(first, offsets), seen(second, offsets)])
    # events at 2000 and 3000 of each: user lags 110 110 220 300, arrival lags 10 10 20 300
    assert found["user_lag_us"] == quantiles(np.array([110, 110, 220, 300]), 1e3)
    assert found["arrival_lag_us"] == quantiles(np.array([10, 10, 20, 300]), 1e3)
    assert found["own_lag_us"] == quantiles(np.array([100, 100, 200]), 1e3)
    assert found["kernel_share"] == pytest.approx(6 / 7)
    assert found["shared_share"] == 0


def test_ttft_and_gaps_stand_beside_the_sinks(offsets: ClockOffsets) -> None:
    # role and first content chunk at 5 ms, then chunks at 7 and 10 ms, and the finish; the request was read at 1 ms
    times = [5, 5, 7, 10, 10]
    exchange = exchange_of(*[(0, t * 10**6 + 500_000, event(t * 10**6)) for t in times], sent_ns=500_000)
    found = against_truth(
        [seen(exchange, offsets)], [SentRequest(1, 10**6, 5 * 10**6, 10 * 10**6, 3, 1, "k")]
    )
    assert found["ttft_ms"]["mean"] == 5.0
    assert found["true_ttft_ms"]["mean"] == 4.0
    assert found["ttft_error_ms"] == 1.0
    assert found["gap_ms"] == found["true_gap_ms"] == {"p50": 2.5, "p99": 2.99, "max": 3.0, "mean": 2.5}


def test_what_is_no_stream_of_the_sink_is_refused(offsets: ClockOffsets) -> None:
    with pytest.raises(ValueError, match="not a stream of the sink"):
        seen(exchange_of((1, 1, b"data: {}\n\n")), offsets)


def test_work_at_a_rate_and_its_body() -> None:
    work = Work.at_rate(20_000, streams=1024, seconds=2)
    assert (work.interval_us, work.chunks) == (51_200, 39)
    assert Work.from_json(work.to_json()) == work
    request = json.loads(b"".join(body_parts(Work(1, 1, 1, prompt_bytes=400_000))))
    assert len(request["messages"][0]["content"]) == 400_000
    assert request["stream"] is True


def test_a_figure_meets_its_goal_or_not() -> None:
    assert Figure("a", 1.0, "").is_met is None
    assert Figure("a", 1.35, "", at_most=1.35).is_met is True
    assert Figure("a", 1.36, "", at_most=1.35).is_met is False
    assert Figure("a", 0.59, "", at_least=0.6).is_met is False
    assert Figure("a", None, "", at_least=0.6).is_met is False


def test_medians_and_paired_ratios() -> None:
    ours = [{"x": {"y": value}} for value in (1.0, 9.0, 2.0)]
    theirs = [{"x": {"y": value}} for value in (2.0, 3.0, 2.0)]
    assert median(ours, "x", "y") == 2.0
    assert median([*ours, {"x": None}], "x", "y") is None
    assert median_ratio(ours, theirs, "x", "y") == 1.0
    assert median_ratio(ours, [{}, {}, {}], "x", "y") is None


def test_tables_are_put_between_their_markers() -> None:
    assert put_between("a <!-- x --> old <!-- /x --> b", "x", "new") == "a <!-- x -->\n\nnew\n\n<!-- /x --> b"
    with pytest.raises(ValueError, match="no <!-- y -->"):
        put_between("a", "y", "new")
    assert [number(value) for value in (None, 0.01234, 12.345, 123_456.7)] == [
        "-",
        "0.0123",
        "12.3",
        "123,457",
    ]


def test_the_page_has_a_place_for_each_table() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for name in ("bench", "peers"):
        assert put_between(page, name, "tables")


def test_every_case_stands_on_the_page_and_says_what_it_is() -> None:
    page = PAGE.read_text(encoding="utf-8")
    for name, case in CASES.items():
        assert case.__doc__, name
        assert f"`{name}`" in page, name


def test_an_unknown_case_is_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        arguments(["nonsense"])
    assert "no case nonsense; there are ladder, cpu" in capsys.readouterr().err


def test_a_tiny_case_runs_from_end_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr("bench.cases.STREAMS", 16)
    monkeypatch.setattr(Work, "at_rate", lambda *_, **more: Work(16, 10, 10_000, ttft_us=100_000, **more))
    stage = Stage(Host.this(), repeats=2, seconds=0.1, say=lambda _: None)
    case = run_case("cpu", stage)
    assert case["error"] is None
    assert [(play["repeat"], play["client"]) for play in case["plays"]] == [
        (0, "raw"),
        (0, "c"),
        (1, "raw"),
        (1, "c"),
    ]
    for play in case["plays"]:
        assert play["failed"] == 0
        assert play["events"] == 16 * (10 + 2)  # and the role's and the finish
        assert play["sink"]["done"] == play["sink"]["max_streams"] == 16
        assert play["cpu_us"] > 0
    figures = {figure["name"]: figure["value"] for figure in case["figures"]}
    assert figures["ratio"] > 0
    result = {
        "kind": "bench",
        "date": "2026-12-01",
        "host": Host.this().facts(),
        "repeats": 2,
        "seconds": 0.1,
        "cases": [case],
    }
    assert "| CPU a chunk of the C reader |" in bench_tables(result)


def test_a_case_that_cannot_be_played_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(_: Stage) -> list[Figure]:
        """A title"""
        raise RunFailed("no compiler")

    monkeypatch.setitem(CASES, "failing", failing)
    case = run_case("failing", Stage(Host.this(), 1, 0.1, lambda _: None))
    assert (case["error"], case["figures"]) == ("no compiler", [])


def test_the_bench_knows_loadgen_only() -> None:
    for path in (ROOT / "bench").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"^\s*(from|import) (cluster|reports|ray)\b", text, re.MULTILINE), path


def test_the_c_programs_compile_without_warnings(tmp_path: Path) -> None:
    for source in sorted((ROOT / "bench").glob("*.c")):
        command = ["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", tmp_path / source.stem, source]
        assert subprocess.run(command, check=False).returncode == 0


def test_the_neighbour_takes_a_third_of_its_core(tmp_path: Path) -> None:
    program = tmp_path / "neighbour"
    subprocess.run(["cc", "-O2", "-o", program, ROOT / "bench" / "neighbour.c"], check=True)
    watch = f"""
import os, subprocess, time
p = subprocess.Popen(["{program}"]); time.sleep(0.6); p.kill()
_, _, usage = os.wait4(p.pid, 0); print(usage.ru_utime + usage.ru_stime)
"""
    said = subprocess.run([sys.executable, "-c", watch], capture_output=True, text=True, check=True).stdout
    assert 0.0 < float(said) < 0.45  # a third of 0.6 s; less on a busy machine
