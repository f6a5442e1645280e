"""Gradients of what slides over data, beside loops written down in numpy."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import pytest
from hypothesis import given, strategies as st

import plica
from plica.core.name import Name
from plica.ir.graph.expression import Expr, Function, Var
from plica.ir.op.reduction import sum_
from plica.ir.type.dim import known
from plica.ir.type.term import TensorType, tensor
from plica.op import nn

Array: TypeAlias = np.ndarray[Any, Any]
Settings: TypeAlias = dict[str, Any]


@st.composite
def windows(draw: st.DrawFn, *, dilates: bool) -> tuple[int, int, int, int, int]:
    """The size of a square, of a window, its stride, padding and dilation."""
    kernel, stride = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    dilation = draw(st.integers(1, 2)) if dilates else 1
    padding = draw(st.integers(0, kernel // 2))
    least = max(1, (kernel - 1) * dilation + 1 - 2 * padding)
    return draw(st.integers(least, least + 5)), kernel, stride, padding, dilation


def lengths(of: Var) -> list[int]:
    assert isinstance(of.type, TensorType)
    return [known(size) or 0 for size in of.type.shape]


def slopes(y: Expr, *params: Var) -> tuple[plica.Module, Var]:
    """The gradient of a weighted sum of a result, and the weights of that."""
    main = Function((), (), params, None, y)
    of = plica.vjp(main, tuple(range(len(params))))
    return of, of.main_function().params[-1]


def weight_slopes(x: Array, d: Array, kernel: int, how: Settings) -> Array:
    """What each tap of a weight was multiplied with, by the cotangent of where it went."""
    s, p, e = (how[each] for each in ("strides", "padding", "dilation"))
    padded = np.pad(x, ((0, 0), (0, 0), (p, p), (p, p)))
    found = np.zeros((d.shape[1], x.shape[1], kernel, kernel))
    for a in range(kernel):
        for b in range(kernel):
            rows, columns = d.shape[2:]
            there = padded[:, :, a * e :, b * e :][:, :, : rows * s : s, : columns * s : s]
            found[:, :, a, b] = np.einsum("nohw,nchw->oc", d, there)
    return found


@given(
    window=windows(dilates=True),
    n=st.integers(1, 3),
    channels=st.integers(1, 3),
    outputs=st.integers(1, 3),
    seed=st.integers(0, 99),
)
def test_what_a_convolution_says_of_its_weight(
    window: tuple[int, ...], n: int, channels: int, outputs: int, seed: int
) -> None:
    size, kernel, strides, padding, dilation = window
    how = {"strides": strides, "padding": padding, "dilation": dilation}
    x = Var(Name("x"), tensor((n, channels, size, size), "f64"))
    w = Var(Name("w"), tensor((outputs, channels, kernel, kernel), "f64"))
    of, d = slopes(nn.conv(x, w, **how), x, w)
    random = np.random.default_rng(seed)
    given_ = [random.standard_normal(lengths(each)) for each in (x, w, d)]
    _, (_, found) = plica.interpret(of, *given_)
    np.testing.assert_allclose(found, weight_slopes(given_[0], given_[2], kernel, how), atol=1e-9)


def pool_slopes(x: Array, d: Array, kernel: int, strides: int, padding: int) -> Array:
    """Each cotangent given to the first of the greatest of its window."""
    found = np.zeros_like(x)
    for n, c, i, j in np.ndindex(*d.shape):
        places = [
            (i * strides - padding + a, j * strides - padding + b)
            for a in range(kernel)
            for b in range(kernel)
        ]
        inside = [at for at in places if 0 <= at[0] < x.shape[2] and 0 <= at[1] < x.shape[3]]
        first = max(inside, key=lambda at: (x[n, c, at[0], at[1]], -inside.index(at)))
        found[n, c, first[0], first[1]] += d[n, c, i, j]
    return found


@given(window=windows(dilates=False), seed=st.integers(0, 99))
def test_what_a_maximum_says_of_its_window(window: tuple[int, ...], seed: int) -> None:
    size, kernel, strides, padding, _ = window
    x = Var(Name("x"), tensor((1, 2, size, size), "f64"))
    of, d = slopes(nn.max_pool(x, kernel=kernel, strides=strides, padding=padding), x)
    random = np.random.default_rng(seed)
    values = random.integers(-2, 3, (1, 2, size, size)).astype(np.float64)  # with equals
    cotangent = random.standard_normal(lengths(d))
    _, (found,) = plica.interpret(of, values, cotangent)
    wanted = pool_slopes(values, cotangent, kernel, strides, padding)
    np.testing.assert_allclose(found, wanted, atol=1e-12)


@given(window=windows(dilates=False), seed=st.integers(0, 99))
def test_a_mean_hands_out_what_a_sum_collects(window: tuple[int, ...], seed: int) -> None:
    """`nn.window_spread` is the transpose of `nn.window_sum`: <S x, d> = <x, S' d>."""
    size, kernel, strides, padding, _ = window
    how = {"kernel": kernel, "strides": strides, "padding": padding}
    x = Var(Name("x"), tensor((1, 2, size, size), "f64"))
    of, d = slopes(nn.window_sum(x, **how), x)
    random = np.random.default_rng(seed)
    given_, cotangent = (random.standard_normal(lengths(each)) for each in (x, d))
    value, (found,) = plica.interpret(of, given_, cotangent)
    np.testing.assert_allclose((value * cotangent).sum(), (given_ * found).sum(), atol=1e-9)


@pytest.mark.parametrize(
    "sizes",
    [
        (4, 3, 17, 12, 2),
        pytest.param((3, 4, 32, 14, 2), marks=pytest.mark.slow),
        pytest.param((8, 16, 32, 6, 3), marks=pytest.mark.slow),
        (3, 2, 4, 8, 1),
    ],
    ids=str,
)
def test_compiled_slopes_of_a_layer(sizes: tuple[int, ...]) -> None:
    n, channels, outputs, size, pool = sizes
    x = Var(Name("x"), tensor((n, channels, size, size), "f32"))
    w = Var(Name("w"), tensor((outputs, channels, 3, 3), "f32"))
    y = nn.max_pool(nn.relu(nn.conv(x, w, padding=1)), kernel=pool, strides=pool)
    of = plica.grad(Function((), (), (x, w), None, sum_(y * y)))
    random = np.random.default_rng(2)
    given_ = [
        random.standard_normal((n, channels, size, size)).astype(np.float32),
        random.standard_normal((outputs, channels, 3, 3)).astype(np.float32),
    ]
    wanted = plica.interpret(of, *given_)
    for mine, right in zip(plica.compile(of)(*given_), wanted, strict=True):
        assert np.abs(mine - right).max() <= 1e-4 * max(1.0, float(np.abs(right).max()))


def test_examples_apart_only_where_they_are_few() -> None:
    """A weight of more elements than an example of data and result is not made for each of them."""

    def text(channels: int, size: int) -> str:
        x = Var(Name("x"), tensor((4, channels, size, size), "f32"))
        w = Var(Name("w"), tensor((channels, channels, 3, 3), "f32"))
        return str(plica.grad(Function((), (), (x, w), None, sum_(nn.conv(x, w))), "w"))

    assert "groups=4" in text(2, 16)
    assert "groups=4" not in text(64, 5)
