from __future__ import annotations

import numpy as np
import pytest

from plica.core.diagnostic import CompilerBug
from plica.ir.contract import exact
from plica.ir.graph.expression import Expr
from plica.ir.graph.module import Module
from plica.ir.interpret.interpreter import interpret
from plica.ir.op.convolution import conv
from plica.rewrite.graph.fold import fold_constants
from plica.rewrite.pack import rewrite
from plica.rewrite.packs.inference import INFERENCE, unpacked
from tests.conftest import Golden
from tests.rewrite.graph.law import text
from tests.rewrite.packs.layers import operators

NORMS = """
@plica.function
def main(x: Tensor[("n", 2, 3), f32], g: Tensor[(2,), f32], t: Tensor[(3,), f32]) \
        -> Tensor[("n", 2, 3), f32]:
    a = nn.batch_norm(x, g, g, g, g * g)
    b = nn.layer_norm(nn.dropout(a), t, t)
    c = nn.group_norm(nn.instance_norm(b, g, g), g, g, groups=2)
    return nn.l2_normalize(nn.rms_norm(c, t))
"""


def test_no_norm_is_left_and_nothing_changes() -> None:
    before = text(NORMS)
    after, derivation = rewrite(before, INFERENCE)
    assert not {name for name in operators(after) if "norm" in name or "dropout" in name}
    assert derivation.contract is exact
    assert isinstance(after, Module)
    generator = np.random.default_rng(0)
    x = generator.normal(size=(2, 2, 3)).astype(np.float32)
    g, t = x[0, :, 0], x[0, 0, :]
    assert np.array_equal(interpret(before, x, g, t), interpret(after, x, g, t))


def test_a_batch_norm_of_constants_is_one_product_and_one_sum(golden: Golden) -> None:
    module = text("""
@plica.function
def main(x: Tensor[("n", 2, "h"), f32]) -> Tensor[("n", 2, "h"), f32]:
    g = const([1.0, -2.0], f32)
    return nn.batch_norm(x, g, g, g, const([4.0, 1.0], f32), epsilon=0.0)
""")
    term, _ = rewrite(fold_constants(module), INFERENCE)
    assert isinstance(term, Module)
    golden(str(fold_constants(term)))


def test_statistics_that_are_no_constants_are_not_joined() -> None:
    module = text("""
@plica.function
def main(x: Tensor[("n", 2), f32], m: Tensor[(2,), f32]) -> Tensor[("n", 2), f32]:
    return (x - m) * m + m
""")
    assert rewrite(module, INFERENCE)[0] is module


def test_only_what_is_made_of_others_is_unpacked() -> None:
    with pytest.raises(CompilerBug, match="not made of other operators"):
        unpacked(conv)
    assert isinstance(INFERENCE.rules[0].left, Expr)
