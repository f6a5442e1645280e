"""Gradients of random programs: none is wrong, and what is planted is found and made small."""

from __future__ import annotations

import argparse
from collections import Counter
from typing import Any, Final

import attrs
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from plica.cli import main
from plica.cli.fuzz.campaign import CampaignLine
from plica.cli.fuzz.table import kind_named
from plica.ir.generate.table import ROWS
from plica.ir.graph import operator
from plica.ir.graph.expression import Expr
from plica.ir.graph.operator import find
from plica.rewrite.fuzz.gradient import fuzz
from plica.rewrite.fuzz.gradient.case import differentiable, gradient_case

EXAMPLES: Final = min(3000, settings().max_examples)


def test_random_programs_have_the_slopes_that_differences_say() -> None:
    report = fuzz(EXAMPLES, seed=11)
    assert report.finding is None, report.finding
    assert report.examples == EXAMPLES


@pytest.mark.parametrize("name", differentiable())
def test_each_operator_can_be_drawn(name: str) -> None:
    cases = [gradient_case(1, number, (name,)) for number in range(12)]
    assert any(each.calls() is not None for each in cases)


@given(st.integers(0, 1 << 30), st.integers(1, 400), st.sampled_from((1, 3, 20, 0)))
def test_each_operator_is_in_as_many_programs_as_any_other(seed: int, n: int, some: int) -> None:
    ops = differentiable()[-some:]
    turns = Counter(op for number in range(n) for op in gradient_case(seed, number, ops).ops)
    rounds = 2 * n // len(ops)
    again = n if len(ops) == 1 else rounds // 2  # a round may begin with what the last ends with
    assert all(turns[op] >= rounds - again for op in ops)
    assert sum(turns[op] >= rounds for op in ops) >= len(ops) - again


def test_shares_of_a_campaign_leave_no_operator_out() -> None:
    kind = kind_named("gradient")
    line = CampaignLine(kind, [(argparse.Namespace(), ())], most=900)
    tasks = list(iter(line.task, None))
    numbers = [task.first + at for task in tasks for at in range(task.examples)]
    turns = Counter(
        op for number in numbers for op in gradient_case(5, number, differentiable()).ops
    )
    assert len(numbers) == 900
    rounds = 2 * 900 // len(differentiable())
    assert min(turns[op] for op in differentiable()) >= rounds - rounds // 2


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
    found = fuzz(8, seed=3, ops=("tanh", "exp")).finding
    assert found is not None
    assert found.guilty == "tanh"
    assert "by differences" in found.reason
    assert "def test_gradient() -> None:" in found.pytest
    assert found.pytest.count("op.") <= 4


def test_native_code_is_held_to_the_interpreter() -> None:
    wrong = fuzz(3, seed=2, native=lambda module, inputs: np.float64(7.25), every=1, ops=("sin",))
    assert wrong.finding is not None
    assert "native code of gradient" in wrong.finding.reason


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fuzz", "gradient", "--examples", "3", "--native", "0", "--operator", "sin"]) == 0
    said = capsys.readouterr().out
    assert "each in 3 or more (sin)" in said
    assert "All slopes are what differences say." in said
    assert main(["fuzz", "gradient", "--operator", "sine"]) == 1
    assert "There is no differentiable operator 'sine'" in capsys.readouterr().err
