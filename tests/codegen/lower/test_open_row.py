"""Rows of open length, windows of images of any size, and sizes that kernels are told."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import plica
from plica import op
from plica.core.name import Name
from plica.ir.graph.expression import Expr, Function, Var, const
from plica.ir.graph.module import Module, module
from plica.ir.type.dim import dim_var
from plica.ir.type.term import tensor
from plica.op import nn
from plica.runtime.error import InputError, PlicaError


def of(shape: tuple[int | str, ...], body: Callable[[Expr], Expr]) -> Module:
    x, main = Var(Name("x"), tensor(shape, "f32")), Var(Name("main"), None)
    dims = tuple([dim_var(each) for each in shape if isinstance(each, str)])
    return module({main: Function(dims, (), (x,), None, body(x))}, main)


# fmt: off
ROWS: dict[str, tuple[Callable[[Expr], Expr], Callable[[Any], Any]]] = {
    "sum":     (lambda x: op.sum(x, axis=(1,)), lambda x: x.sum(1)),
    "max":     (lambda x: op.max(x, axis=(1,)), lambda x: x.max(1)),
    "mean":    (lambda x: nn.relu(op.mean(x * x, axis=(1,))), lambda x: (x * x).mean(1)),
    "softmax": (lambda x: nn.softmax(x, axis=-1),
                lambda x: np.exp(x) / np.exp(x).sum(1, keepdims=True)),
}
# fmt: on


@lru_cache(maxsize=8)
def compiled(case: str) -> Any:
    return plica.compile(of(("n", "m"), ROWS[case][0]), cache=False, threads=1)


@pytest.mark.parametrize("case", ROWS)
@given(st.integers(0, 3), st.sampled_from((1, 2, 15, 16, 17, 63, 64, 65, 127, 1023, 1025, 2049)))
@example(1, 1)
@example(2, 1100)
@settings(max_examples=8, deadline=None)
def test_rows_of_every_length_are_reduced(case: str, n: int, m: int) -> None:
    x = np.random.default_rng(m).normal(size=(n, m)).astype(np.float32)
    wanted = ROWS[case][1](x.astype(np.float64))
    np.testing.assert_allclose(compiled(case)(x), wanted, rtol=2e-6, atol=1e-5)


def test_an_open_axis_that_is_empty_has_an_empty_softmax() -> None:
    assert compiled("softmax")(np.zeros((2, 0), np.float32)).shape == (2, 0)


# --- windows --------------------------------------------------------------------------------------

WEIGHT = np.random.default_rng(3).normal(size=(6, 1, 5, 5)).astype(np.float32)

# fmt: off
WINDOWS: dict[str, Callable[[Expr], Expr]] = {
    "depthwise": lambda x: nn.conv(x, const(WEIGHT), padding=2, groups=6),
    "half":      lambda x: nn.relu(nn.conv(x, const(WEIGHT), padding=2, strides=2, groups=6)),
    "apart":     lambda x: nn.conv(x, const(WEIGHT[:, :, :3, :3]), padding=2, dilation=2, groups=6),
    "pool":      lambda x: nn.max_pool(x, (3, 3), strides=2, padding=1),
}
# fmt: on


@lru_cache(maxsize=8)
def windows(case: str) -> tuple[Module, Any]:
    made = of(("n", 6, "h", "w"), WINDOWS[case])
    return made, plica.compile(made, contract="exact", cache=False, threads=2)


@pytest.mark.parametrize("case", WINDOWS)
@given(st.integers(0, 2), st.integers(1, 20), st.sampled_from((1, 2, 7, 15, 16, 17, 33)))
@example(1, 1, 1)
@example(2, 13, 33)
@settings(max_examples=4, deadline=None)
def test_windows_of_every_size_are_those_of_the_interpreter(
    case: str, n: int, high: int, wide: int
) -> None:
    made, exe = windows(case)
    x = np.random.default_rng(wide).normal(size=(n, 6, high, wide)).astype(np.float32)
    try:
        found = exe(x)
    except InputError:
        with pytest.raises(PlicaError):
            plica.interpret(made, x)
        return
    np.testing.assert_array_equal(found, plica.interpret(made, x))


# --- sizes ----------------------------------------------------------------------------------------


def test_layers_that_differ_in_their_sizes_alone_are_one_kernel() -> None:
    weight = const(np.random.default_rng(4).normal(size=(16, 16, 3, 3)).astype(np.float32) / 9)

    def deep(x: Expr) -> Expr:
        for _ in range(3):
            x = nn.conv(x, weight, padding=1, strides=2)
        return x

    made = of(("n", 16, "h", "w"), deep)
    exe = plica.compile(made, cache=False, threads=1)
    assert exe.source("llvm").count("define internal void @nn_conv") == 1
    x = np.random.default_rng(5).normal(size=(2, 16, 21, 37)).astype(np.float32)
    np.testing.assert_allclose(exe(x), plica.interpret(made, x), rtol=1e-4, atol=1e-5)
