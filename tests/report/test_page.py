"""The page: whole, by itself, with every kernel; rendered where there is a browser."""

from __future__ import annotations

import re
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest

from plica.report import page
from plica.report.chart import HIGH, WIDE, memory, roofline
from plica.report.graph import MOST, boxes, draw
from plica.report.svg import element, raw
from tests.report.model import studied

VOID = {"meta", "br", "hr"}
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome-headless-shell")


class Reader(HTMLParser):
    """Reads a page, and notes what opens, what does not close, and what is outside of it."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.wrong: list[str] = []
        self.outside: list[str] = []
        self.rows: list[dict[str, str | None]] = []
        self.boxes: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        self.outside += [value or "" for key, value in attrs if key in ("src", "href", "srcset")]
        if tag in ("link", "img", "iframe", "object", "embed", "base"):
            self.outside.append(tag)
        if tag == "tr" and "data-kernel" in known:
            self.rows.append(known)
        if tag == "g" and known.get("data-nodes"):
            self.boxes.append(known["data-nodes"] or "")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)


def read(text: str) -> Reader:
    reader = Reader()
    reader.feed(text)
    reader.close()
    return reader


def test_the_page_is_whole_and_needs_nothing_else() -> None:
    text = page(studied("transformer"), studied("dqn"))
    found = read(text)
    assert not found.wrong
    assert not found.open
    assert not found.outside
    assert not re.search(r"https?:|url\(|@import|fetch\(|XMLHttpRequest", text)


def test_every_kernel_is_on_the_page_with_its_nodes() -> None:
    study = studied("transformer")
    found = read(page(study))
    assert [row["data-kernel"] for row in found.rows] == [str(row.number) for row in study.rows]
    shown = {name for words in found.boxes for name in words.split(", ")}
    for row in study.rows:
        assert set(row.nodes) <= shown


def test_every_picture_is_xml() -> None:
    pictures = re.findall(r"<svg.*?</svg>", page(studied("dqn")), re.DOTALL)
    assert len(pictures) == 2 + len(studied("dqn").stages)
    for each in pictures:
        ElementTree.fromstring(each)


def test_charts_stay_within_their_frames() -> None:
    study = studied("transformer")
    for chart, tag in (
        (roofline(study.rows, study.roof), "circle"),
        (memory(study.plan, study.steps), "rect"),
    ):
        picture = ElementTree.fromstring(chart)
        shapes = picture.findall(tag)
        assert shapes
        for each in shapes:
            x, y = (float(each.get(name) or each.get(f"c{name}") or "nan") for name in "xy")
            right, low = (float(each.get(name) or 0) for name in ("width", "height"))
            assert 0 <= x <= x + right <= WIDE
            assert 0 <= y <= y + low <= HIGH


def test_every_value_of_the_memory_plan_is_drawn() -> None:
    study = studied("dqn")
    assert page(study).count('class="tenant"') == len(study.plan.tenants)


def test_why_two_operators_are_one_kernel_is_said() -> None:
    study = studied("dqn")
    text = page(study)
    assert study.decisions
    for each in study.decisions:
        assert str(each.producer) in text


def test_names_are_escaped() -> None:
    assert element("p", "<script>", title='"a" & b') == raw(
        '<p title="&quot;a&quot; &amp; b">&lt;script&gt;</p>'
    )


def test_every_operator_is_a_box_below_what_it_reads() -> None:
    module = studied("transformer").stages[0].module
    found = boxes(module)
    seen: set[object] = set()
    for each in found:
        assert set(each.below) <= seen
        seen.add(each.term)
    picture = ElementTree.fromstring(draw(module, lambda term: ""))
    assert len(picture.findall("g")) == len(found) <= MOST


def script_of(text: str) -> str:
    (found,) = re.findall(r"<script>(.*)</script>", text, re.DOTALL)
    assert isinstance(found, str)
    return found


def test_the_script_is_javascript(tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    (tmp_path / "page.js").write_text(script_of(page(studied("dqn"))))
    subprocess.run([node, "--check", tmp_path / "page.js"], check=True, timeout=60)


def test_a_browser_renders_the_page(tmp_path: Path) -> None:
    browser = next(filter(None, map(shutil.which, BROWSERS)), None)
    if browser is None:
        pytest.skip("no Chromium is installed")
    path = tmp_path / "report.html"
    path.write_text(page(studied("dqn")), encoding="utf-8")
    shot = tmp_path / "report.png"
    words = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'home'}"]
    dumped = subprocess.run(
        [browser, *words, "--dump-dom", path.as_uri()],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stdout
    assert 'data-ready="yes"' in dumped  # the script ran to its end
    assert dumped.count("<tr data-kernel=") == len(studied("dqn").rows)
    size = "--window-size=1200,4000"
    subprocess.run(
        [browser, *words, size, f"--screenshot={shot}", path.as_uri()],
        capture_output=True,
        check=True,
        timeout=120,
    )
    assert shot.stat().st_size > 10_000
