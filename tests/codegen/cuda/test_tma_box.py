"""Boxes by the copy engine: what a map says is what the loops copy, zeros outside; else refused."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest
from hypothesis import given, strategies as st

from plica.analysis.index.context import EMPTY
from plica.analysis.statement import LoweringRefused
from plica.codegen.cuda.tma import SWIZZLED, TmaTile
from plica.codegen.cuda.tma_box import fetched
from plica.core.name import Name
from plica.ir.loop.scalar import And, Buffer, Le, Lt, Scalar, Select, index, lit
from plica.ir.loop.statement import For, Stmt, Store
from plica.ir.loop.tensor import axis, buffer
from plica.ir.type.dtype import f16

R, K, B, Q = (axis(name) for name in "rkbq")
AROUND = EMPTY.loop(B, 4).loop(Q, 3)
LINES, COLUMNS, CHANNELS = 11, 13, 72
X = buffer("x", (LINES, COLUMNS, CHANNELS), f16)


def ends(*places: tuple[Scalar, int]) -> Scalar:
    tests: list[Scalar] = [test for place, size in places
                           for test in (Le(index(0), place), Lt(place, index(size)))]  # fmt: skip
    return reduce(And, tests)


def copy_of(value: Scalar, rows: int) -> Stmt:
    tile = Buffer(Name("tile"), (index(rows), index(64)), f16, SWIZZLED)
    inner = For(K, index(64), "serial", Store(tile, (R, K), value))
    return For(R, index(rows), "serial", inner)


def taken(of: TmaTile, told: dict[object, int], picture: np.ndarray) -> np.ndarray:
    """What the engine writes: the innermost axis first, zeros outside."""
    begins = [
        sum(factor * int(np.prod([told[each] for each in atoms])) for atoms, factor in one)
        for one in of.begins
    ]
    flat, found = picture.ravel(), []
    for place in np.ndindex(*reversed(of.extents)):
        at = [begin + step for begin, step in zip(begins, reversed(place), strict=True)]
        inside = all(0 <= each < size for each, size in zip(at, of.sizes, strict=True))
        where = sum(each * stride for each, stride in zip(at, of.strides, strict=True))
        found.append(flat[where] if inside else 0)
    return np.array(found)


@given(
    high=st.sampled_from([1, 2, 4]), wide=st.sampled_from([2, 4, 8]),
    down=st.integers(-2, 2), left=st.integers(-2, 2),
)  # fmt: skip
def test_a_box_is_what_the_loops_copy(high: int, wide: int, down: int, left: int) -> None:
    line, column, channel = B * high + R // wide + down, Q * wide + R % wide + left, K + 64
    guard = ends((line, LINES), (column, COLUMNS), (channel, CHANNELS))
    found = fetched(
        copy_of(Select(guard, X[line, column, channel], lit(0, f16)), high * wide), AROUND
    )
    picture = np.arange(1, 1 + LINES * COLUMNS * CHANNELS).reshape(LINES, COLUMNS, CHANNELS)
    for b, q in ((0, 0), (1, 2), (3, 1)):
        expected = []
        for r in range(high * wide):
            y, x = b * high + r // wide + down, q * wide + r % wide + left
            for c in range(64, 128):
                inside = 0 <= y < LINES and 0 <= x < COLUMNS and c < CHANNELS
                expected.append(picture[y, x, c] if inside else 0)
        np.testing.assert_array_equal(taken(found, {B: b, Q: q}, picture), expected)


LINE, COLUMN = B + R // 8 - 1, R % 8
REFUSED = {
    "no box": (X[R % 8, R // 8 + R % 8, K], ends((R // 8, COLUMNS))),
    "before axis 0": (X[LINE, COLUMN, K], Lt(LINE, index(LINES))),
    "after axis 0": (X[LINE + 8, COLUMN, K], Le(index(0), LINE + 8)),
    "no end of an axis": (X[LINE, COLUMN, K], And(ends((LINE, LINES)), Lt(B, index(2)))),
    "with steps of": (
        buffer("odd", (LINES, COLUMNS, 70), f16)[LINE, COLUMN, K], ends((LINE, LINES)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_box_is_refused(name: str) -> None:
    load, guard = REFUSED[name]
    with pytest.raises(LoweringRefused, match=name):
        fetched(copy_of(Select(guard, load, lit(0, f16)), 16), AROUND)
