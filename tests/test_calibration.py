"""Ceilings are kept for the host that they were measured on, and compared at shapes that are near enough."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.calibration import (
    Calibration,
    Ceiling,
    Shape,
    calibration_path,
    host_key,
    read_calibration,
    write_calibration,
)
from loadgen.errors import BadInput

sizes = st.integers(1, 1_000_000)
shapes = st.builds(Shape, sizes, sizes, sizes)


def ceiling(streams: int, rate: float, event_bytes: int = 480, context_bytes: int = 4000) -> Ceiling:
    return Ceiling(Shape(streams, event_bytes, context_bytes), rate, "cpu", 0.4, 0.89, is_lower_bound=False)


TWO = Calibration(host_key(), (ceiling(64, 60_000.0), ceiling(1024, 50_000.0)))


def test_the_nearest_shape_counts() -> None:
    assert TWO.load_share(Shape(100, 480, 4000), 30_000.0) == 0.5
    assert TWO.load_share(Shape(600, 480, 4000), 30_000.0) == 0.6


@pytest.mark.parametrize(
    "far",
    [Shape(15, 480, 4000), Shape(4097, 480, 4000), Shape(64, 119, 4000), Shape(64, 480, 256_001)],
)
def test_a_shape_far_from_all_is_not_calibrated(far: Shape) -> None:
    assert TWO.nearest(far) is None
    assert TWO.load_share(far, 30_000.0) is None


def test_a_short_prompt_is_as_good_as_none() -> None:
    assert TWO.nearest(Shape(64, 480, 0)) == ceiling(64, 60_000.0)


def test_a_host_that_holds_nothing_has_no_share() -> None:
    assert Calibration({}, (ceiling(64, 0.0),)).load_share(Shape(64, 480, 4000), 100.0) is None


@given(shapes, shapes)
def test_distance_is_that_of_a_measure(one: Shape, other: Shape) -> None:
    assert one.distance(one) == 0
    assert one.distance(other) == pytest.approx(other.distance(one))
    assert (one.distance(other) == 0) == (one == other)


def test_what_is_measured_again_takes_the_place_of_the_first() -> None:
    again = TWO.with_ceilings([ceiling(64, 55_000.0, event_bytes=483), ceiling(8, 70_000.0)])
    assert [(c.shape.streams, c.chunks_per_s) for c in again.ceilings] == [
        (1024, 50e3),
        (64, 55e3),
        (8, 70e3),
    ]


def test_it_is_kept_for_this_host_and_not_for_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert read_calibration() is None
    path = write_calibration(TWO)
    assert path == calibration_path(host_key())
    assert path.is_relative_to(tmp_path)
    assert read_calibration() == TWO
    copy = write_calibration(TWO, tmp_path / "run" / "calibration.json")
    assert read_calibration(copy) == TWO
    for name in host_key():
        other = Calibration({**host_key(), name: "another"}, TWO.ceilings)
        assert calibration_path(other.key) != path
        assert read_calibration(write_calibration(other, tmp_path / "x.json")) is None


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"key": {}, "ceilings": [{}]}'])
def test_a_file_that_is_no_calibration_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    path = write_calibration(TWO)
    path.write_text(text)
    with pytest.raises(BadInput, match="it is no calibration") as failure:
        read_calibration()
    assert "\n" not in str(failure.value)
    words = json.dumps({"key": {}, "ceilings": [{**ceiling_row(), "chunks_per_s": "many"}]})
    path.write_text(words)
    with pytest.raises(BadInput, match="no number"):
        read_calibration()


def ceiling_row() -> dict[str, object]:
    shape = {"streams": 1, "event_bytes": 1, "context_bytes": 1}
    return {
        "shape": shape, "chunks_per_s": 1.0, "limit": "cpu", "lag_p99_ms": None, "cpu": 0.1, "is_lower_bound": False,
    }  # fmt: skip
