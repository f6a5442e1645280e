"""Loops: blocks become loops, branches move out, guards are cut off, copies are written out."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from plica.analysis.statement import LoweringRefused
from plica.codegen.lower.blocks import blocks_to_loops
from plica.codegen.lower.hoist import hoist
from plica.codegen.lower.loop_kind import unroll, vectorise
from plica.codegen.lower.partition import partition
from plica.codegen.lower.tidy import tidy
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.scalar import Cast, Lt, Scalar, Select, index
from plica.ir.loop.statement import (
    NOTHING,
    Barrier,
    Block,
    Branch,
    For,
    Kernel,
    Seq,
    Stmt,
    Store,
    statements,
)
from plica.ir.loop.tensor import axis, buffer
from plica.ir.text.show import show_kernel
from plica.ir.type.dim import dim_var
from plica.ir.type.dtype import i32, i64
from tests.codegen.lower.kernels import assert_same, read, sizes_of
from tests.conftest import Golden

TAIL = """
def tail(x: Buffer[("n", 5), i32], y: Buffer[("n",), i32]):
    for i, j, k in grid((n + 3) // 4, 4, 5):
        with block("y", v=spatial(n, i * 4 + j), w=reduce(5, k), where=i * 4 + j < n):
            with init():
                y[v] = 0
            y[v] += x[v, w]
"""


def branches(kernel: Kernel) -> int:
    return sum(isinstance(each, Branch) for each in statements(kernel.body))


def test_the_tail_is_cut_off(golden: Golden) -> None:
    kernel = read(TAIL)
    opened = blocks_to_loops(kernel)
    assert not any(isinstance(each, Block) for each in statements(opened.body))
    moved = tidy(hoist(opened))
    cut = tidy(partition(moved))
    for size in (1, 3, 4, 9):
        for each in (opened, moved, cut):
            assert_same(kernel, each, n=size)
    golden("\n\n".join(show_kernel(each) for each in (opened, moved, cut)), "partition_tail")
    assert branches(moved) == 1
    assert branches(cut) == 0


def test_the_first_iteration_is_cut_off_where_elements_are_inside(golden: Golden) -> None:
    kernel = read("""
def inside(x: Buffer[(6, 5), i32], y: Buffer[(5,), i32]):
    for k, l, j in grid(2, 3, 5):
        with block("y", v=spatial(5, j), w=reduce(6, k * 3 + l)):
            with init():
                y[v] = 0
            y[v] += x[w, v]
""")
    cut = tidy(partition(tidy(hoist(blocks_to_loops(kernel)))))
    assert_same(kernel, cut)
    assert branches(cut) == 0
    golden(show_kernel(cut), "partition_inside")


ROWS = """
def rows(at: Buffer[(5,), i64], x: Buffer[(5, "n"), i32], y: Buffer[(4, "n"), i32]):
    for i, j in grid(4, n):
        y[i, j] = -1
    for k, j in grid(5, n):
        if at[k] < 4:
            y[at[k], j] = x[k, j]
"""


@given(st.integers(0, 3), st.lists(st.integers(0, 6), min_size=5, max_size=5))
def test_a_condition_in_memory_is_asked_once_for_a_row(size: int, places: list[int]) -> None:
    kernel = read(ROWS)
    made = hoist(kernel)
    *_, asked = [stmt for stmt in statements(made.body) if isinstance(stmt, Branch)]
    assert isinstance(asked.then, For)
    given_ = np.array(places), np.arange(5 * size, dtype=np.int32).reshape(5, size)
    sizes = sizes_of(kernel, {"n": size})
    wanted, found = (run_kernel(each, given_, sizes)[0] for each in (kernel, made))
    np.testing.assert_array_equal(wanted, found)


def test_the_middle_is_cut_before_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    y, z, i, j = buffer("y", (3, 3), i32), buffer("z", (3,), i32), axis("i"), axis("j")
    one = Cast(index(1), i32)
    row = For(j, index(3), "serial", Branch(Lt(j, index(2)), Store(y, (i, j), one), NOTHING))
    body = Seq((row, Branch(Lt(i, index(2)), Store(z, (i,), one), NOTHING)))
    kernel = Kernel((), (y, z), 0, For(i, index(3), "serial", body))
    monkeypatch.setattr("plica.codegen.lower.partition.MAX_CUT_LOOPS", 1)
    cut = tidy(partition(kernel))
    assert isinstance(cut.body, Seq)
    middle, *_ = cut.body.stmts
    assert not any(isinstance(each, Branch) for each in statements(middle))
    assert branches(cut) == 1  # where few iterations are


@given(st.integers(1, 9), st.integers(1, 4), st.integers(-3, 9), st.integers(-2, 2))
def test_any_guard_can_be_cut(extent: int, inner: int, bound: int, factor: int) -> None:
    y, i, j = buffer("y", (extent, inner), i32), axis("i"), axis("j")
    guard = Lt(i * factor + j, index(bound))
    stored = [Store(y, (i, j), Cast(index(each), i32)) for each in (1, 2)]
    body = Branch(guard, stored[0], stored[1])
    nest = For(i, index(extent), "serial", For(j, index(inner), "serial", body))
    kernel = Kernel((), (y,), 0, nest)
    cut = partition(kernel)
    assert_same(kernel, cut)
    assert_same(kernel, tidy(cut))


@given(st.integers(0, 7), st.integers(0, 5))
def test_a_window_is_cut_on_both_sides(extent: int, start: int) -> None:
    n = dim_var("n")
    y, i = buffer("y", (n,), i32), axis("i")
    one, two = (Store(y, (i,), Cast(index(each), i32)) for each in (1, 2))
    inside = Branch(Lt(i, n - 1), one, two)
    body = Branch(Lt(index(start - 1), i), inside, two)
    kernel = Kernel((n,), (y,), 0, For(i, n, "parallel", body))
    assert_same(kernel, partition(kernel), n=extent)
    assert_same(kernel, tidy(partition(kernel)), n=extent)


def test_conditions_that_read_what_the_loop_stores_stay() -> None:
    x, y, i, j = buffer("x", (3,), i32), buffer("y", (3,), i32), axis("i"), axis("j")
    body = Branch(Lt(x[0], y[1]), Store(y, (i,), x[i]), NOTHING)
    kernel = Kernel((), (x, y), 1, For(i, index(3), "serial", For(j, index(1), "serial", body)))
    assert branches(hoist(kernel)) == 1
    assert isinstance(hoist(kernel).body, For)


def test_a_place_that_memory_names_is_looked_up_once_for_a_row(golden: Golden) -> None:
    x, at, y = buffer("x", (3, 8), i32), buffer("at", (4,), i32), buffer("y", (4, 8), i32)
    i, j = axis("i"), axis("j")
    row = For(j, index(8), "vectorized", Store(y, (i, j), x[Cast(at[i], i64), j] + x[0, j]))
    kernel = Kernel((), (x, at, y), 2, For(i, index(4), "serial", row))
    moved = hoist(kernel)
    golden(show_kernel(moved), "hoist_looked_up")
    arrays = [np.arange(24, dtype=np.int32).reshape(3, 8), np.array([2, 0, 1, 2], np.int32)]
    for each in (kernel, moved):
        (found,) = run_kernel(each, arrays)
        np.testing.assert_array_equal(found, arrays[0][arrays[1]] + arrays[0][0])


@pytest.mark.parametrize("own", [True, False])
def test_what_is_read_under_a_condition_or_written_meanwhile_is_not_looked_up(own: bool) -> None:
    x, y, i, j = buffer("x", (3, 8), i32), buffer("y", (4, 8), i32), axis("i"), axis("j")
    at = buffer("at", (4,), i32)
    place = Cast(y[i, 0] if own else at[i], i64)
    value: Scalar = x[place, j]
    if not own:
        value = Select(Lt(i, index(2)), value, Cast(index(0), i32))
    row = For(j, index(8), "vectorized", Store(y, (i, j), value))
    kernel = Kernel((), (x, at, y), 2, For(i, index(4), "serial", row))
    assert hoist(kernel) is kernel


def test_neighbours_share_a_branch() -> None:
    x, y, i, n = buffer("x", (3,), i32), buffer("y", (3,), i32), axis("i"), dim_var("n")
    parts = [Branch(Lt(n, index(4)), Store(y, (i,), x[i]), NOTHING) for _ in range(2)]
    kernel = Kernel((n,), (x, y), 1, For(i, index(3), "serial", Seq(tuple(parts))))
    moved = hoist(kernel)
    assert branches(moved) == 1
    assert isinstance(moved.body, Branch)
    assert_same(kernel, moved, n=2)


@pytest.mark.parametrize("size", [0, 1, 2, 5])
def test_tidying_keeps_what_runs(size: int) -> None:
    y, i, j = buffer("y", (6,), i32), axis("i"), axis("j")
    inner = Store(y, ((i * 4 + j) % 4 + i * 0,), Cast(j, i32))
    guarded: Stmt = Branch(Lt(j, index(4)), inner, NOTHING)
    rest = For(i, index(6), "serial", Store(y, (i,), Cast(i, i32)))
    nest = For(i, index(1), "serial", For(j, index(min(size, 4)), "serial", guarded))
    kernel = Kernel((), (y,), 0, Seq((rest, Seq((nest, NOTHING)))))
    small = tidy(kernel)
    assert_same(kernel, small)
    assert branches(small) == 0


# --- loops that ask for something ----------------------------------------------------------------


def loop(extent: Scalar, kind: str, body: Stmt, **notes: bool) -> Kernel:
    n, y = dim_var("n"), buffer("y", (8,), i32)
    return Kernel((n,), (y,), 0, For(axis("i"), extent, kind, body, tuple(notes.items())))  # type: ignore[arg-type]


STORE = Store(buffer("y", (8,), i32), (axis("i"),), Cast(axis("i") * 3, i32))


def test_what_asks_for_it_is_written_out() -> None:
    kernel = loop(index(8), "unrolled", STORE, unroll_explicit=True)
    assert_same(kernel, unroll(kernel), n=0)
    assert len([each for each in statements(unroll(kernel).body) if isinstance(each, Store)]) == 8
    plain = loop(index(8), "unrolled", STORE)
    assert unroll(plain) is plain


def refused(run: object, kernel: Kernel) -> str:
    with pytest.raises(LoweringRefused) as caught:
        run(kernel)  # type: ignore[operator]
    assert caught.value.code == "illegal-lowering"
    assert caught.value.diagnostics[0].expected is not None
    return str(caught.value)


def test_what_cannot_be_written_out_is_refused() -> None:
    assert "symbolic" in refused(
        unroll, loop(dim_var("n"), "unrolled", STORE, unroll_explicit=True)
    )
    assert "9999" in refused(unroll, loop(index(9999), "serial", STORE, unroll_explicit=True))
    threads = refused(unroll, loop(index(8), "threadIdx.y", STORE, unroll_explicit=True))
    assert "a loop of one thread" in threads
    assert "threadIdx.y" in threads


def test_what_cannot_be_vectors_is_refused() -> None:
    assert vectorise(loop(index(8), "vectorized", STORE)).dims
    assert "symbolic" in refused(vectorise, loop(dim_var("n"), "vectorized", STORE))
    assert "a barrier inside" in refused(vectorise, loop(index(8), "vectorized", Barrier("shared")))
    inner = For(axis("j"), index(2), "parallel", STORE)
    assert "a parallel loop j inside" in refused(vectorise, loop(index(8), "vectorized", inner))


def test_a_reduction_across_threads_is_not_a_loop() -> None:
    kernel = read("""
def total(x: Buffer[(8,), i32], y: Buffer[(1,), i32]):
    for t in thread("threadIdx.x", 8):
        with block("y", w=reduce(8, t)):
            with init():
                y[0] = 0
            y[0] += x[w]
""")
    assert "allreduce" in refused(blocks_to_loops, kernel)
