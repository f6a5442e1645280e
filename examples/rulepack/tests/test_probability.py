"""Every rule of the pack holds on many instances, and does what it is for."""

from __future__ import annotations

import numpy as np
import pytest
from plica_rulepack import PROBABILITY

import plica
from plica.ir.type.infer import infer
from plica.rewrite import Rule, approx, exact, rewrite
from plica.rewrite.check.verdict import Tested

SOURCE = """
from __future__ import annotations
import plica
from plica import op
from plica.op import nn
from plica.script import Tensor, f32


@plica.function
def loss(x: Tensor[(2, 5), f32]) -> Tensor[(2, 5), f32]:
    return nn.relu(op.exp(nn.log_softmax(x, axis=-1)))
"""


@pytest.mark.parametrize("rule", PROBABILITY, ids=lambda rule: rule.name)
def test_a_rule_holds(rule: Rule) -> None:
    verdict = plica.check(rule, examples=100)
    assert isinstance(verdict, Tested), verdict
    assert verdict.cases > 10


def test_one_softmax_is_left_of_three_operators() -> None:
    _, derivation = rewrite(infer(plica.from_text(SOURCE)), PROBABILITY)
    assert [step.rule.name for step in derivation.steps] == [
        "exp-of-log-softmax",
        "relu-of-softmax",
    ]


def test_a_contract_keeps_the_approximations_out() -> None:
    assert len(PROBABILITY.within(exact)) == 3


def test_compiled_code_uses_it() -> None:
    x = np.linspace(-2, 2, 10, dtype=np.float32).reshape(2, 5)
    module = plica.from_text(SOURCE)
    found = plica.compile(module, packs=["probability"], contract=approx(1e-2))(x)
    np.testing.assert_allclose(found, plica.interpret(module, x), rtol=1e-4)
