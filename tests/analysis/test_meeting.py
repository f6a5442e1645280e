"""Accesses of threads that a guard singles out: the first of every so many."""

from __future__ import annotations

import pytest

from plica.analysis.index import EMPTY
from plica.analysis.meeting import accesses, never_meet
from plica.ir.loop.scalar import Eq, Scalar, index
from plica.ir.loop.statement import NOTHING, Branch, For, Store
from plica.ir.loop.tensor import axis, buffer
from plica.ir.type.dtype import f32


@pytest.mark.parametrize(("step", "by", "apart"), [(8, 8, True), (4, 8, False), (8, 16, False)])
def test_the_first_of_every_few_threads_have_places_of_their_own(
    step: int, by: int, apart: bool
) -> None:
    x, warp, lane, turn = buffer("x", (64,), f32), axis("w"), axis("t"), axis("n")
    place: Scalar = turn * (2 * 32 // by) + warp * (32 // by) + lane // by
    first = Branch(Eq(lane % step, index(0)), Store(x, (place,), x[0]), NOTHING)
    inner = For(turn, index(4), "serial", first)
    nest = For(warp, index(2), "threadIdx.y", For(lane, index(32), "threadIdx.x", inner))
    (write, *_) = accesses(nest, EMPTY)
    for var in (warp, lane):
        assert never_meet(write, write, var, ()) == apart
