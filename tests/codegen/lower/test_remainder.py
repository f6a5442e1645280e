"""Remainder tiles: texts for each extent of unrolled loops that are open remainders."""

from __future__ import annotations

import numpy as np
import pytest

from plica.codegen.lower.remainder import MAX_REMAINDER_TEXTS, remainder_tiles
from plica.core.name import Name
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.scalar import Buffer, FloorMod, Lit, Load, Scalar, ScalarVar, index
from plica.ir.loop.statement import Branch, For, Kernel, Stmt, Store, seq, statements
from plica.ir.text.show import show_kernel
from plica.ir.type.dim import dim_var
from plica.ir.type.dtype import f32, i64
from tests.conftest import Golden

M = dim_var("m")


def doubled(extent: Scalar) -> Kernel:
    """The last `extent` places of a row, summed twice and stored."""
    x, y = Buffer(Name("x"), (M,), f32), Buffer(Name("y"), (M,), f32)
    i, j, k, n = (ScalarVar(Name(each), i64) for each in "ijkn")
    place = M - extent

    def each(var: ScalarVar, value: Scalar) -> Stmt:
        return For(var, extent, "unrolled", Store(y, (place + var,), value))

    body: Stmt = seq(
        For(n, M, "serial", Store(y, (n,), Lit(0.0, f32))),
        each(i, Load(x, (place + i,))),
        For(k, index(2), "serial", each(j, Load(y, (place + j,)) + Load(x, (place + j,)))),
    )
    return Kernel((M,), (x, y), 1, body)


def test_each_extent_has_a_text(golden: Golden) -> None:
    golden(show_kernel(remainder_tiles(doubled(FloorMod(M, index(3))))))


@pytest.mark.parametrize("size", range(1, 9))
def test_meaning_is_kept(size: int) -> None:
    before = doubled(FloorMod(M, index(4)))
    after, x = remainder_tiles(before), np.arange(size, dtype=np.float32)
    assert sum(isinstance(each, Branch) for each in statements(after.body)) == 4
    left = size - size % 4
    for each in (before, after):
        found = run_kernel(each, (x,))[-1]
        np.testing.assert_array_equal(found[left:], 3 * x[left:], strict=True)


def test_other_extents_stay() -> None:
    for extent in (index(3), M, FloorMod(M, index(MAX_REMAINDER_TEXTS + 1)), FloorMod(M, M)):
        of = doubled(extent)
        assert remainder_tiles(of) is of
