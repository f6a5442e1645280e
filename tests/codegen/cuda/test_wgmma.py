"""Products of four warps: where they cannot be done together, they are refused."""

from __future__ import annotations

import pytest

from plica.analysis.statement import LoweringRefused
from plica.codegen.cuda.fold import fold
from plica.core.name import Name
from plica.ir.loop.scalar import Buffer, Scalar, index
from plica.ir.loop.statement import Alloc, For, Invoke, Kernel, Region, Seq, Stmt, Store
from plica.ir.loop.tensor import axis, buffer
from plica.ir.type.dtype import f16, f32
from plica.schedule.default.gpu.tensor_core_meaning import group_mma

LANE, WARP = axis("t"), axis("w")
PRODUCTS = group_mma(1, 8, (True, True))


def called(
    *, row: Scalar = LANE // 4, column: Scalar = LANE % 4, own: Scalar = WARP % 4, warps: int = 4,
    scope: str = "shared.swizzled", pitch: int = 4, sums: int = 1,
) -> Kernel:  # fmt: skip
    """A kernel that multiplies 64 rows by 64 columns."""
    zero, one = index(0), index(1)
    a = Buffer(Name("a"), tuple(map(index, (4, 2, 8, pitch, 2, 8))), f16, scope)
    b = Buffer(Name("b"), tuple(map(index, (8, 4, 2, 4, 2, 8))), f16, scope)
    c = Buffer(Name("c"), tuple(map(index, (sums, 2, 8, 2))), f32, "local")
    out = buffer("out", (1,), f32)
    slice_ = tuple(map(index, (4, 2, 8)))
    regions = (
        Region(a, (own, zero, row, zero, zero, zero), (one, index(2), one, *slice_)),
        Region(b, (zero, column, zero, zero, zero, zero), (index(8), one, index(2), *slice_)),
        Region(c, (zero,) * 4, tuple(map(index, (1, 2, 8, 2)))),
    )
    call: Stmt = Invoke(PRODUCTS.name, regions)
    inside: Stmt = Seq((call, Store(out, (zero,), c[0, 0, 0, 0])))
    for each in (c, b, a):
        inside = Alloc(each, inside)
    inside = For(LANE, index(32), "threadIdx.x", inside)
    return Kernel((), (out,), 0, For(WARP, index(warps), "threadIdx.y", inside))


def test_products_are_waited_for_before_their_sums_are_read() -> None:
    text = fold(called(), "k").functions
    order = ["p_products_f16_64<1, 0, 0, 2, 2>(c, ", "p_products_done<0>", "p_products_kept<32>"]
    places = [text.index(each) for each in [*order, "out["]]
    assert places == sorted(places)


REFUSED = {
    "rows of other threads": called(row=LANE % 8),
    "columns of other threads": called(column=LANE // 8),
    "rows of other warps": called(own=index(1)),
    "warps that are no groups of four": called(warps=6),
    "memory that is not swizzled": called(scope="shared"),
    "rows of other lengths": called(pitch=8),
    "a part of the sums": called(sums=2),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_four_warps_cannot_do_is_refused(name: str) -> None:
    with pytest.raises(LoweringRefused, match="four warps"):
        fold(REFUSED[name], "k")
