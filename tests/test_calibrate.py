"""The command: shapes of a config, the table, and a real calibration that the next run reads."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from cluster.calibrate import given_shape, shapes_of, table
from cluster.cli import main
from loadgen.calibration import Ceiling, Shape, read_calibration
from loadgen.config import parse_sweep

SWEEP = """
name: s
platforms: [{{name: a, server: {{control: external, endpoint: "http://127.0.0.1:1"}}}}]
workloads: [{{context_tokens: [60, 1000, 50000], output_tokens: 16}}]
load: {load}
clients: {{workers_per_platform: 2}}
"""


def shapes(load: str) -> list[tuple[int, int]]:
    return [(s.streams, s.context_bytes) for s in shapes_of(parse_sweep(SWEEP.format(load=load), "s.yaml"))]


def test_a_configs_shapes_are_those_of_one_worker_with_its_shortest_and_longest_prompts() -> None:
    assert shapes("{concurrency: [1, 64]}") == [(1, 240), (1, 200_000), (32, 240), (32, 200_000)]
    assert shapes("{concurrency: saturate, saturate: {max: 300}}") == [(150, 240), (150, 200_000)]
    assert shapes("{rate: 2, max_in_flight: 9}") == [(5, 240), (5, 200_000)]
    assert shapes("{rate: 2}") == [(32, 240), (32, 200_000)]


def test_what_is_not_asked_for_is_typical() -> None:
    assert given_shape(None, None, None) == Shape(64, 480, 4000)
    assert given_shape(3, 700, 0) == Shape(3, 700, 0)


def test_the_table_says_what_a_rate_would_take() -> None:
    found = [
        Ceiling(Shape(64, 480, 4000), 60_000.4, "cpu", 0.42, 0.88, is_lower_bound=False),
        Ceiling(Shape(8, 480, 4000), 90_000.0, "sink", None, 0.5, is_lower_bound=True),
    ]
    head, first, second = table(found, 30_000.0)
    assert head.split() == [
        *[
            "streams",
            "event",
            "bytes",
            "context",
            "bytes",
            "chunks/s",
            "lag",
            "p99",
            "ms",
            "CPU",
            "limit",
            "share",
        ]
    ]
    assert first.split()[:6] == ["64", "480", "4000", "60000", "0.42", "88%"]
    assert first.endswith("50%")
    assert ">=90000" in second
    assert "client may hold more" in second
    assert "share" not in next(table(found, None))


def test_a_real_calibration_is_kept_for_the_next_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr("loadgen.load.ceiling._MOST_RATE", 1000.0)  # a short ladder
    result = CliRunner().invoke(main, ["calibrate", "--streams", "4", "--chunk-rate", "400"])
    assert result.exit_code == 0, result.output
    kept = read_calibration()
    assert kept is not None
    (ceiling,) = kept.ceilings
    assert ceiling.shape.streams == 4
    assert 0 < ceiling.chunks_per_s < 1100
    assert "kept in" in result.output


def test_shapes_come_from_one_place() -> None:
    result = CliRunner().invoke(main, ["calibrate", "x.yaml", "--streams", "4"])
    assert result.exit_code == 2
    assert "CONFIG, or from --streams" in result.output
