"""Products of matrices under several names: rules among them are proved, mistakes are not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from plica.ir.contract import reassociates
from plica.ir.graph.expression import Expr, const
from plica.rewrite.check.run import check
from plica.rewrite.check.verdict import Proved, Refuted
from plica.rewrite.closed import value_of
from plica.rewrite.make import tabled
from plica.rewrite.packs import find_pack
from plica.rewrite.packs.word import op
from plica.rewrite.pattern import hole, holes
from plica.rewrite.prove import Unproved, attempt
from plica.rewrite.prove.contraction import standard
from plica.rewrite.prove.open_shape import NamedShape
from plica.rewrite.prove.rule_facts import RuleFacts
from plica.rewrite.prove.solver import is_available

pytestmark = pytest.mark.skipif(not is_available("z3"), reason="z3 is not installed")

matmul, dense, batch, einsum, transpose = map(
    op, ["matmul", "nn.dense", "nn.batch_matmul", "einsum", "transpose"]
)
x, y, a = holes("x y a")
first, second = (hole(name, rank=2, dtypes=("f32", "f16")) for name in ("first", "second"))
left, right = (hole(name, rank=3, dtypes=("f32", "i8")) for name in ("left", "right"))
two, three = (1, 0), (0, 2, 1)


@pytest.mark.parametrize(
    "name", [rule.name for rule in find_pack("shape") if "mul" in rule.name or "ein" in rule.name]
)
def test_shipped_rules_of_products_are_proved(name: str) -> None:
    verdict = attempt(next(rule for rule in find_pack("shape") if rule.name == name))
    assert isinstance(verdict, Proved), verdict
    assert not verdict.laws


WRONG: dict[str, tuple[Any, Any]] = {
    "transposes in their order": (
        matmul(transpose(first, two), transpose(second, two)),
        transpose(matmul(first, second), two),
    ),
    "an axis twice": (einsum((first,), "ij->ji"), transpose(first, (1, 1))),
    "a lost transpose": (matmul(transpose(first, two), second), matmul(first, second)),
    "a lost transpose of a dense layer": (dense(x, transpose(second, two)), dense(x, second)),
    "a weight that is not transposed": (matmul(first, second), dense(first, second)),
    "the other flag": (
        batch(transpose(left, three), right, False, a), batch(left, right, a, True),
    ),
    "both flags": (
        batch(transpose(left, three), right, False, False), batch(left, right, True, True),
    ),
    "matrices of any rank": (matmul(x, y) * 1, batch(x, y, False, False)),
    "a weight of any rank": (matmul(x, y) * 1, dense(x, transpose(y, two))),
    "letters of the other matrix": (einsum((first, second), "ij,kj->ik"), matmul(first, second)),
    "letters of a transposed result": (einsum((first, second), "ij,jk->ki"), matmul(first, second)),
    "letters of a diagonal": (einsum((first,), "ii->i"), transpose(first, two)),
    "a sum over rows": (einsum((first, second), "ji,jk->ik"), matmul(first, second)),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_wrong_rules_of_products_have_no_proof(name: str) -> None:
    assert isinstance(attempt(tabled(name, *WRONG[name], float=reassociates)), Unproved)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a lost transpose of a dense layer", "the other flag"])
def test_wrong_rules_of_products_are_refuted(name: str) -> None:
    assert isinstance(check(tabled(name, *WRONG[name], float=reassociates), 60), Refuted)


def test_a_transposed_product_that_einsum_says_is_proved() -> None:
    made = tabled(
        "rows", einsum((first, second), "ji,jk->ik"), matmul(transpose(first, two), second)
    )
    assert isinstance(attempt(made), Proved)


def numbers(source: np.random.Generator, shape: tuple[int, ...]) -> Expr:
    return const(source.integers(-9, 9, shape).astype(np.float64), "f64")


@settings(max_examples=20, deadline=None)
@given(
    sizes=st.tuples(*[st.integers(1, 3)] * 4), flags=st.tuples(st.booleans(), st.booleans()),
    name=st.sampled_from(["nn.dense", "nn.batch_matmul"]), seed=st.integers(0, 9),
)  # fmt: skip
def test_products_are_matmul_of_transposes(
    sizes: tuple[int, int, int, int], flags: tuple[bool, bool], name: str, seed: int
) -> None:
    n, rows, inner, columns = sizes
    source = np.random.default_rng(seed)
    if name == "nn.dense":
        attributes: dict[str, Any] = {}
        shapes: tuple[tuple[int, ...], ...] = ((n, rows, inner), (columns, inner))
    else:
        attributes = dict(zip(("transpose_x", "transpose_y"), flags, strict=True))
        shapes = (
            (n, inner, rows) if flags[0] else (n, rows, inner),
            (n, columns, inner) if flags[1] else (n, inner, columns),
        )
    operands = [numbers(source, shape) for shape in shapes]
    named = [NamedShape("x"), NamedShape("y")]
    over, orders = standard(RuleFacts({}), name, attributes, named)
    assert over.operator == "matmul"
    assert not over.attributes
    arrays = [value_of(each) for each in operands]
    turned = [
        array if order is None or array is None else array.transpose(order)
        for array, order in zip(arrays, orders, strict=True)
    ]
    assert turned[0] is not None
    np.testing.assert_array_equal(
        value_of(op(name)(*operands, **attributes)), turned[0] @ turned[1]
    )
