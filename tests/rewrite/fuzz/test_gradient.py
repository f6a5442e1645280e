"""Gradients of random programs: none is wrong, and what is planted is found and made small."""

from __future__ import annotations

from typing import Any, Final

import attrs
import numpy as np
import pytest
from hypothesis import settings

from plica.cli import main
from plica.ir.graph import operator
from plica.ir.graph.expression import Expr
from plica.ir.graph.operator import find
from plica.rewrite.fuzz.gradient import fuzz
from plica.rewrite.fuzz.gradient.case import gradient_case
from plica.rewrite.fuzz.gradient.table import ROWS, differentiable

EXAMPLES: Final = min(3000, 2 * settings().max_examples)


def test_random_programs_have_the_slopes_that_differences_say() -> None:
    report = fuzz(EXAMPLES, seed=11)
    assert report.finding is None, report.finding
    assert report.examples == EXAMPLES


@pytest.mark.parametrize("name", differentiable())
def test_each_operator_can_be_drawn(name: str) -> None:
    cases = [gradient_case(1, number, (name,)) for number in range(12)]
    assert any(each.call() is not None for each in cases)


def test_a_row_is_of_an_operator() -> None:
    assert set(ROWS) <= set(differentiable())


def test_what_is_planted_is_found_and_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The slope of tanh without its square."""
    record = find("tanh")
    assert record is not None

    def wrong(attrs_: Any, d: Expr, y: Expr, x: Expr) -> list[Expr | None]:
        return [d * y]

    planted = attrs.evolve(record, gradient=wrong)
    monkeypatch.setitem(operator._known, "tanh", planted)
    found = fuzz(8, seed=3, ops=("tanh",)).finding
    assert found is not None
    assert found.op == "tanh"
    assert "by differences" in found.reason
    assert "def test_gradient() -> None:" in found.pytest
    assert found.pytest.count("op.") <= 4


def test_native_code_is_held_to_the_interpreter() -> None:
    wrong = fuzz(3, seed=2, native=lambda module, inputs: np.float64(7.25), every=1, ops=("sin",))
    assert wrong.finding is not None
    assert "native code of gradient" in wrong.finding.reason


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fuzz", "gradient", "--examples", "3", "--native", "0", "--operator", "sin"]) == 0
    assert "All slopes are what differences say." in capsys.readouterr().out
    assert main(["fuzz", "gradient", "--operator", "sine"]) == 1
    assert "There is no differentiable operator 'sine'" in capsys.readouterr().err
