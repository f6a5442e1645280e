"""Tails: lanes that fill no register are one masked vector, and the masked lanes touch nothing."""

from __future__ import annotations

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given, settings, strategies as st

from plica.codegen.llvm import statement
from plica.codegen.llvm.fold import emit
from plica.codegen.llvm.writer import CodeTraits
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.scalar import Intrinsic, Lit, Lt, Scalar, ScalarVar, Select, index
from plica.ir.loop.statement import NOTHING, Alloc, Branch, For, Kernel, Stmt, Store, seq
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


def copied(rows: int, columns: int, lanes: int, edge: int, ahead: int) -> Kernel:
    """Sums of a window's columns in unrolled loops; columns before the edge are 0."""
    size = lanes + columns
    x, w = buffer("x", (rows, size), f32), buffer("w", (columns,), f32)
    own = evolve(buffer("own", (rows * lanes,), f32), scope="local")
    y = buffer("y", (rows, lanes), f32)
    r, k, v, s, o = (axis(each) for each in "rkvso")
    note = (("fetch", ahead),) if ahead else ()
    place = k + v - edge
    value: Scalar = x[s, place]
    if edge:
        value = Select(Lt(index(edge - 1), k + v), value, Lit(0.0, f32))
    added = Store(own, (s * lanes + v,), own[s * lanes + v] + value * w[k])
    zero = Store(own, (s * lanes + v,), Lit(0.0, f32))

    def every_row(row: ScalarVar, inside: Stmt) -> Stmt:
        return For(row, index(rows), "unrolled", inside)

    start = every_row(s, For(v, index(lanes), "vectorized", zero))
    lane = For(v, index(lanes), "vectorized", added, note)
    total = For(k, index(columns), "unrolled", every_row(s, lane))
    out = every_row(r, For(o, index(lanes), "vectorized", Store(y, (r, o), own[r * lanes + o])))
    return Kernel((), (x, w, y), 2, Alloc(own, seq(start, total, out)))


@FEW
@given(
    st.tuples(st.integers(1, 4), st.integers(1, 3), st.sampled_from((1, 2, 4, 7, 8, 16, 40))),
    st.integers(0, 2),
    st.sampled_from((0, 16)),
    st.booleans(),
)
def test_copies_of_a_store_are_written_as_loops_are(
    sizes: tuple[int, int, int], edge: int, ahead: int, masks: bool
) -> None:
    """Unrolled loops with one store inside are not opened for each copy: the text is the same."""
    rows, columns, lanes = sizes
    kernel = copied(rows, columns, lanes, edge, ahead)
    traits = CodeTraits(width=256, masks=masks)
    found = emit(kernel, "k", traits=traits)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(statement, "copied_store", lambda loop: None)
        assert found == emit(kernel, "k", traits=traits)
    random = np.random.default_rng(rows)
    shapes = (rows, lanes + columns), (columns,)
    arrays = [random.integers(-9, 9, shape).astype(np.float32) for shape in shapes]
    code, (result,) = native_kernel(kernel, arrays)
    assert code == 0
    assert_same(result, run_kernel(kernel, arrays)[0])


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


@pytest.mark.parametrize("count", [0, 5, 37, 64])
def test_lanes_of_registers_under_a_guard_are_chosen(count: int) -> None:
    """A masked store of a tile of registers would keep that in memory."""
    x, y = buffer("x", (64,), f32), buffer("y", (16,), f32)
    own = evolve(buffer("own", (16,), f32), scope="local")
    i, v, w, u = (axis(name) for name in "ivwu")
    start = For(u, index(16), "vectorized", Store(own, (u,), Lit(1, f32)))
    term = Store(own, (v,), own[v] + x[i * 16 + v])
    guarded = Branch(Lt(i * 16 + v, index(count)), term, NOTHING)
    terms = For(i, index(4), "serial", For(v, index(16), "vectorized", guarded))
    end = For(w, index(16), "vectorized", Store(y, (w,), own[w]))
    kernel = Kernel((), (x, y), 1, Alloc(own, seq(start, terms, end)))
    text = "\n".join(emit(kernel, "k", traits=CodeTraits(width=512, masks=True)).lines)
    assert "masked.store" not in text
    values = np.random.default_rng(count).standard_normal(64).astype(np.float32)
    code, (found,) = native_kernel(kernel, [values])
    assert code == 0
    np.testing.assert_allclose(found, run_kernel(kernel, [values])[0], rtol=1e-6)
