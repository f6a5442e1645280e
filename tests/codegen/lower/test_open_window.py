"""Windows of open images: every height and width gives what numpy gives."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import plica
from plica.core.name import Name
from plica.ir.graph.expression import Expr, Function, Var, const
from plica.ir.graph.module import module
from plica.ir.type.dim import dim_var
from plica.ir.type.term import tensor
from plica.op import nn

Array = np.ndarray[Any, Any]


def windows(x: Array, size: int, stride: int, pad: int, fill: float) -> Array:
    """All windows of the last two axes, with a border."""
    wide = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)), constant_values=fill)
    every = np.lib.stride_tricks.sliding_window_view(wide, (size, size), axis=(2, 3))
    return every[:, :, ::stride, ::stride]


@pytest.mark.parametrize(
    ("kind", "size", "stride"), [("pool", 3, 2), ("conv", 5, 1), ("conv", 3, 3)]
)
def test_windows_at_the_ends_of_images(kind: str, size: int, stride: int) -> None:
    random, pad = np.random.default_rng(0), size // 2
    weight = random.standard_normal((4, 1, size, size)).astype(np.float32)
    x = Var(Name("x"), tensor((1, 4, "h", "w"), "f32"))
    made: Expr = (
        nn.max_pool(x, (size, size), strides=stride, padding=pad) if kind == "pool"
        else nn.conv(x, const(weight), padding=pad, strides=stride, groups=4)
    )  # fmt: skip
    main = Var(Name("main"), None)
    function = Function((dim_var("h"), dim_var("w")), (), (x,), None, made)
    exe = plica.compile(module({main: function}, main), threads=1, cache=False)
    sizes = [(1, 1), (3, 70), (9, 15), (8, 16), (13, 17), (24, 31), (25, 33), (26, 48), (17, 50)]
    for height, width in sizes:
        data = random.standard_normal((1, 4, height, width)).astype(np.float32)
        seen = windows(data, size, stride, pad, -np.inf if kind == "pool" else 0)
        wanted = seen.max((-2, -1)) if kind == "pool" else np.einsum(
            "nchwij,cij->nchw", seen.astype(np.float64), weight[:, 0])  # fmt: skip
        np.testing.assert_allclose(exe(data), wanted, rtol=1e-4, atol=1e-4)


def test_a_plane_before_the_first_is_outside() -> None:
    x = Var(Name("x"), tensor(("n", 1, 4, 4, 4), "f32"))
    weight = np.array([2.0, 3.0], np.float32).reshape(1, 1, 1, 1, 2)
    main = Var(Name("main"), None)
    made = nn.conv(x, const(weight), padding=((1, 0), (0, 0), (0, 0)))
    function = Function((dim_var("n"),), (), (x,), None, made)
    exe = plica.compile(module({main: function}, main), threads=1, cache=False)
    data = np.random.default_rng(0).standard_normal((2, 1, 4, 4, 4)).astype(np.float32)
    wide = np.pad(data, ((0, 0), (0, 0), (1, 0), (0, 0), (0, 0)))
    np.testing.assert_allclose(exe(data), 2 * wide[..., :-1] + 3 * wide[..., 1:], rtol=1e-5)
