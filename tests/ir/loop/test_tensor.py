"""Tensor expressions: how they are built, and what they bind."""

from __future__ import annotations

from hypothesis import given, strategies as st

from plica.core.binding import free_vars
from plica.core.digest import alpha_equal
from plica.core.fold import post_order
from plica.core.name import Name
from plica.ir.loop.scalar import Lit, Load, Reduce
from plica.ir.loop.tensor import Compute, axis, buffer, compute, reduce
from plica.ir.type.dim import dim_var
from plica.ir.type.dtype import f32, i32, i64
from tests.strategies import computes


@given(computes())
def test_generated_expressions_are_closed_and_typed(term: Compute) -> None:
    assert free_vars(term) == frozenset()
    assert len(term.axes) == len(term.shape)
    assert term.dtype.numpy is not None


def test_a_matrix_product() -> None:
    n = dim_var("n")
    a, b = buffer("a", (n, 4), f32), buffer("b", (4, 3), f32)
    found = compute((a, b), (n, 3), lambda i, j: reduce("sum", (4,), lambda k: a[i, k] * b[k, j]))
    assert found.dtype is f32
    assert found.shape == (n, Lit(3, i64))
    assert free_vars(found) == {n}  # symbolic dims stay free
    assert isinstance(found.body, Reduce)


def test_names_of_axes_and_inputs_do_not_matter() -> None:
    x, y = buffer("x", (3,), f32), buffer("y", (3,), f32)
    one = compute((x,), (3,), lambda i: x[i] + 1)
    two = Compute((y,), (axis("k", 7),), (Lit(3, i64),), y[axis("k", 7)] + 1)
    assert one is not two
    assert alpha_equal(one, two)


def test_shapes_are_made_of_dims() -> None:
    n = dim_var("n")
    found = buffer("x", (2, n + 0, 3), i32)
    assert found.shape == (Lit(2, i64), n, Lit(3, i64))
    assert found.name == Name("x")


@given(st.sampled_from("ik"), st.integers(0, 2))
def test_an_axis_is_no_dim(hint: str, number: int) -> None:
    n = axis(hint, number)  # a size that is called as an axis would be
    x = buffer("x", (n, n), f32)
    far = compute((x,), (n,), lambda i: reduce("sum", (n, 2), lambda k, j: x[i, n - 1 - k] * j))
    assert isinstance(far.body, Reduce)
    axes = (*far.axes, *far.body.axes)
    assert n not in axes
    assert len(set(axes)) == 3
    assert free_vars(far) == {n}
    (read,) = [each for each in post_order(far.body) if isinstance(each, Load)]
    assert read.indices == (far.axes[0], n - 1 - far.body.axes[0])
