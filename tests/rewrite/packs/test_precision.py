from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from plica.core.fold import post_order
from plica.core.name import Name
from plica.ir.graph.expression import Apply, Const, Expr, Var, const
from plica.ir.graph.module import Module
from plica.ir.op import find
from plica.ir.type.dtype import bf16, f16, f32, f64
from plica.ir.type.infer import type_of
from plica.ir.type.term import TensorType, tensor
from plica.rewrite.pack import rewrite
from plica.rewrite.packs.precision import (
    ALWAYS,
    FOLLOW,
    NEVER,
    ROUNDING,
    deviation,
    precision,
    precision_pass,
    to_mixed_precision,
)
from plica.runtime.error import UnsupportedError
from tests.conftest import Golden
from tests.rewrite.graph.law import text
from tests.rewrite.packs.layers import call, numbers, of, operators

CHAIN = """
@plica.function
def main(x: Tensor[("n", 2), f32]) -> Tensor[("n", 3), f32]:
    a = nn.dense(x, const([[1.0, 2.0], [3.0, -4.0]], f32)) + const([0.5, 0.25], f32)
    b = op.concat([nn.relu(a), a * const(2.0, f32)], axis=1)
    w = const([[1.0, 2.0, 0.5, 0.5], [3.0, 4.0, -1.0, 0.0], [5.0, -6.0, 1.0, 1.0]], f32)
    c = nn.dense(b, w)
    return nn.softmax(c)
"""
NETWORK = """
@plica.function
def main(x: Tensor[(2, 2, 6), f32]) -> tuple[Tensor[(2, 3), f32], Tensor[(2, 2, 3), f32]]:
    y = nn.relu(nn.conv(x, const([[[1.0, 0.5, 2.0], [2.0, -1.0, 0.0]]] * 2, f32), padding=1))
    z = nn.max_pool(y + x, kernel=2)
    parts = op.split(z, 2, axis=1)
    flat = op.reshape(parts[0] - parts[1], (2, 3))
    return op.exp(nn.dense(flat, const([[0.1, 0.2, 0.3]] * 3, f32)) * const(0.01, f32)), z
"""


def dtypes(module: Module, name: str) -> set[str]:
    found = set()
    for node in post_order(module):
        if isinstance(node, Apply) and node.op == name:
            of = type_of(node)
            assert isinstance(of, TensorType)
            found.add(str(of.dtype))
    return found


@pytest.mark.parametrize("narrow", [f16, bf16])
def test_a_chain_keeps_casts_only_at_its_ends(narrow: Any, golden: Golden) -> None:
    before = text(CHAIN)
    after = to_mixed_precision(before, narrow)
    assert operators(after)["cast"] == 2
    assert dtypes(after, "nn.dense") == {str(narrow)}
    assert dtypes(after, "nn.softmax") == {"f32"}
    assert after.main_function().ret is before.main_function().ret
    (error,) = deviation(before, after, numbers(4, 2))
    assert 0 < error < 64 * ROUNDING[narrow]
    if narrow is bf16:
        golden(str(after), "mixed_precision")


def test_what_is_delicate_stays_and_the_error_of_each_output_is_told() -> None:
    before = text(NETWORK.replace("[[[1.0, 0.5, 2.0], [2.0, -1.0, 0.0]]] * 2", _twice()).replace(
        "[[0.1, 0.2, 0.3]] * 3", "[[0.1, 0.2, 0.3], [0.1, 0.2, 0.3], [0.1, 0.2, 0.3]]"
    ))  # fmt: skip
    after = to_mixed_precision(before, f16)
    assert dtypes(after, "exp") == {"f32"}
    assert dtypes(after, "nn.conv") == dtypes(after, "nn.dense") == {"f16"}
    errors = deviation(before, after, numbers(2, 2, 6))
    assert len(errors) == 2
    assert max(errors) < 64 * ROUNDING[f16]


def _twice() -> str:
    one = "[[1.0, 0.5, 2.0], [2.0, -1.0, 0.0]]"
    return f"[{one}, {one}]"


def test_constants_that_would_overflow_are_not_narrowed() -> None:
    x = Var(Name("x"), tensor((3, 2), "f32"))
    layer = call("nn.dense", x, const([[1e5, 1.0]], "f32"))
    assert rewrite(layer, precision(f16))[0] is layer
    assert rewrite(layer, precision(bf16))[0] is not layer


def test_other_dtypes_are_left_alone() -> None:
    x = Var(Name("x"), tensor((3, 2), "f64"))
    layer = call("nn.dense", x, const([[1.0, 1.0]], "f64"))
    assert rewrite(layer, precision(f16))[0] is layer


def test_the_lists_can_be_chosen() -> None:
    before = text(CHAIN)
    none = to_mixed_precision(before, f16, always=())
    assert operators(none)["cast"] == 0
    apart = to_mixed_precision(before, f16, follow=())
    assert dtypes(apart, "nn.relu") == {"f32"}
    assert operators(apart)["cast"] == 4
    assert not {*ALWAYS, *FOLLOW} & {*NEVER}
    assert all(find(name) is not None for name in (*ALWAYS, *FOLLOW, *NEVER))


@pytest.mark.parametrize(
    "wrong",
    [
        {"narrow": f64},
        {"accumulate": f16},
        {"always": ("nn.dens",)},
        {"always": ("add",), "follow": ("add",)},
    ],
)
def test_what_cannot_be_asked_for_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UnsupportedError):
        to_mixed_precision(text(CHAIN), **wrong)


def test_weights_are_narrow_constants_and_the_pass_says_so() -> None:
    after = precision_pass(bf16)(text(CHAIN))
    weights = [each for each in post_order(after) if isinstance(each, Const) and each.shape]
    assert {str(each.dtype) for each in weights} == {"bf16"}
    assert str(f32) not in precision_pass(bf16).why


@pytest.mark.parametrize("name", ["f16-conv", "f16-dense", "f16-add", "f16-matmul"])
def test_f16_keeps_its_bound_within_its_range(name: str) -> None:
    rules = {rule.name: rule for rule in precision(f16)}
    x, y = (Var(Name(each), tensor((3, 3, 3), "f32")) for each in "xy")
    square = Var(Name("w"), tensor((3, 3), "f32"))
    term = {
        "f16-conv": call("nn.conv", x, y),
        "f16-dense": call("nn.dense", x, square),
        "f16-matmul": call("matmul", x, y),
        "f16-add": call("add", _from(x), _from(y)),
    }[name]
    after = rules[name].at(term)
    assert isinstance(after, Expr)
    assert rules[name].contract.rel == 4 * 2.0**-11
    params = [x, square] if name == "f16-dense" else [x, y]
    inputs = [numbers(*(3,) * (2 if each is square else 3)) for each in params]
    heavy = max(float(np.abs(each).sum()) for each in inputs)
    (error,) = deviation(of(term, *params), of(after, *params), *inputs)
    assert error <= rules[name].contract.rel * max(1.0, heavy)


def _from(x: Expr) -> Expr:
    return call("cast", call("cast", x, f16), f32)
