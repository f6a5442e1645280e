"""The order of scalar parts, and the fold over it."""

from __future__ import annotations

import numpy as np
import pytest

from plica.codegen.emit.scalar import Frame, Order, OrderStep, Walk, fold, nest, operands, order
from plica.codegen.llvm.fold import emit
from plica.codegen.native import run_native
from plica.ir.interpret.kernel import run_kernel
from plica.ir.interpret.value import Array
from plica.ir.loop.scalar import Lit, Lt, Reduce, Scalar, Select, index
from plica.ir.loop.statement import For, Kernel, Store
from plica.ir.loop.tensor import axis, buffer
from plica.ir.type.dtype import f32, i64
from plica.runtime.error import EvaluationError

DEEP = 4_000


def number(node: Lit) -> str:
    return str(node.value)


def text(step: OrderStep, frame: Frame[str]) -> str:
    return f"{type(step.node).__name__}{len(frame.operands(step))}"


def test_each_shared_part_is_written_once() -> None:
    term: Scalar = axis("i")
    for _ in range(60):
        term = term + term
    made = order((term,), operands, lambda node: text, number)
    assert len(made.steps) == 61
    assert fold(made).results == ["Add2"]


def test_a_deep_chain_takes_no_stack() -> None:
    term: Scalar = axis("i")
    for number_ in range(DEEP):
        term = term + number_ % 7
    assert fold(order((term,), operands, lambda node: text, number)).results == ["Add2"]


def test_scopes_nest_as_deep_as_they_like() -> None:
    i = axis("i")
    term: Scalar = i
    for _ in range(DEEP):
        term = term + 1

    def inside(step: OrderStep, frame: Frame[int]) -> Walk[int]:
        inner = yield operands(step.node)[:1]
        return inner.results[0] + 1

    def within(roots: object, frame: Frame[int] | None = None) -> Order[int]:
        return order(roots, lambda node: (), row, int)  # type: ignore[arg-type]  # terms

    def row(node: Scalar) -> object:
        return nest(inside) if node is not i else lambda step, frame: 0

    assert fold(within((term,)), within).results == [DEEP]


def test_a_reduction_uses_what_is_known_around_it() -> None:
    x, y, i, k = buffer("x", (4,), f32), buffer("y", (4,), f32), axis("i"), axis("k")
    twice = x[i] * x[i]
    value = twice + Reduce("sum", (k,), (index(3),), twice * x[k])
    lines = emit(
        Kernel((), (x, y), 1, For(i, index(4), "serial", Store(y, (i,), value))), "k"
    ).lines
    assert sum("fmul" in line for line in lines) == 2


def test_a_guard_known_around_a_reduction_guards_what_is_read_in_it() -> None:
    x, z, y = buffer("x", (7,), f32), buffer("z", (5,), i64), buffer("y", (4,), f32)
    i, k = axis("i"), axis("k")
    guard = Lt(z[i], index(3))
    first = Select(guard, x[i], Lit(0.0, f32))
    value = first + Reduce("sum", (k,), (index(3),), Select(guard, x[z[k]], Lit(1.0, f32)))
    kernel = Kernel((), (x, z, y), 2, For(i, index(4), "serial", Store(y, (i,), value)))
    given: list[Array] = [np.arange(7, dtype=np.float32), np.array([1, 6, 2, 3, 2], np.int64)]
    np.testing.assert_array_equal(run_native(kernel, given), run_kernel(kernel, given))
    with pytest.raises(EvaluationError):
        run_native(kernel, [given[0], np.array([1, 9, 8, 9, 2], np.int64)])
