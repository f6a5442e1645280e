"""Long rows: the last axis of a piecewise tensor as a part of the one before it, which is cut.

    out[c, j < 7] = x[c, j] if c < 8 else y[c - 8, j]
      -->  out[p < …] = x[p] if p < 56 else y[p - 56]

A place is left of a cut if its row is.  The tensors are the same memory in another shape.

>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.tensor import buffer
>>> from plica.ir.type.dtype import f32
>>> x, y = buffer("x", (2, 7), f32), buffer("y", (3, 7), f32)
>>> both = stage("z", (5, 7), lambda c, j: Select(Lt(c, index(2)), x[c, j], y[c - 2, j]))
>>> with_long_rows((x, y), both)[1].out.shape[0].value
35
"""

from __future__ import annotations

from collections.abc import Mapping

from plica.core import Term, free_vars, map_bottom_up
from plica.ir.loop import Each
from plica.ir.loop.scalar import Buffer, Le, Lit, Load, Lt, Scalar, ScalarVar, Select, index
from plica.ir.type import known, polynomial

__all__ = ["Select", "reach", "with_long_rows"]


def with_long_rows(inputs: tuple[Buffer, ...], whole: Each) -> tuple[tuple[Buffer, ...], Each]:
    """The stage with its last axis as a part of the one before it; itself where these are read
    apart."""
    if len(whole.axes) < 2:
        return inputs, whole
    *outer, cut, row = whole.axes
    length, views = known(whole.out.shape[-1]) or 0, _views(whole, cut, row)
    if views is None or whole.out.strides:
        return inputs, whole

    def change(node: Term) -> Term:
        match node:
            case Load(buffer, indices) if buffer in views:
                return Load(views[buffer], (*indices[:-2], _scaled(indices[-2], cut, length)))
            case Lt(left, Lit(int() as stop)) if cut in free_vars(left):
                return Lt(_scaled(left, cut, length), index(stop * length))
            case Le(Lit(int() as start), right) if cut in free_vars(right):
                return Le(index(start * length), _scaled(right, cut, length))
            case _:
                return node

    value = map_bottom_up(change, whole.value)
    stage = Each(_view(whole.out), (*outer, cut), value)
    return tuple([views.get(each, each) for each in inputs]), stage


def _views(whole: Each, cut: ScalarVar, row: ScalarVar) -> Mapping[Buffer, Buffer] | None:
    """The loads along both axes with these merged, or None if either is used otherwise."""
    found: dict[Buffer, Buffer] = {}
    others: set[Buffer] = set()
    stack: list[Term] = [whole.value]
    while stack:
        node = stack.pop()
        match node:
            case Load(buffer, indices) if {cut, row} & free_vars(node):
                inside = [scalar for scalar in indices[:-2] if {cut, row} & free_vars(scalar)]
                near = len(indices) > 1 and reach(indices[-2], cut) is not None
                if inside or not near or indices[-1] is not row or buffer.strides:
                    return None
                if buffer.shape[-1] is not whole.out.shape[-1]:
                    return None
                found[buffer] = _view(buffer)
            case Load(buffer, _):
                others.add(buffer)
            case Lt(left, Lit(int())) | Le(Lit(int()), left) if reach(left, cut) is not None:
                pass
            case ScalarVar() if node in (cut, row):
                return None
            case _:
                stack.extend(node._children)
    return None if others & found.keys() else found


def _view(of: Buffer) -> Buffer:
    """A tensor with its last two axes as one."""
    *outer, rows, length = of.shape
    joined = index((known(rows) or 0) * (known(length) or 0))
    return Buffer(of.name, (*outer, joined), of.dtype, of.scope, of.strides, of.align)


def reach(place: Scalar, axis: ScalarVar) -> int | None:
    """The offset of an index from an axis, or None for other indices."""
    terms = dict(polynomial(place).values())
    apart = terms.pop((), 0)
    return apart if terms == {(axis,): 1} else None


def _scaled(place: Scalar, axis: ScalarVar, by: int) -> Scalar:
    """An index along an axis whose steps are now this many."""
    apart = reach(place, axis)
    assert apart is not None
    return axis + index(apart * by) if apart else axis
