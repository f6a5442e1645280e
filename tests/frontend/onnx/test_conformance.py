"""The standard's own cases: what passes stays, and nothing is ever wrong."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import pytest
from hypothesis import settings
from onnx.backend.test.case.test_case import TestCase as Case

from plica.runtime.error import PlicaError
from tests.frontend.onnx.conformance import (
    Recorded,
    Verdict,
    asked,
    cases,
    category_of,
    compiled_verdict_of,
    recorded,
    specialised,
    table,
    verdict_of,
    write_down,
)
from tests.frontend.onnx.damage import damaged

SAMPLE: Final = 24
COMPILED: Final = 2
"""The number of sampled cases that are compiled as well."""

DAMAGED: Final = 10 * settings().max_examples

FLOORS: Final = {"plain": 1_290, "half": 50, "twin": 477, "narrow": 112, "sequence": 23, "ml": 4}
"""The list may only grow: raise these with it."""


def checked(names: list[str], verdict: Callable[[Case], Verdict]) -> dict[str, Verdict]:
    """Verdicts of cases; none may be worse than the one that was written down."""
    known = recorded()
    found = {name: verdict(cases()[name]) for name in names}
    refused = [name for name in names if found[name] == "refused"]
    lost = [name for name in refused if name in known and known[name].verdict != "refused"]
    assert not lost, f"refused, and passed before: {lost}"
    return found


def shown(title: str, found: dict[str, Verdict]) -> None:
    """Print the figures by category, for `make conformance`."""
    print(f"\n{title}")
    print(f"{'':<50}{'cases':>7}{'right':>7}{'fixed':>7}{'refused':>9}")
    rows = [Recorded(word, category_of(cases()[name])) for name, word in found.items()]
    for meaning, *numbers in table(rows):
        print(f"{meaning:<50}{numbers[0]:>7}{numbers[1]:>7}{numbers[2]:>7}{numbers[3]:>9}")


def test_a_sample_of_the_cases_passes_or_is_refused() -> None:
    names = random.Random(0).sample(sorted(cases()), SAMPLE)
    found = checked(names, verdict_of)
    assert Counter(found.values())["refused"] <= SAMPLE * 0.22
    passed = [name for name in names if found[name] != "refused"]
    compiled = checked(passed[:COMPILED], compiled_verdict_of)
    assert "refused" not in compiled.values()


@pytest.mark.slow
def test_every_case_passes_or_is_refused(request: pytest.FixtureRequest) -> None:
    names = sorted(cases())
    if request.config.getoption("--update-golden"):
        write_down({name: verdict_of(cases()[name]) for name in names})
    found = checked(names, verdict_of)
    shown("Run by the interpreter: no result is wrong.", found)
    now = {name: Recorded(word, category_of(cases()[name])) for name, word in found.items()}
    assert now == recorded(), "new cases pass: write them down with --update-golden"


@pytest.mark.slow
def test_every_case_that_passes_is_compiled_right_too() -> None:
    right = [name for name, each in sorted(recorded().items()) if each.verdict != "refused"]
    found = checked(right, compiled_verdict_of)
    shown("Compiled, of those that the interpreter runs: no result is wrong.", found)
    assert "refused" not in found.values()


def test_casts_and_quantisation_of_short_floats_and_integers() -> None:
    rows = recorded()
    names = [each for each in rows if rows[each].category == "narrow"]
    right = [each for each in names if rows[each].verdict == "passed"]
    found = checked(right, verdict_of) | checked(right[::5], compiled_verdict_of)
    assert set(found.values()) == {"passed"}
    assert len(right) >= FLOORS["narrow"]


def test_damaged_models_are_refused_or_read_but_never_crash() -> None:
    draw = random.Random(1)
    found = [each for name, each in sorted(cases().items()) if name.startswith("node/")]
    for _ in range(DAMAGED):
        model, given, _ = asked(draw.choice(found))
        with suppress(PlicaError):
            specialised(damaged(model, draw), given)


def test_the_figures_are_no_less_than_promised() -> None:
    rows = recorded().values()
    right = Counter(each.category for each in rows if each.verdict != "refused")
    assert right.total() >= 1_958
    assert {word: right[word] for word in FLOORS if right[word] < FLOORS[word]} == {}
    fixed = Counter(each.category for each in rows if each.verdict == "specialised")
    assert (fixed["plain"], fixed.total() <= 4) == (0, True)
    assert len(recorded()) == 2_024
