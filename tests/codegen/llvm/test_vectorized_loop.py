"""Tails: lanes that fill no register are one masked vector, and the masked lanes touch nothing."""

from __future__ import annotations

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from plica.codegen.llvm.kernel import emit
from plica.codegen.llvm.writer import CodeTraits
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.scalar import Intrinsic, Lit, Lt, Scalar, Select, index
from plica.ir.loop.statement import Alloc, Branch, For, Kernel, Store, seq
from plica.ir.loop.tensor import axis, buffer
from plica.ir.type.dtype import DType, f32, f64, i8, i32, i64
from tests.codegen.native import assert_same, native_kernel

FEW = settings(max_examples=max(10, settings().max_examples // 2))


def spread(lanes: int, step: int, of: DType, kind: int) -> Kernel:
    """A loop over lanes that reads neighbours, one place for all, and conditions."""
    x, c = buffer("x", (lanes * step + 1,), of), buffer("c", (3,), of)
    y, j = buffer("y", (lanes,), of), axis("j")
    value: Scalar = x[j * step] + c[index(2)]
    if kind == 1:
        value = Select(Lt(j, index(lanes // 2)), value, x[j * step + 1])
    if kind == 2:
        value = value + x[index(lanes) * step - j * step]
    body = Store(y, (j,), value)
    stmt = (
        Branch(Lt(x[j * step], Lit(0, of)), body, Store(y, (j,), x[j * step + 1]))
        if kind == 3
        else body
    )
    return Kernel((), (x, c, y), 2, For(j, index(lanes), "vectorized", stmt))


@FEW
@given(
    st.integers(1, 37),
    st.integers(1, 3),
    st.sampled_from((f32, f64, i32, i64, i8)),
    st.integers(0, 3),
    st.integers(0, 9),
)
def test_any_number_of_lanes(lanes: int, step: int, of: DType, kind: int, seed: int) -> None:
    kernel = spread(lanes, step, of, kind)
    random = np.random.default_rng(seed)
    arrays = [random.integers(-9, 9, n).astype(of.numpy) for n in (lanes * step + 1, 3)]
    code, (found,) = native_kernel(kernel, arrays)
    assert code == 0
    assert_same(found, run_kernel(kernel, arrays)[0])


def tile(rows: int, columns: int, lanes: int = 16) -> Kernel:
    """A tile in registers, of which columns are written out: exp of each element."""
    x, y = buffer("x", (rows, lanes), f32), buffer("y", (columns, rows), f32)
    own = evolve(buffer("own", (rows * lanes,), f32), scope="local")
    r, v, c, o = axis("r"), axis("v"), axis("c"), axis("o")
    fill = For(v, index(lanes), "vectorized", Store(own, (r * lanes + v,), x[r, v]))
    read = Store(y, (c, o), Intrinsic("exp", (own[o * lanes + c],)))
    out = For(c, index(columns), "unrolled", For(o, index(rows), "vectorized", read))
    return Kernel((), (x, y), 1, Alloc(own, seq(For(r, index(rows), "unrolled", fill), out)))


@pytest.mark.parametrize("rows", [3, 7, 13, 14, 16])
def test_columns_of_a_tile(rows: int) -> None:
    kernel = tile(rows, 5)
    values = np.random.default_rng(rows).standard_normal((rows, 16)).astype(np.float32)
    code, (found,) = native_kernel(kernel, [values])
    assert code == 0
    np.testing.assert_allclose(found, np.exp(values[:, :5].T), rtol=1e-6)


def test_what_is_computed_in_a_tail_is_computed_once() -> None:
    kernel = tile(14, 1)
    split, whole = (
        "\n".join(emit(kernel, "k", traits=CodeTraits(width=512, masks=masks)).lines)
        for masks in (False, True)
    )
    assert [text.count("@plica.exp") for text in (split, whole)] == [3, 1]
    assert whole.count("masked.store") == 1
    assert "masked.gather" not in whole


def test_what_is_kept_in_registers_is_not_masked() -> None:
    """A masked read of memory of its own would keep that in memory."""
    own = evolve(buffer("own", (14,), f32), scope="local")
    y, j, v = buffer("y", (14,), f32), axis("j"), axis("v")
    start = For(v, index(14), "vectorized", Store(own, (v,), Lit(1, f32)))
    end = For(j, index(14), "vectorized", Store(y, (j,), own[j]))
    kernel = Kernel((), (y,), 0, Alloc(own, seq(start, end)))
    text = "\n".join(emit(kernel, "k", traits=CodeTraits(width=512, masks=True)).lines)
    assert "masked" not in text
