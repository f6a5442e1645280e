"""Specialised kernels: at the chosen sizes they do what the symbolic kernel does there."""

from __future__ import annotations

import numpy as np
from hypothesis import given, strategies as st

from plica.core.binding import free_vars
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.specialise import specialise
from plica.ir.loop.statement import Alloc, For, Kernel, Store, seq
from plica.ir.loop.tensor import axis, buffer
from plica.ir.type.dim import dim_var
from plica.ir.type.dtype import i32

n, m = dim_var("n"), dim_var("m")
i, j = axis("i"), axis("j")
x, y, t = buffer("x", (n, m), i32), buffer("y", (m, n), i32), buffer("t", (n + 1, m), i32)
TURNED = Kernel(
    (n, m),
    (x, y),
    1,
    Alloc(
        t,
        seq(
            For(i, n, "serial", For(j, m, "serial", Store(t, (i + 1, j), x[i, j]))),
            For(i, n, "serial", For(j, m, "serial", Store(y, (j, i), t[i + 1, j]))),
        ),
    ),
)


@given(st.integers(0, 4), st.integers(0, 4))
def test_a_specialised_kernel(rows: int, columns: int) -> None:
    small = specialise(TURNED, {n: rows, m: columns})
    assert small.dims == ()
    assert free_vars(small) == frozenset()
    given_ = np.arange(rows * columns, dtype=np.int32).reshape(rows, columns)
    (one,), (two,) = run_kernel(TURNED, (given_,)), run_kernel(small, (given_,))
    assert one.tolist() == two.tolist() == given_.T.tolist()


def test_some_dims_stay() -> None:
    half = specialise(TURNED, {n: 3})
    assert half.dims == (m,)
    assert specialise(TURNED, {}) is TURNED
    given_ = np.ones((3, 2), np.int32)
    assert run_kernel(half, (given_,))[0].shape == (2, 3)
