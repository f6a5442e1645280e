"""Sketches to make features of: a matrix product in tiles, one with places to compute at, a
stencil that is computed where it is needed."""

from __future__ import annotations

from plica.schedule import (
    block,
    compute_at,
    compute_inline,
    decompose_reduction,
    do,
    fuse,
    loops,
    parallel,
    reader_loop,
    reorder,
    reverse_compute_at,
    sample_categorical,
    sample_compute_location,
    sample_tile,
    split,
    trace_of,
    unroll,
    vectorize,
)
from plica.schedule.do import Body
from plica.search.space import Sketch, sketch
from tests.schedule.kernel import product_and_relu, stencil


@do
def tiled() -> Body:
    yield compute_inline((yield block("A1")))
    c = yield block("C")
    i, j, k = yield loops(c)
    i0, i1, i2 = yield split(i, sample_tile(3, max_inner=8))
    j0, j1, j2 = yield split(j, sample_tile(3, max_inner=16))
    k0, k1 = yield split(k, sample_tile(2, max_inner=16))
    yield reorder(i0, j0, i1, j1, k0, k1, i2, j2)
    yield reverse_compute_at((yield block("D")), j1)
    yield vectorize(j2)
    yield unroll(i2)
    yield decompose_reduction(c, k0)
    yield parallel((yield fuse(i0, j0)))


@do
def placed() -> Body:
    c = yield block("C")
    i, j, k = yield loops(c)
    i0, i1 = yield split(i, sample_tile(2, max_inner=8))
    j0, j1 = yield split(j, sample_tile(2, max_inner=16))
    factor = yield sample_categorical((1, 2, 3))
    k0, k1 = yield split(k, (None, factor))
    yield reorder(i0, j0, k0, i1, k1, j1)
    yield vectorize(j1)
    before = yield block("A1")
    number = yield sample_compute_location(before)
    yield compute_at(before, (yield reader_loop(before, number)))


@do
def nearby() -> Body:
    (j,) = yield loops((yield block("C")))
    j0, j1 = yield split(j, sample_tile(2, max_inner=32))
    yield compute_at((yield block("B")), j0)
    yield vectorize(j1)


def tiled_sketch(m: int = 24, n: int = 32, k: int = 18) -> Sketch:
    kernel = product_and_relu(m, n, k)
    return sketch("tiled", kernel, trace_of(tiled, kernel))


def placed_sketch() -> Sketch:
    kernel = product_and_relu(24, 32, 18)
    return sketch("placed", kernel, trace_of(placed, kernel))


def nearby_sketch() -> Sketch:
    kernel = stencil(96, 3)
    return sketch("nearby", kernel, trace_of(nearby, kernel))
