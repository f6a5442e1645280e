"""Scheduled kernels: whatever a trace makes of a kernel, its native code computes what it means."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

from plica.codegen.llvm.fold import emit
from plica.codegen.lower.passes import lower
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.scalar import And, Cast, Le, Lit, Lt, Max, Min, Reduce, Select, index
from plica.ir.loop.specialise import specialise
from plica.ir.loop.statement import (
    NOTHING,
    THREADS,
    Alloc,
    Branch,
    For,
    Invoke,
    Kernel,
    LoopKind,
    Stmt,
    Store,
    While,
    seq,
    statements,
)
from plica.ir.loop.tensor import axis, buffer
from plica.ir.loop.verify import well_formed
from plica.ir.type.dtype import bool_, f32, i64
from plica.runtime.error import PlicaError
from plica.schedule.generate.kernel import random_case
from plica.schedule.generate.step import walk
from plica.schedule.problem import Problem
from plica.schedule.replay import begin, taken
from tests.codegen.native import assert_same, native_kernel

Array = np.ndarray[Any, Any]

EXAMPLES = max(12, settings.get_profile(settings.get_current_profile_name()).max_examples // 2)
FOCUS = ("split", "vectorize", "unroll", "parallel", "fuse", "reorder")


def lowered(case: Any, random: Random) -> Kernel | None:
    """A kernel after a random trace and all passes; None where it is for another machine."""
    kernel = specialise(case.kernel, case.sizes)
    if well_formed(kernel):  # the sides of an operation may have different dtypes
        return None
    steps, _ = walk(kernel, random, 6, FOCUS)
    state = begin(kernel)
    for step in steps:
        after = taken(state, step)
        assert not isinstance(after, Problem)
        state = after
    try:
        made = lower(state.kernel)
    except PlicaError:  # the trace asks for what no pass can make
        return None
    return made if all(is_for_cpu(stmt) for stmt in statements(made.body)) else None


def is_for_cpu(stmt: Stmt) -> bool:
    """Whether a statement has a place on this machine."""
    if isinstance(stmt, For):
        return stmt.kind not in (*THREADS, "virtual")
    if isinstance(stmt, Alloc):
        return stmt.buffer.scope in ("global", "local")
    return not isinstance(stmt, While | Invoke)


@settings(max_examples=EXAMPLES)
@given(st.integers(0, 2**32))
def test_what_a_trace_makes_is_computed_right(seed: int) -> None:
    random = Random(seed)
    case = random_case(random)
    kernel = lowered(case, random)
    assume(kernel is not None)
    assert kernel is not None
    code, found = native_kernel(kernel, case.arrays)
    assert code == 0
    expected = run_kernel(case.kernel, case.arrays, case.sizes)  # type: ignore[arg-type]
    for ours, meant in zip(found, expected, strict=True):
        if meant.dtype.kind == "f":  # some steps sum in another order
            np.testing.assert_allclose(ours, meant, rtol=1e-4, atol=1e-4)
        else:
            assert_same(ours, meant)


def rows(m: int, n: int, kinds: tuple[LoopKind, LoopKind], value: Any) -> Kernel:
    """`y[i, j] = value(i, j)` in tiles of 4 x 8 that stick out, as a split leaves them."""
    x, y = buffer("x", (m, n), f32), buffer("y", (m, n), f32)
    i0, i1, j0, j1 = [axis(name) for name in ("i0", "i1", "j0", "j1")]
    i, j = i0 * 4 + i1, j0 * 8 + j1
    inside = And(Lt(i, index(m)), Lt(j, index(n)))
    body: Stmt = Branch(inside, Store(y, (i, j), value(x, i, j)), NOTHING)
    body = For(i1, index(4), kinds[0], For(j1, index(8), kinds[1], body))
    tiles = For(i0, index(-(-m // 4)), "serial", For(j0, index(-(-n // 8)), "serial", body))
    return Kernel((), (x, y), 1, tiles)


@pytest.mark.parametrize(
    "kinds",
    [
        ("serial", "serial"),
        ("serial", "vectorized"),
        ("unrolled", "vectorized"),
        ("vectorized", "serial"),
        ("vectorized", "unrolled"),
    ],
)
@pytest.mark.parametrize(("m", "n"), [(6, 13), (4, 8), (1, 1)])
def test_guards_around_stores_keep_them_inside(
    kinds: tuple[LoopKind, LoopKind], m: int, n: int
) -> None:
    kernel = rows(m, n, kinds, lambda x, i, j: x[i, j] * 2.0 + Cast(i + j, f32))
    assert not emit(kernel, "k").can_fail
    values = np.arange(m * n, dtype=np.float32).reshape(m, n)
    code, (found,) = native_kernel(kernel, [values])
    assert code == 0
    assert_same(found, run_kernel(kernel, [values])[0])


def test_lanes_go_both_ways_of_a_branch() -> None:
    """Each writes what its side says, into neighbours or not, and no more."""
    x, y, j = buffer("x", (8,), f32), buffer("y", (24,), f32), axis("j")
    small, even = Lt(x[j], Lit(3, f32)), Lt(j % 2, Lit(1, i64))
    inner = Branch(even, Store(y, (j * 2 + 8,), x[j]), Store(y, (j * 2 + 8,), Lit(-1, f32)))
    body = seq(
        For(axis("k"), index(24), "vectorized", Store(y, (axis("k"),), Lit(9, f32))),
        For(j, index(8), "vectorized", Branch(small, Store(y, (j,), x[j] * 2.0), inner)),
    )
    kernel = Kernel((), (x, y), 1, body)
    values = np.array([0, 5, 1, 7, 2, 6, 9, 9], np.float32)
    _, (found,) = native_kernel(kernel, [values])
    assert_same(found, run_kernel(kernel, [values])[0])


def test_a_load_in_a_branch_is_checked_where_lanes_take_part() -> None:
    x, at, y, j = buffer("x", (3,), f32), buffer("at", (8,), i64), buffer("y", (8,), f32), axis("j")
    guarded = Branch(Le(Lit(0, i64), at[j]), Store(y, (j,), x[at[j]]), Store(y, (j,), Lit(0, f32)))
    values = np.array([5, 6, 7], np.float32)
    kinds: tuple[LoopKind, ...] = ("serial", "vectorized")
    for kind in kinds:
        loop = For(j, index(8), kind, guarded)
        kernel = Kernel((), (x, at, y), 2, loop)
        fine = np.array([0, -1, 2, -9, 1, 0, -1, 2])
        code, (found,) = native_kernel(kernel, [values, fine])
        assert code == 0
        assert_same(found, run_kernel(kernel, [values, fine])[0])
        assert native_kernel(kernel, [values, np.where(fine < 0, 3, fine)])[0] == 1


@pytest.mark.parametrize("kind", ["serial", "vectorized"])
def test_a_guard_that_does_not_keep_a_store_inside_is_found_out(kind: LoopKind) -> None:
    """What no condition is known to keep inside is checked when it runs, and does not happen."""
    x, y, i = buffer("x", (8,), i64), buffer("y", (6,), i64), axis("i")
    body = Branch(Lt(x[i], index(3)), Store(y, (i,), x[i]), NOTHING)
    kernel = Kernel((), (x, y), 1, For(i, index(8), kind, body))
    fine = np.array([0, 1, 2, 0, 1, 2, 3, 4])
    code, (found,) = native_kernel(kernel, [fine])
    assert code == 0
    assert found.tolist() == [0, 1, 2, 0, 1, 2]
    assert native_kernel(kernel, [np.zeros(8, np.int64)])[0] == 1


@pytest.mark.parametrize("kind", ["serial", "vectorized", "unrolled"])
def test_loops_whose_length_depends_on_others(kind: LoopKind) -> None:
    x, y, i, j = buffer("x", (4, 4), f32), buffer("y", (4, 4), f32), axis("i"), axis("j")
    lower_half = For(j, Min(i + 1, index(4)), kind, Store(y, (i, j), x[i, j]))
    upper = For(j, Max(index(3) - i, index(0)), kind, Store(y, (i, i + 1 + j), Lit(0, f32)))
    values = np.arange(16, dtype=np.float32).reshape(4, 4)
    outers: tuple[LoopKind, ...] = ("serial", "unrolled", "vectorized")
    for outer in outers:
        kernel = Kernel((), (x, y), 1, For(i, index(4), outer, seq(lower_half, upper)))
        assert not emit(kernel, "k").can_fail
        code, (found,) = native_kernel(kernel, [values])
        assert code == 0
        np.testing.assert_array_equal(found, np.tril(values))


def test_a_reduction_that_fails_in_one_lane_fails_in_no_other() -> None:
    x, at, on = buffer("x", (3,), f32), buffer("at", (8,), i64), buffer("on", (8,), bool_)
    y, j, k = buffer("y", (8,), f32), axis("j"), axis("k")
    total = Reduce("sum", (k,), (index(2),), x[at[j] + k])
    body = Store(y, (j,), Select(on[j], total, Lit(0, f32)))
    kernel = Kernel((), (x, at, on, y), 3, For(j, index(8), "vectorized", body))
    values, places = np.array([5, 6, 7], np.float32), np.array([0, 9, 1, -5, 0, 1, 77, 0])
    code, (found,) = native_kernel(kernel, [values, places, (places >= 0) & (places < 2)])
    assert code == 0
    assert found.tolist() == [11, 0, 13, 0, 11, 13, 0, 11]
    assert native_kernel(kernel, [values, places, np.arange(8) < 2])[0] == 1
