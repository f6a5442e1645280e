"""Octets: whether eight neighbours of a side of a product (16 bytes) are fetched at once.

They are contiguous among the terms of a sum, or among rows or columns, and all in bounds or all out
of bounds.
"""

from __future__ import annotations

from plica.core import Term, free_vars, map_bottom_up
from plica.ir.loop import Each, Load, Reduce, Stages, loads
from plica.ir.loop.stages import stages
from plica.ir.type import known
from plica.schedule.default.gpu.operand import Group, Operands


def as_they_lie(of: Stages) -> Stages:
    """Stages whose sums go along neighbours in memory last, where all they read has the same."""

    def change(node: Term) -> Term:
        if not isinstance(node, Reduce) or node.combiner != "sum" or len(node.axes) < 2:
            return node
        last = {load.indices[-1] for load in loads(node.body) if load.indices}
        if len(last) != 1 or (near := next(iter(last))) not in node.axes[:-1]:
            return node
        pairs = [*zip(node.axes, node.extents, strict=True)]
        pairs.sort(key=lambda pair: pair[0] is near)  # the others stay in their order
        axes, extents = zip(*pairs, strict=True)
        return Reduce(node.combiner, axes, extents, node.body, node.runs)

    return stages(of.inputs, [
        Each(stage.out, stage.axes, map_bottom_up(change, stage.value))
        if isinstance(stage, Each) else stage
        for stage in of.stages
    ], of.outputs)  # fmt: skip


def is_plain(of: Operands, side: Load, along: bool) -> bool:
    """Whether neighbours of a side are neighbours among its terms, or its rows or columns."""
    if side is of.bordered or side.buffer not in of.views:
        return False
    return along or of.groups[_near(of, side, along)][-1:] == side.indices[-1:]


def in_octets(of: Operands, side: Load, along: bool) -> bool:
    """Whether eight neighbours of a side are fetched at once, all inside or all outside."""
    if side is of.bordered:
        return _has_octets(of, side)
    if not is_plain(of, side, along):
        return False
    last = known(of.views[side.buffer].shape[-1]) or 1
    return of.size(_near(of, side, along)) % of.octet == 0 and last % of.octet == 0


def _has_octets(of: Operands, side: Load) -> bool:
    """Whether eight neighbouring terms of a window are neighbours, and inside or outside of it
    together."""
    near = of.groups["terms"][-1:]
    if not near or side.indices[-1] is not near[0] or of.sizes[near[0]] % of.octet:
        return False
    last = known(side.buffer.shape[-1])
    return last == of.sizes[near[0]] and all(near[0] not in free_vars(term) for term in of.border)


def _near(of: Operands, side: Load, along: bool) -> Group:
    return "terms" if along else "rows" if side is of.left else "columns"
