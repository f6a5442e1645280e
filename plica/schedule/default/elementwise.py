"""Elementwise work for several cores: rows, or pieces of one long row, are shared.

    out[i, j] = f(x[i, j], …)    -->  for i in parallel: for j in vectorized: …
    out[k]    = f(x[k], …)       -->  for c in parallel: for k in vectorized(4096): …

On one core the plain vectorized nest is as good, except for rows scattered in memory, which are
prefetched, and for gathered rows. Their elements are not contiguous, but several rows share the
places at which they are read: as many rows go together as fit in a near cache.

    out[i, n, j] = x[n, i, j]    -->  for i: for n: for j in vectorized(fetch=…): …
    out[c, p] = x[c, at[p]]      -->  for c0: for p: for c1 in unrolled(8): …   at[p] once

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.stages import kernel_of, stages
>>> from plica.ir.loop.tensor import buffer
>>> x = buffer("x", (1 << 20,), f32)
>>> twice = kernel_of(stages((x,), (stage("y", (1 << 20,), lambda i: x[i] + x[i]),)))
>>> [elementwise_schedule(twice, Machine(512, 32, cores=cores)) is None for cores in (1, 2)]
[True, False]
>>> from plica.ir.loop.tensor import axis
>>> from plica.ir.type.dtype import i64
>>> x, at, out = buffer("x", (12, 100), f32), buffer("at", (50,), i64), buffer("y", (12, 50), f32)
>>> c, p, w = axis("c"), axis("p"), buffer("w", (50,), f32)
>>> shared_rows(Store(out, (c, p), x[c, at[p]] * w[p]), Machine(512, 32))
SharedRows(axis=0, together=12)
"""

from __future__ import annotations

from math import prod
from typing import Final

from attrs import frozen

from plica.core import free_vars, post_order
from plica.ir.loop import Block, Kernel, Store, scalar as sc
from plica.ir.type import known, polynomial
from plica.schedule import primitive as st
from plica.schedule.default.lane import is_row
from plica.schedule.default.machine import MIN_ELEMENTS, Machine
from plica.schedule.default.nest import opened
from plica.schedule.default.role import only_map
from plica.schedule.default.share import pays, touched
from plica.schedule.do import Body, DoBlock as Do, do

COSTLY = 32  # how many operations of a lane an element with a function in it is worth
SHORTEST = 16  # a row of fewer elements is not worth vectors
PIECE = 1 << 14  # elements of a piece of a long row, at most
LEAST = 1 << 8  # a piece of fewer is not worth it
MAX_ROWS_TOGETHER: Final = 16
"""Rows with places in common that go together, at most: each is a separate stream."""

MIN_SHARED_PLACES: Final = 2
"""Indices that rows have in common, at least: for a single one, row by row is better."""

UNEVEN = sc.Reduce | sc.FloorDiv | sc.FloorMod
"""Expensive operations, or ones with their own access patterns."""


def _is_worth(of: Store, machine: Machine) -> bool:
    """Whether elements are worth the cores, along rows as they lie."""
    sizes = [known(size) or 0 for size in of.buffer.shape]
    if machine.cores < 2 or not sizes or not all(sizes):
        return False
    nodes = post_order(of.value)
    if any(isinstance(node, UNEVEN) for node in nodes):
        return False
    weight = COSTLY if any(isinstance(node, sc.Intrinsic) for node in nodes) else 1
    last = of.indices[-1]
    if sizes[-1] < SHORTEST or not isinstance(last, sc.ScalarVar) or not is_row(of.value, last):
        return False
    if not pays(machine, weight * prod(sizes), touched(of)):
        return False
    return len([size for size in sizes if size != 1]) != 1 or piece_of(sizes[-1]) is not None


def _to_next_row(of: Store, machine: Machine) -> int:
    """How many elements behind those of a row the next that is read begins; 0 where rows follow one
    another, or are near.

    Machines that load single lanes have far better hardware prefetching.
    """
    sizes = [known(size) or 0 for size in of.buffer.shape]
    axes = [index for index in of.indices if isinstance(index, sc.ScalarVar)]
    if machine.masks or len(axes) != len(sizes) or not all(sizes):
        return 0
    around = [axis for axis, size in zip(axes[:-1], sizes, strict=False) if size > 1]
    if not around or sizes[-1] < SHORTEST or not is_row(of.value, axes[-1]):
        return 0
    nodes = post_order(of.value)
    read = [node for node in nodes if isinstance(node, sc.Load) and axes[-1] in free_vars(node)]
    if len(read) != 1 or any(isinstance(node, UNEVEN) for node in nodes):
        return 0
    buffer, step, apart = read[0].buffer, 1, 0
    for place, size in reversed([*zip(read[0].indices, buffer.shape, strict=True)]):
        for atoms, factor in polynomial(place).values():
            if around[-1] in atoms:
                apart += factor * step if atoms == (around[-1],) else 0
        step *= known(size) or 0
    near = step * buffer.dtype.bytes <= machine.cache(1)
    return 0 if near or apart == sizes[-1] else apart


