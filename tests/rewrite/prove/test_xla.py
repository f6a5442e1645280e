"""TensorRight's statement of XLA's rules: those that Plica's terms express are proved."""

from __future__ import annotations

import pytest

from plica.rewrite.check.verdict import Proved, Refuted
from plica.rewrite.prove import attempt, prove
from plica.rewrite.prove.solver import is_available
from tests.rewrite.prove.xla_rules import NOT_EXPRESSED, XLA

pytestmark = pytest.mark.skipif(not is_available("z3"), reason="z3 is not installed")


UNDECIDED = (36,)
"""Remainders of remainders of 64 bits: z3 does not decide them."""
WRAPS = (38, 39)
"""Right for unbounded integers, wrong where a sum wraps around."""


def test_every_rule_is_expressed_or_has_a_reason() -> None:
    assert {*XLA} | {*NOT_EXPRESSED} == {*range(1, 119)}
    assert not {*XLA} & {*NOT_EXPRESSED}
    assert len(XLA) >= 100


@pytest.mark.parametrize("number", WRAPS)
def test_a_rule_that_wraps_around_is_refuted(number: int) -> None:
    assert isinstance(prove(XLA[number]), Refuted)


@pytest.mark.parametrize("number", [each for each in XLA if each not in (*UNDECIDED, *WRAPS)])
def test_each_rule_is_proved(number: int) -> None:
    verdict = attempt(XLA[number])
    assert isinstance(verdict, Proved), verdict
