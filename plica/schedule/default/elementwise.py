"""Elementwise work for several cores: rows, or pieces of one long row, are shared.

    out[i, j] = f(x[i, j], …)    -->  for i in parallel: for j in vectorized: …
    out[k]    = f(x[k], …)       -->  for c in parallel: for k in vectorized(4096): …

On one core the plain vectorized nest is as good, except for gathered rows
(`plica.schedule.default.gathered`) and rows scattered in memory, which are prefetched.

    out[i, n, j] = x[n, i, j]    -->  for i: for n: for j in vectorized(fetch=…): …

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.stages import kernel_of, stages
>>> from plica.ir.loop.tensor import buffer
>>> x = buffer("x", (1 << 20,), f32)
>>> twice = kernel_of(stages((x,), (stage("y", (1 << 20,), lambda i: x[i] + x[i]),)))
>>> [elementwise_schedule(twice, Machine(512, 32, cores=cores)) is None for cores in (1, 2)]
[True, False]
"""

from __future__ import annotations

from math import prod

from plica.core import free_vars, post_order
from plica.ir.loop import Kernel, Store, scalar as sc
from plica.ir.type import known, polynomial
from plica.runtime.late import lazy_imports
from plica.schedule import primitive as st
from plica.schedule.default.lane import is_row
from plica.schedule.default.machine import Machine
from plica.schedule.default.nest import opened
from plica.schedule.default.role import only_map
from plica.schedule.default.share import pays, touched
from plica.schedule.do import Body, DoBlock as Do, do

with lazy_imports(__name__):
    from plica.schedule.default.gathered import gathered_schedule, shared_rows

COSTLY = 32
"""How many operations of a lane an element with a function in it is worth."""

SHORTEST = 16
"""A row of fewer elements is not worth vectors."""

PIECE = 1 << 14
"""Elements of a piece of a long row, at most."""

LEAST = 1 << 8
"""A piece of fewer is not worth it."""


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
    axes = [each for each in of.indices if isinstance(each, sc.ScalarVar)]
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


def _gathers(of: Store) -> bool:
    """Whether something is read at a place that is read."""
    return any(
        isinstance(inner, sc.Load)
        for node in post_order(of.value)
        if isinstance(node, sc.Load)
        for place in node.indices
        for inner in post_order(place)
    )


def piece_of(length: int) -> int | None:
    """How long the pieces of a long row are, which they divide."""
    most = min(PIECE, length // 2)
    return next((each for each in range(most, LEAST - 1, -1) if length % each == 0), None)


def elementwise_schedule(kernel: Kernel, machine: Machine) -> Do | None:
    """The schedule of elementwise work worth sharing, None for other kernels."""
    if (of := only_map(kernel)) is None:
        return None
    assert isinstance(of.body, Store)
    found = shared_rows(of.body, machine) if _gathers(of.body) else None
    if found is not None:
        return gathered_schedule(str(of.label), of.body, found, machine)
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
