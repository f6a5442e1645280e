"""Groups: an axis of results that are made in groups becomes two, the group and the one in it.

    out[n, o, i, j] = sum over c, k, l of x[n, o // 4 * 8 + c, i + k, j + l] * w[o, c, k, l]
      -->  out[n, g, p, i, j] = sum over c, k, l of x[n, g * 8 + c, …] * w[g, p, c, k, l]

Memory is the same, so buffers only have another shape.  Then each group is a contraction of its
own, of the kind that rules of thumb know.

>>> from plica.ir.dtype import f32
>>> from plica.ir.tensor import buffer, compute, reduce
>>> x, w = buffer("x", (24, 9), f32), buffer("w", (12, 8), f32)
>>> conv = compute((x, w), (12, 9), lambda o, i: reduce(
...     "sum", (8,), lambda c: x[o // 4 * 8 + c, i] * w[o, c]))
>>> found = by_group(Work(conv))
>>> [[known(size) for size in each.shape] for each in found.work.compute.inputs]
[[24, 9], [3, 4, 8]]
"""

from __future__ import annotations

from typing import Any

import numpy as np
from attrs import evolve, frozen

from plica.core.binding import free_vars
from plica.core.fold import map_bottom_up, post_order
from plica.core.name import Name, fresh
from plica.core.term import Term
from plica.ir.dim import known
from plica.ir.scalar import Buffer, FloorDiv, FloorMod, Lit, Load, Scalar, ScalarVar, index
from plica.ir.tensor import Compute
from plica.schedule.default.contraction import Index, Work
from plica.schedule.default.form import Formed, Packing


@frozen
class Viewed(Packing):
    """A packing of a constant that a kernel sees in another shape."""

    shape: tuple[int, ...]

    def apply(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The array as the kernel reads it."""
        return Packing.apply(self, array.reshape(self.shape))


@frozen(eq=False)
class Grouped:
    """Work whose groups are an axis."""

    work: Work

    def seen(self, of: Formed) -> Formed:
        """The form of that work, as one of the work it was made from."""
        inputs = self.work.compute.inputs
        packings = [
            Viewed(each.input, each.axis, each.lanes, each.order, _sizes(inputs[each.input]))
            for each in of.packings
        ]
        return evolve(of, packings=tuple(packings))


def _sizes(of: Buffer) -> tuple[int, ...]:
    return tuple([known(size) or 0 for size in of.shape])


def by_group(of: Work) -> Grouped | None:
    """The work with its groups as an axis, None where it has none."""
    found = _group(of.compute)
    if found is None:
        return None
    axis, each = found
    used = {node.name for node in post_order(of.compute.body) if isinstance(node, ScalarVar)}
    used |= {one.name for one in of.compute.axes}
    group = ScalarVar(fresh(Name("g"), used), axis.dtype)
    one = ScalarVar(fresh(Name("p"), used | {group.name}), axis.dtype)
    apart = _Apart(axis, each, group, one)
    body = apart.term(of.compute.body)
    value = None if of.value is None else apart.term(of.value)
    if apart.fails or any(axis in free_vars(term) for term in (body, value) if term is not None):
        return None
    axes, shape = apart.places(of.compute.axes), apart.shape(of.compute.axes, of.compute.shape)
    inputs = tuple([apart.views.get(buffer, buffer) for buffer in of.compute.inputs])
    compute = Compute(inputs, axes, shape, body)  # type: ignore[arg-type]  # axes are variables
    if of.reduced is None or value is None:
        return Grouped(Work(compute))
    reduced = apart.views.get(of.reduced, of.reduced)
    whole = apart.shape(of.indices, of.shape)
    return Grouped(Work(compute, reduced, whole, apart.places(of.indices), value))


def _group(of: Compute) -> tuple[ScalarVar, int] | None:
    """The axis that is divided into groups, and how many results are in each."""
    found: dict[ScalarVar, int] = {}
    for node in post_order(of.body):
        match node:
            case FloorDiv(ScalarVar() as axis, Lit(int() as each)) if axis in of.axes:
                if found.setdefault(axis, each) != each:
                    return None
    if len(found) != 1:
        return None
    ((axis, each),) = found.items()
    size = known(of.shape[of.axes.index(axis)])
    return (axis, each) if size and each > 1 and size % each == 0 else None


class _Apart:
    """Puts two axes in the place of one, in terms and in shapes."""

    def __init__(self, axis: ScalarVar, each: int, group: ScalarVar, one: ScalarVar) -> None:
        self.axis, self.each, self.group, self.one = axis, each, group, one
        self.views: dict[Buffer, Buffer] = {}
        self.whole: set[Buffer] = set()  # what is read in its own shape
        self.fails = False

    def term(self, of: Scalar) -> Scalar:
        found = map_bottom_up(self._node, of)
        assert isinstance(found, Scalar)
        return found

    def _node(self, node: Term) -> Term:
        match node:
            case FloorDiv(left, Lit(number)) if left is self.axis and number == self.each:
                return self.group
            case FloorMod(left, Lit(number)) if left is self.axis and number == self.each:
                return self.one
            case Load(buffer, indices) if self.axis in indices:
                view = Buffer(buffer.name, self.shape(indices, buffer.shape), buffer.dtype)
                self.fails |= self.views.setdefault(buffer, view) is not view
                self.fails |= buffer in self.whole or bool(buffer.strides)
                return Load(view, self.places(indices))
            case Load(buffer, _):
                self.whole.add(buffer)
                self.fails |= buffer in self.views
        return node

    def places(self, indices: Index) -> Index:
        found: list[Scalar] = []
        for place in indices:
            found += [self.group, self.one] if place is self.axis else [place]
        return tuple(found)

    def shape(self, indices: Index, sizes: Index) -> Index:
        found: list[Scalar] = []
        for place, size in zip(indices, sizes, strict=True):
            if place is not self.axis:
                found.append(size)
                continue
            whole = known(size) or 0
            self.fails |= whole % self.each != 0
            found += [index(whole // self.each), index(self.each)]
        return tuple(found)
