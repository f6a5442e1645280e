from __future__ import annotations

import numpy as np
from hypothesis import given, strategies as st

from plica import op
from plica.core.fold import post_order
from plica.core.name import Name
from plica.ir.graph.expression import Apply, Const, Expr, Let, Var, const
from plica.ir.graph.module import Module
from plica.ir.type.infer import type_of
from plica.ir.type.term import tensor
from plica.rewrite.graph.dataflow import to_dataflow
from plica.rewrite.graph.fold import (
    ALWAYS_FOLDED_BYTES,
    GROWTH,
    MAX_FOLDED_BYTES,
    fold_constants,
    size_in_bytes,
)
from tests.conftest import Golden
from tests.rewrite.graph.law import WHOLE, X, doubling, keeps_laws, let_chain, program, text
from tests.strategies import modules


@WHOLE
@given(st.data())
def test_it_keeps_the_laws(data: st.DataObject) -> None:
    keeps_laws(fold_constants, data)


@WHOLE
@given(modules())
def test_nothing_constant_is_left(module: Module) -> None:
    once = fold_constants(module)
    assert fold_constants(once) is once
    for node in post_order(once):
        if isinstance(node, Apply) and all(isinstance(arg, Const) for arg in node.args):
            size = size_in_bytes(type_of(node))
            source = sum(len(arg.data) for arg in set(node.args) if isinstance(arg, Const))
            bound = min(MAX_FOLDED_BYTES, max(ALWAYS_FOLDED_BYTES, GROWTH * source))
            assert size is None or size > bound or len(node._children) > len(node.args)


def test_what_depends_on_nothing_is_computed(golden: Golden) -> None:
    source = """
@plica.function
def main(x: Tensor[(2,), f32]) -> Tensor[(2,), f32]:
    a = const([1.0, 2.0], f32) * 3
    pair = (a + 1, a)
    small = op.sum(a) < 0
    return x + pair[0] if small else x * pair[1]
"""
    golden(str(fold_constants(text(source))))


def test_the_limit_is_kept_but_looked_behind() -> None:
    big: Expr = const([0.5] * 1000, "f32")
    doubled = Apply("sum", (big + big,), (("axis", None), ("keepdims", False)))
    made = fold_constants(program(X + doubled), 1000)
    (total,) = [each for each in post_order(made) if isinstance(each, Const)]
    assert total.numpy() == 1000.0


def test_what_is_too_big_stays() -> None:
    big: Expr = const([0.5, 0.25], "f32")
    module = program(X + (big + big))
    assert fold_constants(module, 7) is module
    assert fold_constants(module, 8) is not module


def broadcast(shape: str) -> Module:
    return text(
        f"""
@plica.function
def main(x: Tensor[{shape}, f32]) -> Tensor[{shape}, f32]:
    return x + op.broadcast_to(f32(2), shape={shape})
"""
    )


def test_a_number_is_not_spread_over_an_image() -> None:
    image = broadcast("(3, 224, 224)")
    assert fold_constants(image) is image
    assert fold_constants(image, growth=1 << 20) is not image
    assert fold_constants(broadcast("(3, 4)")) is not broadcast("(3, 4)")


def test_what_is_not_spread_can_be_looked_behind() -> None:
    source = """
@plica.function
def main(x: Tensor[(), f32]) -> Tensor[(), f32]:
    ones = op.broadcast_to(f32(1), shape=(64, 64))
    return x + op.sum(ones + ones) + op.sum(ones)
"""
    made = fold_constants(to_dataflow(text(source)))
    values = [each.numpy() for each in post_order(made) if isinstance(each, Const)]
    assert sorted(values) == [4096.0, 8192.0]


def test_what_is_costly_is_computed_once() -> None:
    square = tensor((96, 96), "f32")
    image, row = Var(Name("x"), square), const(np.linspace(0, 3, 96, dtype=np.float32))
    grid = Apply("expand_dims", (row,), (("axis", (1,)),)) * row
    once = fold_constants(program(image + grid, (image,), square))
    assert any(isinstance(each, Apply) and each.op == "multiply" for each in post_order(once))
    for body in (image + Apply("sin", (grid,)), Apply("matmul", (image, grid))):
        folded = fold_constants(program(body, (image,), square))
        assert fold_constants(folded) is folded
        (left,) = [each for each in post_order(folded) if isinstance(each, Apply)]
        assert any(isinstance(arg, Const) and arg.numpy().size == 96 * 96 for arg in left.args)


def test_what_takes_long_is_left_to_the_compiled_program() -> None:
    ones: Expr = const([[1.0] * 8] * 8, "f32")
    product = Apply("sum", (op.matmul(ones, ones),), (("axis", None), ("keepdims", False)))
    module = program(X + product)
    assert fold_constants(module, work=511) is module
    assert fold_constants(module, work=512) is not module


def test_what_fails_stays() -> None:
    source = """
@plica.function
def main(x: Tensor[(2,), f32]) -> Tensor[(2,), f32]:
    return x + op.take(const([1.0, 2.0], f32), const(5, i64), axis=0)
"""
    module = text(source)
    assert fold_constants(module) is module


def test_deep_and_shared_terms() -> None:
    for module in (let_chain(2_000), doubling(60)):
        assert fold_constants(module) is module
    body: Expr = const([1.0, 2.0], "f32")
    for _ in range(60):
        body = body + body
    made = fold_constants(program(X + body))
    assert not any(isinstance(each, Let) for each in post_order(made))
    assert sum(isinstance(each, Apply) for each in post_order(made)) == 1
