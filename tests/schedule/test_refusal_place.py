"""Refusals show where: a path, the kernel with the place underlined, and what to do."""

from __future__ import annotations

import re
import traceback
from pathlib import Path

import pytest

import plica.schedule
from plica.schedule import ScheduleRefused, block, blockize, do, loops, parallel, split, trace_of
from plica.schedule.advice import ADVICE
from plica.schedule.do import Body, DoBlock
from plica.schedule.problem import Problem
from tests.schedule.kernel import matmul


@do
def careless() -> Body:
    _i, _j, k = yield loops((yield block("C")))
    _, inner = yield split(k, (None, 4))
    yield parallel(inner)


@do
def on_a_block() -> Body:
    c = yield block("C")
    i, *_ = yield loops(c)
    yield blockize(i)
    yield blockize(i)


def refused(schedule: DoBlock) -> ScheduleRefused:
    with pytest.raises(ScheduleRefused) as found:
        trace_of(schedule, matmul())
    return found.value


def test_the_path_leads_to_the_place() -> None:
    found = refused(careless)
    assert found.path == ("for i", "for j", "for k_1", "for k_2")
    assert found.rendered("fast") == "for i / for j / for k_1 / for k_2"
    assert found.rendered("none") == ""


def test_the_place_is_underlined() -> None:
    lines = refused(careless).rendered().splitlines()
    (at,) = [n for n, line in enumerate(lines) if line.strip() and set(line.strip()) == {"^"}]
    start = lines[at].index("^")
    assert lines[at - 1][start : len(lines[at])] == "k_2"


def test_a_traceback_shows_it() -> None:
    found = refused(careless)
    said = "".join(traceback.format_exception(found))
    assert "def kernel(" in said
    assert "^^^" in said
    found.add_note("more")
    assert "more" in "".join(traceback.format_exception(found))


def test_a_place_without_a_kernel_shows_nothing() -> None:
    alone = ScheduleRefused(Problem("divides", "the loop i", "a factor", "5"), "split", 3)
    assert (alone.path, alone.rendered()) == ((), "")
    assert alone.suggestion == ADVICE["divides"]


def preconditions() -> set[str]:
    """The words that steps refuse by."""
    folder = Path(plica.schedule.__file__).parent
    texts = [path.read_text(encoding="utf-8") for path in folder.rglob("*.py")]
    return {
        word
        for text in texts
        for word in re.findall(r"(?:Problem\(|numbered =)\s*\(?\"([a-z-]+)\"", text)
    }


def test_every_precondition_has_advice() -> None:
    assert preconditions() == set(ADVICE)
    for said in ADVICE.values():
        assert said[0].isupper()
        assert said.endswith((".", "…"))