@frozen
class SharedRows:
    """An axis along which places do not change, and how many of its rows go together."""

    axis: int
    together: int


def shared_rows(of: Store, machine: Machine) -> SharedRows | None:
    """The loads of a store at indices loaded from memory that are common to several rows, or None
    if there are none."""
    sizes = [known(size) or 0 for size in of.buffer.shape]
    if len(sizes) < 2 or prod(sizes) < MIN_ELEMENTS:
        return None
    nodes = post_order(of.value)
    if any(isinstance(node, sc.Reduce) for node in nodes):
        return None
    gathered = [node for node in nodes if isinstance(node, sc.Load) and _named_by(node)]
    places = {var for node in gathered for load in _named_by(node) for var in free_vars(load)}
    if of.indices[-1] not in places:
        return None
    axes = [at for at, size in enumerate(sizes[:-1]) if size > 1 and of.indices[at] not in places]
    if not axes:
        return None
    var = of.indices[axes[-1]]
    same = [node for node in nodes if isinstance(node, sc.Load) and var not in free_vars(node)]
    if len(same) < MIN_SHARED_PLACES:
        return None
    row = max([(known(load.buffer.shape[-1]) or 0) * load.buffer.dtype.bytes for load in gathered])
    most = min(MAX_ROWS_TOGETHER, machine.cache(2) // 2 // max(1, row))
    at = axes[-1]
    together = next((n for n in range(most, 1, -1) if sizes[at] % n == 0), 1)
    return SharedRows(at, together) if together > 1 else None


def _named_by(of: sc.Load) -> list[sc.Load]:
    """The loads in the indices of a load."""
    return [node for index in of.indices for node in post_order(index) if isinstance(node, sc.Load)]


def piece_of(length: int) -> int | None:
    """How long the pieces of a long row are, which they divide."""
    most = min(PIECE, length // 2)
    return next((each for each in range(most, LEAST - 1, -1) if length % each == 0), None)


def elementwise_schedule(kernel: Kernel, machine: Machine) -> Do | None:
    """The schedule of elementwise work worth sharing, None for other kernels."""
    if (of := only_map(kernel)) is None:
        return None
    assert isinstance(of.body, Store)
    if (rows_of := shared_rows(of.body, machine)) is not None:
        return _gathered(of, rows_of, kernel, machine)
    shares, ahead = _is_worth(of.body, machine), _to_next_row(of.body, machine)
    if not shares and not ahead:
        return None
    sizes = [known(size) or 0 for size in of.extents]
    rows = prod(sizes[:-1])

    @do
    def schedule() -> Body:
        _, every = yield from opened(of)
        *outer, last = every
        if ahead:
            yield st.annotate(last, "fetch", ahead)
        if not shares:
            yield st.vectorize(last)
            return
        if rows == 1:
            piece, last = yield st.split(last, (None, piece_of(sizes[-1]) or sizes[-1]))
            outer = [*outer, piece]
        whole = outer[0]
        if len(outer) > 1:
            whole = yield st.fuse(*outer)
        yield st.vectorize(last)
        yield st.parallel(whole)

    return schedule()


def _gathered(of: Block, found: SharedRows, kernel: Kernel, machine: Machine) -> Do:
    """The schedule of rows that are gathered at the same places, several of them at once."""
    sizes = [known(size) or 0 for size in of.extents]
    outer = next((at for at in range(found.axis) if sizes[at] > 1), None)

    @do
    def schedule() -> Body:
        _, every = yield from opened(of)
        groups, rows = yield st.split(every[found.axis], (None, found.together))
        yield st.reorder(groups, *every[found.axis + 1 :], rows)
        yield st.unroll(rows)
        if pays(machine, prod(sizes), kernel.params):
            yield st.parallel(groups if outer is None else every[outer])

    return schedule()
