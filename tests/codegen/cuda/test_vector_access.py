"""Neighbours: pairs that four threads of a row store together, and rows that begin anywhere."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from plica.codegen.cuda.fold import KernelCode, fold
from plica.ir.loop.scalar import And, Cast, Eq, Le, Lit, Lt, Scalar, ScalarVar, Select, index
from plica.ir.loop.statement import NOTHING, Branch, For, Kernel, Stmt, Store
from plica.ir.loop.tensor import axis, buffer
from plica.ir.type.dtype import DType, bf16, f16, f32, i8
from tests.codegen.cuda.emulate import COMPILER, run as emulated

LANE, WARP, OCTET, PAIR = (axis(name) for name in "twop")
TURNED = "p_quads_turned"
WARPS, OCTETS = 2, 8

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler on this machine")


def stored(
    rows: int = 16, columns: int = 64, *, around: Scalar | None = None,
    inside: Scalar | None = None, step: int = 8, octets: int = OCTETS,
    beside: bool = False, turned: bool = False, outer: Sequence[tuple[ScalarVar, int]] = (),
) -> KernelCode:  # fmt: skip
    """y = 2 * x: eight rows of a warp, pairs of a row by four threads, and guards of both; or with
    r added, which may be turned over."""
    x, y = buffer("x", (rows, columns), f32), buffer("y", (rows, columns), f16)
    r = buffer("r", (columns, rows) if turned else (rows, columns), f16)
    place = (WARP * 8 + LANE // 4, OCTET * step + LANE % 4 * 2 + PAIR)
    if outer:
        place = (place[0], place[1] + outer[0][0] * (octets * step))
    value: Scalar = Cast(x[place] * 2.0, f16)
    if beside:
        value = value + r[place[::-1] if turned else place]
    body: Stmt = Store(y, place, value)
    body = For(PAIR, index(2), "vectorized", body)
    if inside is not None:
        body = Branch(inside, body, NOTHING)
    body = For(OCTET, index(octets), "serial", body)
    for each, size in outer:
        body = For(each, index(size), "unrolled", body)
    if around is not None:
        body = Branch(around, body, NOTHING)
    body = For(LANE, index(32), "threadIdx.x", body)
    body = For(WARP, index(WARPS), "threadIdx.y", body)
    given = (x, r) if beside else (x,)
    return fold(Kernel((), (*given, y), 1, body), "k")


def found(code: KernelCode, rows: int = 16, columns: int = 64) -> tuple[np.ndarray, np.ndarray]:
    """What a kernel stores, and twice the input."""
    x = np.random.default_rng(3).integers(-9, 10, (rows, columns)).astype(np.float32)
    y = np.full((rows, columns), -1, np.float16)
    emulated(code, [x, y])
    return y, 2 * x


@needs_compiler
def test_threads_of_a_row_store_eight_neighbours_each() -> None:
    code = stored()
    assert TURNED in code.text
    np.testing.assert_array_equal(*found(code))


@needs_compiler
def test_guards_are_asked_where_it_is_stored() -> None:
    """Of rows and of eight columns: whoever has none hands on what it holds."""
    code = stored(
        11, 40, around=Lt(WARP * 8 + LANE // 4, index(11)), inside=Lt(OCTET, index(5))
    )  # fmt: skip
    assert TURNED in code.text
    np.testing.assert_array_equal(*found(code, 11, 40))


@pytest.mark.parametrize(
    "code",
    [
        stored(inside=Lt(OCTET * 8 + LANE % 4 * 2, index(60))),
        stored(around=Lt(LANE, index(30))),
        stored(columns=68),
        stored(octets=6),
        stored(columns=72, step=9),
    ],
    ids=["a guard of a pair", "threads apart", "rows of no eight", "six of them", "others between"],
)
def test_others_store_pairs_alone(code: KernelCode) -> None:
    assert TURNED not in code.text


@needs_compiler
@pytest.mark.parametrize("inside", [None, Lt(OCTET, index(5))], ids=["all", "some columns"])
@pytest.mark.parametrize("rows", [16, 11])
def test_what_is_read_where_it_is_stored_comes_eight_at_a_time(
    rows: int, inside: Scalar | None
) -> None:
    """x + r: all of r is asked for before the first pair waits for it, behind the same guards."""
    around = Lt(WARP * 8 + LANE // 4, index(rows)) if rows < 16 else None
    code = stored(rows, around=around, inside=inside, beside=True)
    assert code.text.count(f"{TURNED}(") == 3  # its definition, what is read, and what is stored
    x, r = np.random.default_rng(4).integers(-9, 10, (2, rows, 64))
    y = np.full((rows, 64), -1, np.float16)
    emulated(code, [x.astype(np.float32), r.astype(np.float16), y])
    expected = (2 * x + r).astype(np.float16)
    if inside is not None:
        expected[:, 40:] = -1
    np.testing.assert_array_equal(y, expected)


@needs_compiler
@pytest.mark.parametrize(("parts", "asked"), [(2, 4), (5, 2)])
def test_it_is_asked_for_before_the_outermost_loop_of_which_a_thread_can_hold_it(
    parts: int, asked: int
) -> None:
    rows, columns = 13, 64 * parts
    around = Lt(WARP * 8 + LANE // 4, index(rows))
    code = stored(rows, columns, around=around, beside=True, outer=[(axis("m"), parts)])
    assert f"uint4 r_[{asked}] = {{}};" in code.text
    x, r = np.random.default_rng(5).integers(-9, 10, (2, rows, columns))
    y = np.full((rows, columns), -1, np.float16)
    emulated(code, [x.astype(np.float32), r.astype(np.float16), y])
    np.testing.assert_array_equal(y, (2 * x + r).astype(np.float16))


def test_what_lies_elsewhere_is_read_pair_by_pair() -> None:
    code = stored(beside=True, turned=True)
    assert code.text.count(f"{TURNED}(") == 2


# --- rows that begin anywhere ---------------------------------------------------------------------

ANYWHERE = "p_from_anywhere"


def padded(
    rows: int, columns: int, dtype: DType, first: int = 0, *, last: bool = True
) -> KernelCode:
    """y[r, c] = x[r, first + c], and 0 after the last column; the last row may be out."""
    lanes = 16 // dtype.bytes
    octets = -(-(columns - first) // lanes)
    x, y = buffer("x", (rows, columns), dtype), buffer("y", (rows, octets * lanes), dtype)
    place = OCTET * lanes + PAIR
    inside: Scalar = Lt(first + place, index(columns))
    if not last:
        inside = And(Lt(LANE, index(rows - 1)), inside)
    body: Stmt = Store(y, (LANE, place), Select(inside, x[LANE, first + place], Lit(0, dtype)))
    body = For(OCTET, index(octets), "serial", For(PAIR, index(lanes), "vectorized", body))
    return fold(Kernel((), (x, y), 1, For(LANE, index(rows), "threadIdx.x", body)), "k")


@needs_compiler
@pytest.mark.parametrize(
    ("rows", "columns", "first", "dtype", "last"),
    [
        (17, 23, 0, f16, True),
        (17, 29, 3, bf16, False),
        (19, 37, 0, i8, False),
        (9, 1, 0, bf16, True),
    ],
)
def test_rows_that_begin_anywhere_are_read_by_words(
    rows: int, columns: int, first: int, dtype: DType, last: bool
) -> None:
    """Each of the rows begins at another place of a word."""
    code = padded(rows, columns, dtype, first, last=last)
    assert ANYWHERE in code.text
    x = np.random.default_rng(columns).integers(-9, 10, (rows, columns)).astype(dtype.numpy)
    lanes = 16 // dtype.bytes
    y = np.full((rows, -(-(columns - first) // lanes) * lanes), 7, dtype.numpy)
    exact = np.zeros_like(y)
    exact[: rows if last else rows - 1, : columns - first] = x[: rows if last else rows - 1, first:]
    emulated(code, [x, y])
    np.testing.assert_array_equal(y, exact)


def test_wide_elements_are_read_one_by_one() -> None:
    assert ANYWHERE not in padded(3, 15, f32).text


# --- lanes behind a guard -------------------------------------------------------------------------

MOVED = "*((uint4*)&y"


def fenced(guard: Scalar, columns: int = 64, first: int = 0) -> KernelCode:
    """y[c] = 2 * x[c] where a guard holds, four columns a thread."""
    x, y = buffer("x", (columns,), f32), buffer("y", (columns,), f32)
    place = LANE * 4 + PAIR + first
    body: Stmt = Branch(guard, Store(y, (place,), x[place] * 2.0), NOTHING)
    body = For(LANE, index(16), "threadIdx.x", For(PAIR, index(4), "vectorized", body))
    return fold(Kernel((), (x, y), 1, body), "k")


PLACE = LANE * 4 + PAIR


@needs_compiler
@pytest.mark.parametrize(
    ("guard", "inside"),
    [
        (Lt(PLACE, index(37)), range(37)),
        (And(Le(index(6), PLACE), Lt(PLACE, index(59))), range(6, 59)),
        (And(Lt(LANE, index(3)), Lt(index(20) - PLACE, index(15))), range(6, 12)),
        (Lt(PLACE, index(0)), range(0)),
    ],
)
def test_lanes_behind_a_guard_are_moved_at_once_where_all_are_inside(
    guard: Scalar, inside: range
) -> None:
    code = fenced(guard)
    assert MOVED in code.text
    x = np.random.default_rng(3).integers(-9, 10, 64).astype(np.float32)
    y = np.full(64, -1, np.float32)
    emulated(code, [x, y])
    expected = np.full(64, -1, np.float32)
    expected[inside.start : inside.stop] = 2 * x[inside.start : inside.stop]
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize(
    "code",
    [
        fenced(Lt(PLACE % 7, index(3))),
        fenced(Eq(PLACE, index(3))),
        fenced(Lt(PLACE, index(37)), 65, 1),
    ],
    ids=["no interval", "one lane", "not aligned"],
)
def test_other_guards_are_asked_lane_by_lane(code: KernelCode) -> None:
    assert MOVED not in code.text
