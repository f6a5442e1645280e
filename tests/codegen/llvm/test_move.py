"""Long rows that are only moved are copied by one call, and nothing else is."""

from __future__ import annotations

import numpy as np
import pytest

from plica.codegen.llvm.fold import emit
from plica.codegen.llvm.statement import MOVED
from plica.codegen.llvm.writer import CodeTraits
from plica.ir.loop.scalar import Scalar, index
from plica.ir.loop.statement import For, Kernel, Store
from plica.ir.loop.tensor import axis, buffer
from plica.ir.type.dtype import f32
from tests.codegen.native import assert_same, native_kernel

LONG = MOVED // 4 + 3
X, Y = buffer("x", (3, LONG + 1), f32), buffer("y", (3, LONG), f32)
ONE = buffer("one", (), f32)
ROW, J = axis("i"), axis("j")


def rows(value: Scalar, length: int = LONG) -> Kernel:
    row = For(J, index(length), "vectorized", Store(Y, (ROW, J), value))
    return Kernel((), (X, ONE, Y), 2, For(ROW, index(3), "serial", row))


def written(kernel: Kernel) -> str:
    return "\n".join(emit(kernel, "k", traits=CodeTraits(masks=True)).lines)


def test_a_long_row_is_moved_by_one_call() -> None:
    kernel = rows(X[2 - ROW, J + 1])
    assert written(kernel).count("@llvm.memcpy") == 1
    x = np.arange(3 * LONG + 3, dtype=np.float32).reshape(3, -1)
    code, (found,) = native_kernel(kernel, [x, np.zeros((), np.float32)])
    assert code == 0
    assert_same(found, x[::-1, 1:])


@pytest.mark.parametrize(
    "kernel",
    [
        rows(X[ROW, J] + X[ROW, J]),
        rows(X[ROW, LONG - J]),
        rows(X[ROW, J], 100),
        rows(X[ROW, index(0)]),
        rows(ONE[()]),
    ],
    ids=["changed", "backwards", "short", "one", "of no axes"],
)
def test_all_else_is_a_loop(kernel: Kernel) -> None:
    assert "memcpy" not in written(kernel)
