"""Tiles in registers are turned, and mean what they did."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plica.codegen.llvm.kernel import emit
from plica.codegen.llvm.turn import exchanged
from plica.core.name import Name
from plica.ir.dtype import DType, f32, f64, i32
from plica.ir.loop import Alloc, For, Kernel, Store, seq
from plica.ir.run import run_kernel
from plica.ir.scalar import Buffer, index
from plica.ir.tensor import axis, buffer
from tests.codegen.native import assert_same, native_kernel

FEW = settings(max_examples=max(6, settings().max_examples // 3))


def turned(rows: int, columns: int, of: DType, times: int = 1) -> Kernel:
    """y[t, j, i] = x[t, i, j] through a tile that is filled along rows and read along columns."""
    x, y = buffer("x", (times, rows, columns), of), buffer("y", (times, columns, rows), of)
    tile = Buffer(Name("tile"), (index(rows * columns),), of, "local")
    t, i, j, k, l = (axis(each) for each in "tijkl")  # noqa: E741  # as in the sentence above
    fill = Store(tile, (i * columns + j,), x[t, i, j])
    read = Store(y, (t, l, k), tile[k * columns + l])
    body = seq(
        For(i, index(rows), "unrolled", For(j, index(columns), "vectorized", fill)),
        For(l, index(columns), "unrolled", For(k, index(rows), "vectorized", read)),
    )
    return Kernel((), (x, y), 1, For(t, index(times), "unrolled", Alloc(tile, body)))


@FEW
@given(st.integers(1, 17), st.sampled_from((4, 8, 16, 32, 12)), st.sampled_from((f32, f64, i32)))
def test_columns_are_what_rows_hold(rows: int, columns: int, of: DType) -> None:
    kernel = turned(rows, columns, of)
    values = np.arange(rows * columns).astype(of.numpy).reshape(1, rows, columns)
    code, (found,) = native_kernel(kernel, [values])
    assert code == 0
    assert_same(found, run_kernel(kernel, [values])[0])


def test_what_is_stored_again_is_turned_again() -> None:
    kernel = turned(8, 16, f32, times=3)
    values = np.arange(3 * 8 * 16, dtype=np.float32).reshape(3, 8, 16)
    assert_same(native_kernel(kernel, [values])[1][0], run_kernel(kernel, [values])[0])


@pytest.mark.parametrize("rows", [2, 4, 8, 16])
def test_a_tile_is_turned_once(rows: int) -> None:
    text = "\n".join(emit(turned(rows, 16, f32), "k").lines)
    rounds = rows.bit_length() - 1
    picked = 0 if rows == 16 else 16
    assert text.count("shufflevector") == rounds * rows + picked
    assert "insertelement" not in text


@given(st.sampled_from((2, 4, 8, 16)), st.data())
def test_rounds_turn_a_square(width: int, data: st.DataObject) -> None:
    """Blocks of all sizes exchanged once: row and column have changed places."""
    rows = [[(row, lane) for lane in range(width)] for row in range(width)]
    sizes = [1 << at for at in range(width.bit_length() - 1)]
    for apart in data.draw(st.permutations(sizes)):
        for at in [each for each in range(width) if not each & apart]:
            both = rows[at] + rows[at + apart]
            rows[at], rows[at + apart] = (
                [both[lane] for lane in exchanged(side, apart, width)] for side in (0, 1)
            )
    assert rows == [[(lane, row) for lane in range(width)] for row in range(width)]
