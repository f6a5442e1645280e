"""Gathered rows: places that several rows are read at are looked up once for some of them.

    out[c, p] = x[c, at[p]] * w[p] + …
      -->  for c0: for p: for c1 in unrolled(8): …        at[p], its bounds and w[p] once for all c1

Gathered elements are not contiguous, so there are no vectors; what can be saved is recomputing
their places. As many rows are processed together as fit in a near cache, sharing the indices.

>>> from plica.ir.loop.tensor import axis, buffer
>>> from plica.ir.type.dtype import f32, i64
>>> x, at, out = buffer("x", (12, 100), f32), buffer("at", (50,), i64), buffer("y", (12, 50), f32)
>>> c, p = axis("c"), axis("p")
>>> w = buffer("w", (50,), f32)
>>> shared_rows(Store(out, (c, p), x[c, at[p]] * w[p]), Machine(512, 32))
SharedRows(axis=0, together=12)
>>> shared_rows(Store(out, (c, p), x[c, at[p]]), Machine(512, 32)) is None
True
"""

from __future__ import annotations

from math import prod
from typing import Final

from attrs import frozen

from plica.core import free_vars, post_order
from plica.ir.loop import Store, scalar as sc
from plica.ir.type import known
from plica.schedule import primitive as st
from plica.schedule.default.machine import MIN_ELEMENTS, Machine
from plica.schedule.default.share import pays, touched
from plica.schedule.do import Body, DoBlock as Do, do
from plica.schedule.handle import Handle

MOST: Final = 16
"""The maximum number of rows processed together: each is a separate stream."""

SPARED: Final = 2
"""The minimum number of indices shared by all rows: for a single one, processing row by row is
better."""


@frozen
class SharedRows:
    """An axis along which places do not change, and how many of its rows go together."""

    axis: int
    together: int


def shared_rows(of: Store, machine: Machine) -> SharedRows | None:
    """The loads of a store at indices loaded from memory that are common to several rows, or None
    if there are none."""
    sizes = [known(size) or 0 for size in of.buffer.shape]
    if len(sizes) < 2 or prod(sizes) < MIN_ELEMENTS or not all(map(_is_axis, of.indices)):
        return None
    nodes = post_order(of.value)
    if any(isinstance(node, sc.Reduce) for node in nodes):
        return None
    gathered = [node for node in nodes if isinstance(node, sc.Load) and _places(node)]
    places = {var for node in gathered for each in _places(node) for var in free_vars(each)}
    if of.indices[-1] not in places:
        return None
    axes = [at for at, size in enumerate(sizes[:-1]) if size > 1 and of.indices[at] not in places]
    if not axes:
        return None
    var = of.indices[axes[-1]]
    same = [node for node in nodes if isinstance(node, sc.Load) and var not in free_vars(node)]
    if len(same) < SPARED:
        return None
    row = max([(known(each.buffer.shape[-1]) or 0) * each.buffer.dtype.bytes for each in gathered])
    most = min(MOST, machine.cache(2) // 2 // max(1, row))
    at = axes[-1]
    together = next((n for n in range(most, 1, -1) if sizes[at] % n == 0), 1)
    return SharedRows(at, together) if together > 1 else None


def _is_axis(of: sc.Scalar) -> bool:
    return isinstance(of, sc.ScalarVar)


def _places(of: sc.Load) -> list[sc.Load]:
    """The loads in the indices of a load."""
    return [node for index in of.indices for node in post_order(index) if isinstance(node, sc.Load)]


def gathered_schedule(label: str, of: Store, found: SharedRows, machine: Machine) -> Do:
    """The schedule of such a store."""
    sizes = [known(size) or 0 for size in of.buffer.shape]
    outer = next((at for at in range(found.axis) if sizes[at] > 1), None)

    @do
    def schedule() -> Body:
        one = yield st.block(label)
        every: tuple[Handle, ...] = yield st.loops(one)
        groups, rows = yield st.split(every[found.axis], (None, found.together))
        yield st.reorder(groups, *every[found.axis + 1 :], rows)
        yield st.unroll(rows)
        if pays(machine, prod(sizes), touched(of)):
            yield st.parallel(groups if outer is None else every[outer])

    return schedule()
