"""Disjoint accesses: of threads that a guard selects, and shown by one of several indices."""

from __future__ import annotations

import pytest

from plica.analysis.disjoint_access import accesses, are_disjoint
from plica.analysis.index import EMPTY
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
        assert are_disjoint(write, write, var, ()) == apart


@pytest.mark.parametrize(("across", "apart"), [(8, True), (4, False)])
def test_one_place_that_tells_the_thread_is_enough(across: int, apart: bool) -> None:
    """Which version of a buffer is written is the same again in later turns; elements are not."""
    x, lane, turn = buffer("x", (3, 64), f32), axis("t"), axis("k")
    place: Scalar = lane // 8 * 32 + lane % across * 4
    write_ = Store(x, ((turn + 2) % 3, place), x[0, 0])
    nest = For(turn, index(9), "serial", For(lane, index(16), "threadIdx.x", write_))
    (write, *_) = accesses(nest, EMPTY)
    assert are_disjoint(write, write, lane, ()) == apart
