"""Tiles by the copy engine: what a map says is what the loops copy; other copies are refused."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest
from hypothesis import given, strategies as st

from plica.analysis.index.context import EMPTY
from plica.analysis.statement import LoweringRefused
from plica.codegen.cuda.fold import fold
from plica.codegen.cuda.tma import SWIZZLED, copied, copy_nest
from plica.core.name import Name
from plica.ir.loop.scalar import And, Buffer, Cast, Le, Lt, Scalar, ScalarVar, Select, index, lit
from plica.ir.loop.statement import Alloc, For, Kernel, Seq, Stmt, Store
from plica.ir.loop.tensor import axis, buffer
from plica.ir.type.dtype import f16, f32

R, K, N, B, Q = (axis(name) for name in "rknbq")
AROUND = EMPTY.loop(B, 2).loop(Q, 3)


def nest(store: Stmt, **extents: int) -> Stmt:
    """A store inside loops, the last one outermost."""
    body: Stmt = store
    for name, extent in extents.items():
        body = For(axis(name), index(extent), "serial", body)
    return body


def tile_of(*sizes: int, scope: str = SWIZZLED) -> Buffer:
    return Buffer(Name("tile"), tuple(map(index, sizes)), f16, scope)


@given(
    rows=st.sampled_from([1, 8, 24]), panels=st.sampled_from([1, 2, 3]),
    along=st.booleans(), offset=st.integers(0, 2), more=st.sampled_from([0, 8, 40]),
)  # fmt: skip
def test_a_map_finds_what_the_loops_copy(
    rows: int, panels: int, along: bool, offset: int, more: int
) -> None:
    """Rows of 64 terms; or 64 columns of each term, panel by panel, of tensors that need not be
    made of panels."""
    if along:
        x = buffer("x", (2 * panels * rows + 1, 64 * 3), f16)
        to = tile_of(panels, rows, 64)
        load = x[B * (panels * rows) + N * rows + R, Q * 64 + K]
        store = Store(to, (N, R, K), load)
    else:
        x = buffer("x", (3 * rows + offset, 64 * panels * 2 + more), f16)
        to = tile_of(panels, rows, 64)
        load = x[Q * rows + R + offset, B * (64 * panels) + N * 64 + K]
        store = Store(to, (N, R, K), load)
    if rows * panels == 1:
        return  # one row is no tile
    shape = [int(size.value) for size in x.shape]  # type: ignore[attr-defined]  # sizes are numbers here
    flat = np.arange(np.prod(shape))
    found = copied(copy_nest(nest(store, k=64, n=panels, r=rows)), AROUND)
    for b in range(2):
        for q in range(3):
            value: dict[object, int] = {B: b, Q: q}
            begins = [
                sum(factor * int(np.prod([value[each] for each in atoms])) for atoms, factor in one)
                for one in found.begins
            ]
            every = list[np.ndarray]()
            for panel in range(found.panels):
                got, begins[0] = np.zeros(1, np.int64), begins[0] + 64 * (panel > 0)
                for begin, extent, stride, size in zip(
                    begins, found.extents, found.strides, found.sizes, strict=True
                ):
                    assert 0 <= begin <= size - extent
                    got = (got[None, :] + (begin + np.arange(extent))[:, None] * stride).ravel()
                every.append(got)
            picture = flat.reshape(shape)
            expected = [
                picture[b * panels * rows + n * rows + r, q * 64 + k] if along
                else picture[q * rows + r + offset, b * 64 * panels + n * 64 + k]
                for n in range(panels) for r in range(rows) for k in range(64)
            ]  # fmt: skip
            np.testing.assert_array_equal(np.concatenate(every), expected)


X = buffer("x", (256, 256), f16)
TILE = tile_of(64, 64)
COPY = nest(Store(TILE, (R, K), X[R, K]), k=64, r=64)
OUT = buffer("out", (64,), f16)
READ = Store(OUT, (R,), TILE[R, 0])
ZERO = Store(TILE, (R, index(0)), lit(0.0, f16))


def test_one_thread_asks_for_a_tile() -> None:
    body = For(axis("t"), index(32), "threadIdx.x", Alloc(TILE, COPY))
    with pytest.raises(LoweringRefused, match="by several threads"):
        fold(Kernel((), (X,), 1, body), "k")


@pytest.mark.parametrize(
    "also", [nest(READ, r=64), nest(Seq((ZERO, Store(OUT, (R,), X[R, 0]))), r=64)]
)
def test_swizzled_memory_is_for_those_who_know(also: Stmt) -> None:
    """A thread would read and write elsewhere."""
    body = For(axis("t"), index(32), "threadIdx.x", Alloc(TILE, Seq((COPY, also))))
    with pytest.raises(LoweringRefused, match="is swizzled"):
        fold(Kernel((), (X, OUT), 1, body), "k")


def refusal(store: Store, **extents: int) -> str:
    with pytest.raises(LoweringRefused) as caught:
        copied(copy_nest(nest(store, **(extents or {"k": 64, "r": 64}))), AROUND)
    return str(caught.value)


def plain(value: Scalar, to: Buffer | None = None, places: tuple[ScalarVar, ...] = (R, K)) -> Store:
    return Store(to or tile_of(64, 64), places, value)


def test_values_that_are_computed_are_no_tile() -> None:
    assert "not just read" in refusal(plain(X[R, K] + X[R, K]))
    wide = buffer("wide", (64, 64), f32)
    assert "not just read" in refusal(plain(Cast(wide[R, K], f16)))


def test_a_tile_comes_from_global_memory() -> None:
    near = Buffer(Name("near"), X.shape, f16, "shared")
    assert "in no global memory" in refusal(plain(near[R, K]))


def test_elements_of_a_tile_lie_together() -> None:
    assert "do not lie together" in refusal(plain(X[R, K], tile_of(64, 128)))


def test_rows_of_a_tile_have_128_bytes() -> None:
    assert "a tile of" in refusal(plain(X[R, K], tile_of(64, 32)), k=32, r=64)
    assert "a tile of" in refusal(plain(X[K, R]))


def test_places_are_multiples_of_loops() -> None:
    assert "no multiples of loops" in refusal(plain(X[R // 2, K]))


def test_places_depend_on_loops_alone() -> None:
    assert "depends on more than loops" in refusal(plain(X[R + axis("other"), K]))


def test_a_tile_is_inside_of_its_tensor() -> None:
    assert "outside of x" in refusal(plain(X[R + 200, K]))


def test_steps_divide_one_another() -> None:
    odd = buffer("odd", (64, 200), f16)
    assert "do not divide" in refusal(
        Store(tile_of(2, 64, 64), (N, R, K), odd[R, K + 128 * N]), k=64, r=64, n=2
    )


def test_panels_of_a_tensor_that_is_not_made_of_them_are_inside() -> None:
    odd = buffer("odd", (64, 200), f16)
    store = Store(tile_of(4, 64, 64), (N, R, K), odd[R, K + 64 * N])
    assert copied(copy_nest(nest(store, k=64, r=64, n=3)), AROUND).panels == 3
    assert "outside of odd" in refusal(store, k=64, r=64, n=4)


# --- guards ---------------------------------------------------------------------------------------


def guarded(value: Scalar, *tests: Scalar) -> Scalar:
    return Select(reduce(And, tests), value, lit(0.0, f16))


def test_beyond_a_bound_there_are_zeros() -> None:
    x = buffer("x", (100, 40), f16)
    inside = guarded(x[B * 64 + R, K], Lt(B * 64 + R, index(100)), Lt(K, index(40)))
    found = copied(copy_nest(nest(plain(inside), k=64, r=64)), AROUND)
    assert found.sizes == (40, 100)
    assert found.extents == (64, 64)


def test_digits_below_a_bound_are_left_out_of_it() -> None:
    """A guard of eight neighbours together bounds each of them."""
    x, o = buffer("x", (64, 40), f16), axis("o")
    inside = guarded(x[R, o * 8 + K], Lt(o, index(5)))
    found = copied(
        copy_nest(nest(Store(tile_of(64, 8, 8), (R, o, K), inside), k=8, o=8, r=64)), AROUND
    )
    assert found.sizes == (40, 64)


def test_a_bound_within_a_batch_is_an_axis_of_its_own() -> None:
    x = buffer("x", (3, 100, 64), f16)
    inside = guarded(x[Q, B * 64 + R, K], Lt(B * 64 + R, index(100)))
    found = copied(copy_nest(nest(plain(inside), k=64, r=64)), AROUND)
    assert (found.sizes, found.strides, found.extents) == ((64, 100, 3), (1, 64, 6400), (64, 64, 1))


def test_where_a_tile_begins_counts_towards_its_bound() -> None:
    x = buffer("x", (100, 64), f16)
    found = copied(
        copy_nest(nest(plain(guarded(x[R + 64, K], Lt(R, index(36)))), k=64, r=64)), AROUND
    )
    assert found.sizes == (64, 100)


def test_other_guards_are_no_bounds() -> None:
    assert "no bound" in refusal(plain(guarded(X[R, K], Lt(R + K, index(10)))))
    assert "no bound" in refusal(plain(guarded(X[R, K], Le(index(3), R))))
    assert "a guard at 100 along an axis of 256" in refusal(
        plain(guarded(X[R, K], Lt(R, index(100))))
    )
