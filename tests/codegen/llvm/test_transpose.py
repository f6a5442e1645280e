"""Tiles in registers are turned, and mean what they did."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from plica.codegen.llvm.fold import emit
from plica.codegen.llvm.transpose import network
from plica.codegen.llvm.writer import CodeTraits
from plica.core.name import Name
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.scalar import Buffer, index
from plica.ir.loop.statement import Alloc, For, Kernel, Store, seq
from plica.ir.loop.tensor import axis, buffer
from plica.ir.type.dtype import DType, f32, f64, i32
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


def turned_in_a_loop(rows: int, columns: int, of: DType, apart: int, times: int = 3) -> Kernel:
    """The same of tiles that lie in one buffer, a given number of elements `apart`, read in a
    loop."""
    x, y = buffer("x", (times, rows, columns), of), buffer("y", (times, columns, rows), of)
    tile = Buffer(Name("tile"), (index((times - 1) * apart + rows * columns),), of, "local")
    s, t, i, j, k, l = (axis(each) for each in "stijkl")  # noqa: E741  # as above
    fill = For(
        j, index(columns), "vectorized", Store(tile, (s * apart + i * columns + j,), x[s, i, j])
    )
    read = For(k, index(rows), "vectorized", Store(y, (t, l, k), tile[t * apart + k * columns + l]))
    body = seq(
        For(s, index(times), "serial", For(i, index(rows), "unrolled", fill)),
        For(t, index(times), "serial", For(l, index(columns), "unrolled", read)),
    )
    return Kernel((), (x, y), 1, Alloc(tile, body))


@FEW
@given(
    st.integers(1, 17),
    st.sampled_from((4, 8, 16, 32, 12)),
    st.sampled_from((f32, f64, i32)),
    st.integers(0, 33),
)
def test_tiles_begin_where_a_loop_says(rows: int, columns: int, of: DType, more: int) -> None:
    kernel = turned_in_a_loop(rows, columns, of, rows * columns + more)
    values = np.arange(3 * rows * columns).astype(of.numpy).reshape(3, rows, columns)
    code, (found,) = native_kernel(kernel, [values])
    assert code == 0
    assert_same(found, run_kernel(kernel, [values])[0])


@pytest.mark.parametrize(("more", "is_turned"), [(0, True), (64, True), (8, False)])
def test_only_tiles_that_begin_with_a_row_are_turned(more: int, is_turned: bool) -> None:
    text = "\n".join(emit(turned_in_a_loop(16, 16, f32, 256 + more), "k").lines)
    assert ("insertelement" not in text) == is_turned


@pytest.mark.parametrize("rows", [2, 4, 8, 16])
def test_a_tile_is_turned_once(rows: int) -> None:
    text = "\n".join(emit(turned(rows, 16, f32), "k").lines)
    rounds = rows.bit_length() - 1
    picked = 0 if rows == 16 else 16
    assert text.count("shufflevector") == rounds * rows + picked
    assert "insertelement" not in text


SIZES = st.sampled_from((1, 2, 4, 8, 16, 32))


@given(SIZES, SIZES, st.sampled_from((1, 2, 4, 8)))
def test_rounds_turn_rows(count: int, width: int, size: int) -> None:
    """Rows exchange lanes round by round, after which each is a column and those further on."""
    count = min(count, width)
    how = network(count, width, size)
    rows = [[(row, lane) for lane in range(width)] for row in range(count)]
    for round_ in how.rounds:
        rows = [[(rows[a] + rows[b])[lane] for lane in lanes] for a, b, lanes in round_]
    assert sorted(how.columns) == list(range(count))
    for column, at in enumerate(how.columns):
        assert rows[at] == [(x % count, column + x // count * count) for x in range(width)]


@pytest.mark.parametrize("width", [128, 256, 512])
def test_a_fence_stands_between_many_rounds(width: int) -> None:
    lanes = width // 32
    text = "\n".join(emit(turned(lanes, lanes, f32), "k", traits=CodeTraits(width=width)).lines)
    assert text.count("llvm.arithmetic.fence") == (lanes if width >= 256 else 0)
