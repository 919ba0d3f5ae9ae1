"""The page, by a parser and, where there is one, by a browser."""

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest
from PIL import Image, ImageStat
from report_fixtures import HOSTILE, build_run, cell_row, full_report, hostile_report, load_entry

from reports.blocks import Banner, Bullets, Grid, Heading, Lines, Paragraph, Words, plain_text
from reports.data import load
from reports.document import document
from reports.html import to_html
from reports.model import Report
from reports.text import clean

VOID = {"meta", "br", "hr", "img", "link", "input"}
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Page(HTMLParser):
    """Tags, attributes, ids and text of a page; fails on a tag that is closed wrongly."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: list[tuple[str, str, str]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(html)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    def values(self, name: str) -> list[str]:
        return [value for _, attribute, value in self.attributes if attribute == name]


def all_words(report: Report) -> list[Words]:
    found: list[Words] = []
    for block in (block for section in document(report).sections for block in section.blocks):
        match block:
            case Banner(words=words) | Heading(words=words) | Paragraph(words=words):
                found.append(words)
            case Bullets(items=items) | Lines(lines=items):
                found += items
            case Grid(rows=rows):
                found += [cell for row in rows for cell in row]
    return found


@pytest.mark.parametrize("build", [full_report, hostile_report])
def test_the_page_says_every_word_of_the_document(build: object) -> None:
    assert callable(build)
    report = build()
    text = " ".join(Page(to_html(report)).text.split())
    missing = [words for words in all_words(report) if " ".join(plain_text(words).split()) not in text]
    assert missing == []


def test_the_page_fetches_nothing_and_runs_nothing() -> None:
    html = to_html(full_report())
    page = Page(html)
    assert page.tags.isdisjoint({"script", "link", "img", "iframe", "object", "embed", "image", "metadata"})
    references = [*page.values("href"), *page.values("xlink:href"), *page.values("src")]
    assert [reference for reference in references if not reference.startswith("#")] == []
    assert re.findall(r"url\((?!#)|@import", html) == []
    assert [name for _, name, _ in page.attributes if name.startswith("on")] == []


def test_ids_are_unique_and_every_reference_has_one() -> None:
    html = to_html(full_report())
    page = Page(html)
    ids = page.values("id")
    assert len(ids) == len(set(ids))
    references = [*page.values("href"), *page.values("xlink:href"), *re.findall(r"url\((#[^)]+)\)", html)]
    assert {reference[1:] for reference in references} <= set(ids)


def test_hostile_text_is_text() -> None:
    html = to_html(hostile_report())
    page = Page(html)
    assert page.tags.isdisjoint({"script", "b", "img", "a:evil"})
    assert clean(HOSTILE) in page.text
    assert not [character for character in html if character != "\n" and clean(character) != character]


def test_the_plots_are_drawn_and_told() -> None:
    page = Page(to_html(full_report()))
    told = [value for _, name, value in page.attributes if name == "aria-label" and "tok/s by" in value]
    assert len(told) == 2
    assert told[0] == (
        "context 1000, simulated time, output tok/s by concurrency. "
        "pcie / base: 1: 110, 4: 333, 16: 1011; nvlink / base: 1: 242, 4: 734, 16: 2224"
    )


def test_a_run_without_numbers_has_no_plots(tmp_path: Path) -> None:
    html = to_html(load(build_run(tmp_path / "r", [load_entry("pcie", 1000, 1)])))
    assert "figure" not in Page(html).tags
    assert "nothing has been measured yet" in html


@pytest.mark.parametrize(("cells", "folded"), [(10, False), (11, True)])
def test_a_long_list_of_doubts_is_folded_but_there(tmp_path: Path, cells: int, folded: bool) -> None:
    planned = [load_entry("pcie", 1000, n) for n in range(1, cells + 1)]
    rows = [
        cell_row(entry, checks=["errors"], check_details=[f"{entry['concurrency']} of 90 failed"])
        for entry in planned
    ]
    html = to_html(load(build_run(tmp_path / "r", planned, cells=rows)))
    asides = 3  # latencies and gaps; the client; what other tools would print
    assert html.count("<details>") == asides + folded
    assert f"{cells} of 90 failed" in Page(html).text


def screenshot(page: Path, picture: Path, profile: Path, *more: str) -> Image.Image:
    assert CHROMIUM is not None
    command = [
        CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars",
        f"--user-data-dir={profile}", "--window-size=1000,1400", f"--screenshot={picture}", *more,
        page.as_uri(),
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    return Image.open(picture).convert("RGB")


@pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine (apt-get install chromium)")
def test_a_browser_renders_it_light_and_dark(tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(to_html(full_report()), encoding="utf-8")
    light = screenshot(page, tmp_path / "light.png", tmp_path / "profile")
    dark = screenshot(
        page, tmp_path / "dark.png", tmp_path / "profile", "--blink-settings=preferredColorScheme=0"
    )
    assert light.getpixel((3, 3)) == (255, 255, 255)
    assert dark.getpixel((3, 3)) == (0x15, 0x18, 0x1C)
    for picture in (light, dark):
        assert ImageStat.Stat(picture.convert("L")).stddev[0] > 10
