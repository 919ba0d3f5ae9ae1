"""Lines, gaps, legend keys and the SVG itself."""

from pathlib import Path
from xml.etree import ElementTree as ET

from report_fixtures import HOSTILE_NAME, build_run, cell_row, full_report, hostile_report, load_entry

from reports.data import load
from reports.plots import plot_groups
from reports.text import clean


def test_a_plot_for_each_context_and_one_of_the_single_streams() -> None:
    (group,) = plot_groups(full_report(simulated=False).matrices)
    assert [plot.title for plot in group.plots] == ["context 1000", "context 50000", "single stream"]
    assert [key.name for key in group.series] == ["pcie / base", "nvlink / base"]
    assert group.plots[2].description == (
        "single stream, tok/s of one stream by context, tokens. "
        "pcie / base: 1000: 110, 50000: 44.0; nvlink / base: 1000: 242, 50000: 96.8"
    )


def test_without_a_single_stream_there_is_no_such_plot(tmp_path: Path) -> None:
    entry = load_entry("pcie", 1000, 2)
    (group,) = plot_groups(load(build_run(tmp_path / "r", [entry], cells=[cell_row(entry)])).matrices)
    assert [plot.title for plot in group.plots] == ["context 1000"]


def test_keys_differ_in_more_than_colour(tmp_path: Path) -> None:
    planned = [
        load_entry(platform, 1000, 1, config=config)
        for platform in ("pcie", "nvlink")
        for config in ("a", "b", "c")
    ]
    (group,) = plot_groups(load(build_run(tmp_path / "r", planned, cells=map(cell_row, planned))).matrices)
    assert len({(key.dashes, key.marker) for key in group.series}) == 6
    assert len({(key.colour, key.dashes) for key in group.series}) == 6


def test_a_failed_cell_breaks_the_line(tmp_path: Path) -> None:
    planned = [load_entry("pcie", 1000, n) for n in (2, 4, 8, 16)]
    whole = [cell_row(entry) for entry in planned]
    broken = [whole[0], cell_row(planned[1], status="failed", failure="x", output_tps=None), *whole[2:]]
    (one,) = plot_groups(load(build_run(tmp_path / "a", planned, cells=whole)).matrices)
    (two,) = plot_groups(load(build_run(tmp_path / "b", planned, cells=broken)).matrices)
    assert [moves(one.plots[0].svg), moves(two.plots[0].svg)] == [1, 2]


def moves(svg: str) -> int:
    """How many pieces the thick line of the series has."""
    paths = list(ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}path"))
    (line,) = [path for path in paths if "stroke-width: 1.8" in path.get("style", "")]
    return line.get("d", "").count("M")


def test_colours_are_left_to_the_page_and_the_drawing_is_the_same_each_time() -> None:
    report = full_report()
    (first,), (second,) = plot_groups(report.matrices), plot_groups(report.matrices)
    assert first == second
    svg = first.plots[0].svg
    assert "var(--series-0)" in svg
    assert "var(--series-1)" in svg
    assert "#0102" not in svg


def test_names_stay_out_of_the_drawing() -> None:
    (group,) = plot_groups(hostile_report().matrices)
    assert clean(HOSTILE_NAME) in group.series[0].name
    assert "[red]" not in group.plots[0].svg
    ET.fromstring(group.plots[0].svg)
