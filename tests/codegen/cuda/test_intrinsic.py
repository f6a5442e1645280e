"""Invocations for threads: where a warp cannot do what they mean, they are refused."""

from __future__ import annotations

import pytest

from plica.analysis.statement import LoweringRefused
from plica.codegen.cuda.fold import fold
from plica.core.name import Name
from plica.ir.loop.intrinsic import intrinsic
from plica.ir.loop.scalar import Buffer, Eq, Scalar, index
from plica.ir.loop.statement import Alloc, Branch, For, Invoke, Kernel, Region, Seq, Stmt, Store
from plica.ir.loop.tensor import axis, buffer
from plica.ir.type.dtype import f16, f32
from plica.schedule.default.gpu.tensor_core_meaning import mma

LANE = axis("t")
SQUARES = mma(2, 4, (True, True))


def called(
    row: Scalar = LANE // 4, column: Scalar = LANE % 4, threads: int = 32, guarded: bool = False,
    accumulators: int = 2,
) -> Kernel:  # fmt: skip
    """A kernel that multiplies squares in shared memory."""
    a = Buffer(Name("a"), tuple(map(index, (2, 2, 2, 8, 8))), f16, "shared")
    b = Buffer(Name("b"), tuple(map(index, (4, 2, 4, 2, 8))), f16, "shared")
    c = Buffer(Name("c"), tuple(map(index, (accumulators, 2, 4, 2))), f32, "local")
    out = buffer("out", (1,), f32)
    zero, one = index(0), index(1)
    regions = (
        Region(a, (zero, zero, zero, row, zero), (*map(index, (2, 2, 2)), one, index(8))),
        Region(
            b, (zero, zero, column, zero, zero), (*map(index, (4, 2)), one, *map(index, (2, 8)))
        ),
        Region(c, (zero,) * 4, tuple(map(index, (2, 2, 4, 2)))),
    )
    call: Stmt = Invoke(SQUARES.name, regions)
    if guarded:
        call = Branch(Eq(LANE, zero), call, Seq(()))
    inside: Stmt = Seq((call, Store(out, (zero,), c[0, 0, 0, 0])))
    for each in (c, b, a):
        inside = Alloc(each, inside)
    return Kernel((), (out,), 0, For(LANE, index(threads), "threadIdx.x", inside))


def test_squares_of_a_warp_are_one_call() -> None:
    text = fold(called(), "k").text
    assert "p_mma_f16<2, 4, 0, 0, 256, 128, 64, 128, 64>(c, &a[" in text


@pytest.mark.parametrize(
    ("kernel", "found"),
    [
        (called(row=LANE % 8), "a at other places"),
        (called(column=index(0)), "the same of b for all threads"),
        (called(threads=16), "a condition around it"),
        (called(guarded=True), "a condition around it"),
        (called(accumulators=3), "a part of c"),
    ],
)
def test_what_a_warp_cannot_do_is_refused(kernel: Kernel, found: str) -> None:
    with pytest.raises(LoweringRefused, match=found):
        fold(kernel, "k")


def test_an_intrinsic_of_others_is_refused() -> None:
    x, i = buffer("x", (4,), f32), axis("i")
    body = For(i, index(4), "serial", Store(x, (i,), x[i] + x[i]))
    name = intrinsic("test.cuda_twice", Kernel((), (x,), 0, body)).name
    y = buffer("y", (4,), f32)
    kernel = Kernel((), (y,), 0, Invoke(name, (Region(y, (index(0),), (index(4),)),)))
    with pytest.raises(LoweringRefused, match="not there for threads"):
        fold(kernel, "k")
