"""The standard's own cases: what passes stays, and nothing is ever wrong."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.frontend.onnx.conformance import PAGE, Verdict, cases, recorded, verdict_of

SAMPLE = 400


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


def test_the_figures_are_no_less_than_promised() -> None:
    count = Counter(recorded().values())
    assert count["passed"] + count["specialised"] >= 1700
    assert count["specialised"] <= 340
