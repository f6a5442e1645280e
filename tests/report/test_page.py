"""The page: whole, by itself, small; films that give back every state."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import zlib
from functools import cache
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from plica.codegen.program import kernel_name, launches
from plica.ir.graph.module import Module
from plica.report import model_view, page
from plica.report.graph import boxes
from plica.report.graph_film import described, film
from plica.report.kernel_view import assembly, by_time, frames_of
from plica.report.line_table import Hunk, LineTable, applied
from plica.report.nest_film import to_data
from plica.report.page import SCRIPT, STYLE, element, raw
from plica.rewrite.derivation import at
from tests.report.model import compiled_small, studied


@cache
def viewed(name: str) -> dict[str, Any]:
    """The view of a small network."""
    return model_view(studied(name))


def data_of(text: str) -> dict[str, Any]:
    """What a page holds, unpacked as its script does it."""
    (packed,) = re.findall(r'<script type="text/plain" id="data">(.*?)</script>', text)
    found: dict[str, Any] = json.loads(zlib.decompress(base64.b64decode(packed)))
    return found


def test_the_page_is_whole_and_needs_nothing_else() -> None:
    text = page([viewed("transformer"), viewed("dqn")])
    assert not re.search(r"https?:|url\(|@import|XMLHttpRequest|<link|<img|src=", text)
    assert SCRIPT.count("fetch(") == 1  # asked only by a page that is served, of its own server
    assert len(text) < 1_000_000
    assert [each["name"] for each in data_of(text)["views"]] == ["transformer", "dqn"]
    assert "</script" not in SCRIPT
    assert "</style" not in STYLE


@pytest.mark.parametrize("name", ["dqn", "transformer"])
def test_the_film_of_a_graph_gives_back_every_state(name: str) -> None:
    derivation = compiled_small(name).lowered.derivation
    shown = film(derivation)
    now = dict(shown.start)
    for number, frame in enumerate(shown.frames, 1):
        module = at(derivation, number)
        assert isinstance(module, Module)
        for gone in frame.gone:
            del now[gone]
        now |= dict(frame.set)
        every = boxes(module)
        assert sorted(shown.nodes[each].label for each in now) == sorted(box.label for box in every)
        assert set(frame.made) <= now.keys()
        for reads in now.values():
            assert set(reads) <= now.keys()
    assert [shown.nodes[shown.final[box.term]] for box in every] == [described(b) for b in every]


def test_nodes_know_where_they_come_from() -> None:
    shown = film(compiled_small("dqn").lowered.derivation)
    first = dict(shown.start)
    for number in shown.final.values():
        if shown.nodes[number].kind == "fused":
            origin = shown.origins[number]
            assert origin.sources
            assert set(origin.sources) <= first.keys()


@given(st.lists(st.text("ab\n", max_size=12), min_size=1, max_size=6))
def test_deltas_give_back_every_text(texts: list[str]) -> None:
    table = LineTable()
    old, now = "", list[int]()
    for new in texts:
        delta: list[Hunk] = table.delta(old, new)
        now = applied(now, delta)
        assert [table.lines[line] for line in now] == new.splitlines()
        old = new


def test_every_kernel_has_a_film_from_its_stages_to_its_code() -> None:
    made = compiled_small("dqn")
    program = made.lowered.program
    launch = launches(program)[0]
    frames = frames_of(made, launch.kernel, launch)
    levels = list(dict.fromkeys(each.level for each in frames))
    assert levels == ["stages", "form", "schedule", "lower"]
    assert frames[-1].kernel is program.kernels[launch.kernel]  # what was compiled
    assert all(each.cycles for each in frames if each.level == "schedule")
    table = LineTable()
    now: list[int] = []
    for row, each in zip(to_data(frames, table), frames, strict=True):
        now = applied(now, row[-1])
        assert [table.lines[line] for line in now] == each.text.splitlines()


def test_every_kernel_is_joined_to_its_nodes_its_memory_and_its_code() -> None:
    view, study = viewed("transformer"), studied("transformer")
    assert len(view["launches"]) == len(study.rows)
    names = set(view["graph"]["names"].values())
    origins = view["graph"]["origins"]
    for launch, row in zip(view["launches"], study.rows, strict=True):
        assert launch["node"] is not None
        sources = origins[launch["node"]][0]
        assert {view["graph"]["names"][str(each)] for each in sources} <= names
        assert set(row.nodes) == {
            name for each in sources for name in view["graph"]["names"][str(each)].split(", ")
        }
        assert view["kernels"][launch["kernel"]]["name"] in view["assembly"]
        assert launch["roof"] is None or 0 <= launch["roof"] <= 1
    assert len(view["plan"]["rows"]) == len(study.plan.tenants)
    assert {row[4] for row in view["plan"]["rows"]} <= {None, *range(len(study.rows))}
    assert len(view["fusion"]) == len(study.decisions)


LABEL = re.compile(r"(?<=LBB)\d+")


def test_assembly_is_cut_by_kernel() -> None:
    study = studied("mlp")
    found = assembly(study)
    assert all(text.startswith(name) for name, text in found.items())
    assert all("ret" in text for text in found.values())
    first = kernel_name(by_time(study)[0], study.model.lowered.program)
    (alone,) = assembly(study, films=1).items()
    # Labels are numbered by the function they are in, and which one takes longest is not known.
    assert alone[0] == first
    assert LABEL.sub("", alone[1]) == LABEL.sub("", found[first])


def test_a_study_is_the_page_in_a_notebook() -> None:
    shown = studied("mlp")._repr_html_()
    assert shown.startswith("<iframe srcdoc=")
    assert data_of(unescape(shown))["views"][0]["name"] == "mlp"


def test_names_are_escaped() -> None:
    assert element("p", "<script>", title='"a" & b') == raw(
        '<p title="&quot;a&quot; &amp; b">&lt;script&gt;</p>'
    )


def test_the_script_is_javascript(tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not installed")
    (tmp_path / "page.js").write_text(SCRIPT)
    subprocess.run([node, "--check", tmp_path / "page.js"], check=True, timeout=60)
