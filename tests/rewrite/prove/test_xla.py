"""TensorRight's statement of XLA's rules: those that Plica's terms express are proved."""

from __future__ import annotations

import pytest

from plica.rewrite.check.verdict import Proved
from plica.rewrite.prove import attempt
from plica.rewrite.prove.solver import is_available
from tests.rewrite.prove.xla_rules import XLA

pytestmark = pytest.mark.skipif(not is_available("z3"), reason="z3 is not installed")


UNDECIDED = (36,)
"""Remainders of remainders of 64 bits: z3 does not decide them."""


@pytest.mark.parametrize("number", [each for each in XLA if each not in UNDECIDED])
def test_each_rule_is_proved(number: int) -> None:
    verdict = attempt(XLA[number])
    assert isinstance(verdict, Proved), verdict
