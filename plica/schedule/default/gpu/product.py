"""Products of matrices on threads: tiles in shared memory, tiles of those in registers.

    for by, bx in blocks:                   a tile of the result each
        for ty, tx in threads:
            for k0:                         a slice of both matrices, fetched by all threads
                for k1:                     a column and a row of it, in registers
                    for vi, vj, i, j: sum[…] += left[…] * right[…]

A thread has several small squares of the result, far apart: threads that are neighbours read
neighbours, so that no two meet in a bank of shared memory.
"""

from __future__ import annotations

from attrs import frozen

from plica.ir.index_map import index_map
from plica.ir.scalar import Scalar
from plica.schedule.do import Body, do
from plica.schedule.primitive import (
    annotate,
    bind,
    block,
    cache_write,
    decompose_reduction,
    fuse,
    loops,
    read_at,
    reorder,
    reverse_compute_at,
    split,
    transform_block_layout,
    transform_layout,
    vectorize,
)

WIDE = 4
"""Elements that one instruction moves."""


@frozen
class Tile:
    """What blocks and threads have: rows, columns and terms of a tile; rows and columns of threads;
    squares of a thread along both."""

    rows: int = 128
    columns: int = 128
    terms: int = 16
    down: int = 16
    across: int = 16
    ahead: bool = False

    @property
    def squares(self) -> tuple[int, int]:
        return self.rows // (self.down * WIDE), self.columns // (self.across * WIDE)


@do
def product(label: str, tile: Tile) -> Body:
    """The schedule of `sum[i, j] += left[i, k] * right[k, j]`, whose extents the tile divides."""
    c = yield block(label)
    result = yield cache_write(c, 0, "local")
    down, across = tile.squares

    def cut(m: Scalar, count: int, threads: int) -> tuple[Scalar, ...]:
        every = count * threads * WIDE
        return m // every, m // (threads * WIDE) % count, m // WIDE % threads, m % WIDE

    def squares(m: Scalar, n: Scalar) -> tuple[Scalar, ...]:
        return (*cut(m, down, tile.down), *cut(n, across, tile.across))

    yield transform_layout(c, "write", 0, index_map(squares))
    yield transform_block_layout(result, index_map(squares))
    yield transform_block_layout(c, index_map(lambda m, n, k: (*squares(m, n), k)))
    by, vi, ty, i, bx, vj, tx, j, terms = yield loops(c)
    k0, k1 = yield split(terms, (None, tile.terms))
    yield reorder(by, bx, ty, tx, k0, k1, vi, i, vj, j)
    yield reverse_compute_at(result, tx)
    for loop, thread in ((by, "blockIdx.y"), (bx, "blockIdx.x"), (ty, "threadIdx.y")):
        yield bind(loop, thread)
    yield bind(tx, "threadIdx.x")
    for which in (0, 1):
        copy = yield read_at(k0, c, which, "shared")
        if which == 0:  # a column of the left matrix is read as it lies
            there = index_map(lambda m, k: (k, *cut(m, down, tile.down)))
        else:
            there = index_map(lambda k, n: (k, *cut(n, across, tile.across)))
        yield transform_layout(copy, "write", 0, there)
        around = yield loops(copy)
        whole = yield fuse(*around[-2:])
        _, y, x, lanes = yield split(whole, (None, tile.down, tile.across, WIDE))
        yield bind(y, "threadIdx.y")
        yield bind(x, "threadIdx.x")
        yield vectorize(lanes)
        if tile.ahead:
            yield annotate(copy, "double_buffer", True)
    for which in (0, 1):
        near = yield read_at(k1, c, which, "local")
        yield vectorize((yield loops(near))[-1])
    around = yield loops(result)
    yield vectorize(around[-1])
    yield decompose_reduction(c, k0)


__all__ = ["Tile", "product"]
