"""Nest: a tensor expression and its loop nest mean the same; the nests of a few, as text."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from plica.core.binding import free_vars
from plica.core.diagnostic import CompilerBug
from plica.ir.dtype import bool_, f16, f32, i64
from plica.ir.evaluate import evaluate
from plica.ir.run import run_kernel
from plica.ir.scalar import Cast, Lit, Lt, Scalar, Select
from plica.ir.show import show_kernel
from plica.ir.stages import exposed
from plica.ir.tensor import Compute, buffer, compute, reduce
from tests.codegen.native import assert_close, shape_of
from tests.codegen.nests import nest
from tests.conftest import Golden
from tests.strategies import arrays, computes


@given(st.data())
def test_the_nest_means_what_the_expression_means(data: st.DataObject) -> None:
    of = data.draw(computes())
    assume(not free_vars(of))
    given_ = [data.draw(arrays(each.dtype, shape_of(each))) for each in of.inputs]
    (found,) = run_kernel(nest(of), given_)
    assert_close(found, np.asarray(evaluate(of, given_)))


def matmul() -> Compute:
    a, b = buffer("a", (4, 5), f32), buffer("b", (5, 6), f32)
    return compute((a, b), (4, 6), lambda i, j: reduce("sum", (5,), lambda k: a[i, k] * b[k, j]))


def dense_f16() -> Compute:
    x, w = buffer("x", (4, 20), f16), buffer("w", (6, 20), f16)

    def element(i: Scalar, j: Scalar) -> Scalar:
        total = reduce("sum", (20,), lambda k: Cast(x[i, k], f32) * Cast(w[j, k], f32))
        return Cast(total, f16)

    return compute((x, w), (4, 6), element)


def mean_of_rows() -> Compute:
    x = buffer("x", (4, 5, 6), f16)

    def element(i: Scalar, j: Scalar) -> Scalar:
        return Cast(reduce("sum", (5,), lambda k: Cast(x[i, k, j], f32)) * 0.2, f16)

    return compute((x,), (4, 6), element)


def guarded() -> Compute:
    x = buffer("x", (4,), f32)

    def element(i: Scalar) -> Scalar:
        largest = reduce("max", (2,), lambda k: x[i + k])
        return Select(Lt(i, Lit(3, i64)), largest, x[i])

    return compute((x,), (4,), element)


def all_true() -> Compute:
    x = buffer("x", (3, 3), bool_)
    return compute((x,), (), lambda: reduce("all", (3, 3), lambda i, j: x[i, j]))


def spread() -> Compute:
    x, y = buffer("out", (3,), f32), buffer("y", (2, 1), f32)
    return compute((x, y), (2, 3), lambda i, j: x[j] + y[i, 0])


@pytest.mark.parametrize(
    "make", [matmul, dense_f16, mean_of_rows, guarded, all_true, spread], ids=lambda f: f.__name__
)
def test_text(make: Callable[[], Compute], golden: Golden) -> None:
    golden(show_kernel(nest(make()), make.__name__), f"nest_{make.__name__}")


def test_exposed_reductions_are_those_always_evaluated() -> None:
    assert len(exposed(matmul().body)) == 1
    assert exposed(guarded().body) == []


def test_a_long_row_has_no_accumulator_as_long() -> None:
    x = buffer("x", (3, 10_000), f16)
    total = compute(
        (x,), (10_000,), lambda j: Cast(reduce("sum", (3,), lambda k: Cast(x[k, j], f32)), f16)
    )
    assert "acc = alloc(Buffer[(), f32])" in show_kernel(nest(total))


@pytest.mark.parametrize("rows", [1, 2, 7, 8, 11, 12, 40])
def test_neighbours_are_reduced_side_by_side(rows: int) -> None:
    x = buffer("x", (rows, 20), f32)
    total = compute((x,), (rows, 1), lambda i, _: reduce("sum", (20,), lambda k: x[i, k]))
    assert ("for lane in" in show_kernel(nest(total))) == (rows not in (1, 11))
    values = np.arange(rows * 20, dtype=np.float32).reshape(rows, 20)
    (found,) = run_kernel(nest(total), [values])
    np.testing.assert_array_equal(found, values.sum(1, keepdims=True))


def test_two_reductions_have_two_accumulators() -> None:
    x = buffer("x", (3,), f32)
    spread_ = compute(
        (x,),
        (),
        lambda: reduce("max", (3,), lambda k: x[k]) - reduce("min", (3,), lambda k: x[k]),
    )
    text = show_kernel(nest(spread_))
    assert "acc = alloc" in text
    assert "acc_1 = alloc" in text
    values = np.array([3, 7, 4], np.float32)
    assert run_kernel(nest(spread_), [values])[0] == 4


def test_a_reduction_over_an_axis_of_its_own_tensor_is_a_bug() -> None:
    x = buffer("x", (3,), f32)
    bad = compute((x,), (3,), lambda i: reduce("sum", (3,), lambda k: x[k], name="i"))
    with pytest.raises(CompilerBug, match="binds an axis"):
        nest(bad)
