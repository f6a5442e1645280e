"""The standard's own cases: what passes stays, and nothing is ever wrong."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress

import pytest
from hypothesis import settings

from plica.runtime.error import PlicaError
from tests.frontend.onnx.conformance import (
    PAGE,
    Verdict,
    cases,
    opened,
    recorded,
    specialised,
    verdict_of,
)
from tests.frontend.onnx.damage import damaged

SAMPLE = 400
DAMAGED = 10 * settings().max_examples


def checked(names: list[str]) -> dict[str, Verdict]:
    """Verdicts of cases; none may be worse than the one that was written down."""
    known = recorded()
    found = {name: verdict_of(cases()[name]) for name in names}
    lost = [name for name in names if name in known and found[name] == "refused"]
    assert not lost, f"refused, and passed before: {lost}"
    return found


def test_a_sample_of_the_cases_passes_or_is_refused() -> None:
    names = sorted(cases())
    found = checked(random.Random(0).sample(names, SAMPLE))
    assert Counter(found.values())["refused"] <= SAMPLE * 0.22


@pytest.mark.slow
def test_every_case_passes_or_is_refused(request: pytest.FixtureRequest) -> None:
    names = sorted(cases())
    if request.config.getoption("--update-golden"):
        verdicts = {name: verdict_of(cases()[name]) for name in names}
        kept = [f"{word} {name}" for name, word in verdicts.items() if word != "refused"]
        PAGE.write_text("\n".join(kept) + "\n")
    new = [name for name, word in checked(names).items() if word != "refused"]
    assert set(new) == set(recorded()), "new cases pass: write them down with --update-golden"


def test_damaged_models_are_refused_or_read_but_never_crash() -> None:
    draw = random.Random(1)
    found = [each for name, each in sorted(cases().items()) if name.startswith("node/")]
    for _ in range(DAMAGED):
        case = draw.choice(found)
        model, inputs, _ = opened(case)
        given = dict(zip([each.name for each in model.graph.input], inputs, strict=False))
        with suppress(PlicaError):
            specialised(damaged(model, draw), given)


def test_the_figures_are_no_less_than_promised() -> None:
    count = Counter(recorded().values())
    assert count["passed"] + count["specialised"] >= 1700
    assert count["specialised"] <= 340
