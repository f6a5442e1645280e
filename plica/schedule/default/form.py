"""Forms: a contraction as a kernel that can be scheduled well.

    blocked      lanes over outputs, weights packed so that a vector of them is read at once
                     w[o, c, k, l]  -->  packed[o // 16, c, k, l, o % 16]
    rowed        lanes over neighbours in a row of the result, weights as they are

Where the data has a border of zeros, or a tile hangs over the end, it is first copied into a buffer
that has room for that, so that no guard is left inside the loops of the sum.  The blocks are
`pad` and `packed` where they are needed, `sum`, and `out`.

Scratch memory is given to the kernel: its parameters are inputs, scratch buffers, the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from attrs import frozen

from plica.core.binding import substitute
from plica.core.fold import map_bottom_up
from plica.core.name import Name, fresh
from plica.core.term import Term
from plica.ir.define import define
from plica.ir.dim import known, polynomial
from plica.ir.dtype import i64
from plica.ir.loop import Kernel
from plica.ir.scalar import (
    And,
    Buffer,
    Le,
    Lit,
    Load,
    Lt,
    Mul,
    Reduce,
    Scalar,
    ScalarVar,
    Select,
    dtype_of,
    index,
)
from plica.ir.stage import Each
from plica.schedule.around import simple
from plica.schedule.default.contraction import Contraction


@frozen
class Packing:
    """How a constant is laid out for a kernel: one axis cut in two, then all put in an order."""

    input: int
    axis: int
    lanes: int
    order: tuple[int, ...]

    def apply(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The array as the kernel reads it."""
        shape = list(array.shape)
        shape[self.axis : self.axis + 1] = [shape[self.axis] // self.lanes, self.lanes]
        return np.ascontiguousarray(array.reshape(shape).transpose(self.order))


@frozen(eq=False)
class Formed:
    """A kernel over inputs, some packed, and so many scratch buffers before its result."""

    kernel: Kernel
    packings: tuple[Packing, ...]
    scratch: tuple[Buffer, ...]


class _Names:
    """Names in use."""

    def __init__(self, of: Contraction) -> None:
        self.used = {each.name for each in (*of.inputs, of.reduced, *of.sizes)}

    def name(self, like: str) -> Name:
        found = fresh(Name(like), self.used)
        self.used.add(found)
        return found

    def var(self, like: str) -> ScalarVar:
        return ScalarVar(self.name(like), i64)


def blocked(of: Contraction, lanes: int, tile: int, constant: bool) -> Formed:
    """Lanes over the last axis of the weight alone, whose length they divide.

    The last axis of the data alone, if there is one, goes in steps of `tile`.
    """
    names = _Names(of)
    lane = of.lanes[-1]
    outer, inner = names.var("b"), names.var("v")
    count = of.sizes[lane] // lanes
    sizes = {**of.sizes, outer: count, inner: lanes}
    column = of.pixels[-1] if of.pixels else None
    if column is not None:
        sizes[column] = -(-sizes[column] // tile) * tile
    stages: list[Each] = []
    views: dict[Buffer, Buffer] = {}
    packing, weight = _packed(of, lane, (outer, inner), lanes, names)
    if constant:
        views[of.weight.buffer] = weight.buffer
    else:
        stages.append(_packer(of.weight, lane, (outer, inner), lanes, weight))
    stages[:0], data = _with_room(of, sizes, names)
    apart = [a for a in of.axes if a is not lane and a is not column]
    axes = [*apart, outer, *([] if column is None else [column]), inner]
    total = _sum(of, axes, sizes, data, weight, names)
    stages.append(total)

    def cut(node: Term) -> Term:
        if not isinstance(node, Load):
            return node
        if node.buffer is of.reduced:
            return Load(total.out, tuple(axes))
        if lane not in node.indices:
            return node
        at = node.indices.index(lane)
        new = views.setdefault(node.buffer, _cut(node.buffer, at, lanes))
        return Load(new, (*node.indices[:at], outer, inner, *node.indices[at + 1 :]))

    value = map_bottom_up(cut, of.value)
    at = of.axes.index(lane)
    places = (*of.axes[:at], outer, inner, *of.axes[at + 1 :])
    shape = [index(count if a is outer else lanes if a is inner else of.sizes[a]) for a in places]
    return _kernel(of, stages, views, (places, shape, value), names, (packing,) if constant else ())


def rowed(of: Contraction, lanes: int, tile: int) -> Formed:
    """Lanes over the last axis of all, in steps of `lanes`; an axis of weights alone in steps of
    `tile`, which divides it."""
    names = _Names(of)
    row = of.axes[-1]
    sizes = {**of.sizes, row: -(-of.sizes[row] // lanes) * lanes}
    stages, data = _with_room(of, sizes, names)
    column = of.lanes[-1] if of.lanes else None
    apart = [a for a in of.axes if a is not row and a is not column]
    axes = [*apart, *([] if column is None else [column]), row]
    total = _sum(of, axes, sizes, data, of.weight, names)
    stages.append(total)

    def read(node: Term) -> Term:
        if isinstance(node, Load) and node.buffer is of.reduced:
            return Load(total.out, tuple(axes))
        return node

    value = map_bottom_up(read, of.value)
    shape = [index(of.sizes[each]) for each in of.axes]
    return _kernel(of, stages, {}, (of.axes, shape, value), names, ())


def _kernel(  # noqa: PLR0917  # a form is these things
    of: Contraction,
    stages: list[Each],
    views: Mapping[Buffer, Buffer],
    last: tuple[Sequence[ScalarVar], Sequence[Scalar], Term],
    names: _Names,
    packings: tuple[Packing, ...],
) -> Formed:
    places, shape, value = last
    assert isinstance(value, Scalar)
    out = Buffer(names.name("out"), tuple(shape), dtype_of(value))
    stages.append(Each(out, tuple(places), value))
    scratch = tuple([each.out for each in stages[:-2]])
    inputs = [views.get(each, each) for each in of.inputs]
    kernel = define(*stages, inputs=inputs, outputs=(*scratch, out))
    return Formed(kernel, packings, scratch)


def _sum(  # noqa: PLR0917  # as above
    of: Contraction,
    axes: Sequence[ScalarVar],
    sizes: Mapping[ScalarVar, int],
    data: Scalar,
    weight: Load,
    names: _Names,
) -> Each:
    out = Buffer(names.name("sum"), tuple([index(sizes[a]) for a in axes]), of.reduced.dtype)
    extents = tuple([index(sizes[each]) for each in of.terms])
    return Each(out, tuple(axes), Reduce("sum", of.terms, extents, Mul(data, weight)))


# --- weights --------------------------------------------------------------------------------------


def _cut(of: Buffer, at: int, lanes: int) -> Buffer:
    """The buffer with one axis as two."""
    count = (known(of.shape[at]) or 0) // lanes
    shape = (*of.shape[:at], index(count), index(lanes), *of.shape[at + 1 :])
    return Buffer(of.name, shape, of.dtype)


def _packed(
    of: Contraction, lane: ScalarVar, parts: tuple[ScalarVar, ScalarVar], lanes: int, names: _Names
) -> tuple[Packing, Load]:
    """How the weight is packed, and what is read of it then."""
    places = of.weight.indices
    at = places.index(lane)
    rest = [number for number in range(len(places)) if number != at]
    shared = [number for number in rest if places[number] in of.axes]
    inside = [number for number in rest if number not in shared]
    inside.sort(key=lambda n: of.terms.index(places[n]) if places[n] in of.terms else -1)  # type: ignore[arg-type]
    order = [*[_after(n, at) for n in shared], at, *[_after(n, at) for n in inside], at + 1]
    cut = _cut(of.weight.buffer, at, lanes)
    name = of.weight.buffer.name
    buffer = Buffer(name, tuple([cut.shape[n] for n in order]), cut.dtype)
    indices = (*places[:at], *parts, *places[at + 1 :])
    packing = Packing(of.inputs.index(of.weight.buffer), at, lanes, tuple(order))
    return packing, Load(buffer, tuple([indices[n] for n in order]))


def _after(number: int, at: int) -> int:
    return number if number < at else number + 1


def _packer(
    weight: Load,
    lane: ScalarVar,
    parts: tuple[ScalarVar, ScalarVar],
    lanes: int,
    packed: Load,
) -> Each:
    """The stage that packs a weight which is known only when the program runs."""
    outer, inner = parts
    whole = substitute(weight, {lane: outer * lanes + inner})
    assert isinstance(whole, Scalar)
    fixed = {number: place for number, place in enumerate(packed.indices) if isinstance(place, Lit)}
    axes = tuple(
        [
            ScalarVar(Name("u", number), i64) if number in fixed else place
            for number, place in enumerate(packed.indices)
        ]
    )
    return Each(packed.buffer, axes, whole)  # type: ignore[arg-type]  # the others are variables


# --- data -----------------------------------------------------------------------------------------


def _with_room(
    of: Contraction, sizes: Mapping[ScalarVar, int], names: _Names
) -> tuple[list[Each], Load]:
    """The stage that copies the data into a buffer in which all places are, if it needs one."""
    old = of.data.buffer
    starts: list[int] = []
    shape: list[int] = []
    for place, size in zip(of.data.indices, old.shape, strict=True):
        low, high = _span(place, sizes)
        count = known(size) or 0
        is_inside = low >= 0 and high < count
        starts.append(0 if is_inside else low)
        shape.append(count if is_inside else high - low + 1)
    whole = [known(size) for size in old.shape]
    if shape == whole and not any(starts):
        return [], of.data
    room = Buffer(names.name("pad"), tuple([index(size) for size in shape]), old.dtype)
    axes = tuple([names.var("a") for _ in shape])
    places = [simple(axis + start) for axis, start in zip(axes, starts, strict=True)]
    condition: Scalar | None = None
    for place, start, size, count in zip(places, starts, shape, whole, strict=True):
        assert count is not None
        for each in (
            *([Le(index(0), place)] if start < 0 else []),
            *([Lt(place, index(count))] if start + size > count else []),
        ):
            condition = each if condition is None else And(condition, each)
    copied: Scalar = Load(old, tuple(places))
    if condition is not None:
        copied = Select(condition, copied, Lit(0, old.dtype))
    moved = [
        simple(place - start) if start else place
        for place, start in zip(of.data.indices, starts, strict=True)
    ]
    return [Each(room, axes, copied)], Load(room, tuple(moved))


def _span(place: Scalar, sizes: Mapping[ScalarVar, int]) -> tuple[int, int]:
    """The least and the greatest value of an affine index."""
    low = high = 0
    for atoms, factor in polynomial(place).values():
        if not atoms:
            low, high = low + factor, high + factor
            continue
        (var,) = atoms
        assert isinstance(var, ScalarVar)
        reach = factor * (sizes[var] - 1)
        low, high = low + min(0, reach), high + max(0, reach)
    return low, high


def elements(of: Buffer) -> int:
    """How many elements a buffer of known shape has."""
    return prod(known(size) or 0 for size in of.shape)
