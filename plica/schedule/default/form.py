"""Forms: a contraction as a kernel that can be scheduled well.

    blocked      lanes over outputs, weights packed so that a vector of them is read at once
                     w[o, c, k, l]  -->  packed[o // 16, c, k, l, o % 16]
    rowed        lanes over neighbours in a row of the result, weights as they are

Where the data has a border of zeros, or a tile hangs over the end, it is first copied into a buffer
that has room for that, so that no guard is left inside the loops of the sum.  The blocks are
`pad` and `packed` where they are needed, `sum`, and `out`.

Scratch memory is given to the kernel: its parameters are inputs, scratch buffers, the result.

>>> from plica.ir.dtype import f32
>>> from plica.ir.tensor import buffer, compute, reduce
>>> from plica.schedule.default.contraction import Work, contraction
>>> x, w = buffer("x", (4, 8), f32), buffer("w", (8, 32), f32)
>>> times = compute((x, w), (4, 32), lambda m, n: reduce("sum", (8,), lambda k: x[m, k] * w[k, n]))
>>> found = blocked(contraction(Work(times)), lanes=16, tile=4, constant=True)
>>> [[known(size) for size in each.shape] for each in found.kernel.params]
[[4, 8], [2, 8, 16], [4, 2, 16]]
>>> found.packings[0].apply(np.zeros((8, 32))).shape
(2, 8, 16)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd, prod
from typing import Any

import numpy as np
from attrs import frozen

from plica.core.binding import free_vars, substitute
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
from plica.schedule.default.constant import Derived
from plica.schedule.default.contraction import Contraction


@frozen
class Packing:
    """How a constant is laid out for a kernel: one axis cut in two, then all put in an order."""

    input: int
    axis: int
    lanes: int
    order: tuple[int, ...]

    def apply(self, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The array as the kernel reads it, 0 where it has no more elements."""
        shape = list(array.shape)
        more = -shape[self.axis] % self.lanes
        if more:
            array = np.pad(array, [(0, more * (at == self.axis)) for at in range(array.ndim)])
        shape[self.axis : self.axis + 1] = [-(-shape[self.axis] // self.lanes), self.lanes]
        return np.ascontiguousarray(array.reshape(shape).transpose(self.order))


@frozen(eq=False)
class Formed:
    """A kernel over inputs, some packed, and so many scratch buffers before its result.

    What is derived from constants takes their places, or follows after all inputs.
    """

    kernel: Kernel
    packings: tuple[Packing, ...]
    scratch: tuple[Buffer, ...]
    derived: tuple[Derived, ...] = ()


class Names:
    """Names in use."""

    def __init__(self, of: Contraction) -> None:
        self.used = {each.name for each in (*of.inputs, of.reduced)} | {
            each.name for each in of.sizes
        }

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
    names = Names(of)
    lane = of.lanes[-1]
    outer, inner = names.var("b"), names.var("v")
    count = of.sizes[lane] // lanes
    sizes = {**of.sizes, outer: count, inner: lanes}
    column = of.pixels[-1] if of.pixels else None
    if column is not None:
        sizes[column] = -(-sizes[column] // tile) * tile
    stages: list[Each] = []
    views: dict[Buffer, Buffer] = {}
    assert of.weight is not None
    name = of.weight.buffer.name if constant else names.name("packed")
    packing, weight = packed(of, lane, (outer, inner), lanes, name)
    if constant:
        views[of.weight.buffer] = weight.buffer
    else:
        stages.append(packer(of.weight, lane, (outer, inner), lanes, weight))
    stages[:0], data = _with_room(of, sizes, names)
    apart = [a for a in of.axes if a is not lane and a is not column]
    axes = [*apart, outer, *([] if column is None else [column]), inner]
    total = summed(of, axes, sizes, data, weight, names)
    stages.append(total)

    cut_at = _cut_evenly(of, lane)
    views |= {each: _cut(each, at, lanes) for each, at in cut_at.items()}

    def cut(node: Term) -> Term:
        if not isinstance(node, Load):
            return node
        if node.buffer is of.reduced:
            return Load(total.out, tuple(axes))
        if node.buffer not in cut_at:
            return node
        at = cut_at[node.buffer]
        places = (*node.indices[:at], outer, inner, *node.indices[at + 1 :])
        return Load(views[node.buffer], places)

    # What asks for the axis in another way has its place: a condition, an index with an offset.
    value = substitute(map_bottom_up(cut, of.value), {lane: outer * lanes + inner})
    at = of.axes.index(lane)
    places = (*of.axes[:at], outer, inner, *of.axes[at + 1 :])
    shape = [index(count if a is outer else lanes if a is inner else of.sizes[a]) for a in places]
    return _kernel(of, stages, views, (places, shape, value), names, (packing,) if constant else ())


def rowed(of: Contraction, lanes: int) -> Formed:
    """Lanes over the last axis of all, in steps of `lanes`."""
    names = Names(of)
    row = of.axes[-1]
    sizes = {**of.sizes, row: -(-of.sizes[row] // lanes) * lanes}
    stages, data = _with_room(of, sizes, names, row)
    column = of.lanes[-1] if of.lanes else None
    apart = [a for a in of.axes if a is not row and a is not column]
    axes = [*apart, *([] if column is None else [column]), row]
    total = summed(of, axes, sizes, data, of.weight, names)
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
    names: Names,
    packings: tuple[Packing, ...],
) -> Formed:
    places, shape, value = last
    assert isinstance(value, Scalar)
    out = Buffer(names.name("out"), tuple(shape), dtype_of(value))
    stages.append(Each(out, tuple(places), value))
    scratch = tuple([each.out for each in stages[:-2] if not (of.shared and _fits_near(each, of))])
    inputs = [views.get(each, each) for each in of.inputs]
    kernel = define(*stages, inputs=inputs, outputs=(*scratch, out))
    return Formed(kernel, packings, scratch)


def summed(  # noqa: PLR0917  # as above
    of: Contraction,
    axes: Sequence[ScalarVar],
    sizes: Mapping[ScalarVar, int],
    data: Scalar,
    weight: Load | None,
    names: Names,
) -> Each:
    out = Buffer(names.name("sum"), tuple([index(sizes[a]) for a in axes]), of.reduced.dtype)
    extents = tuple([index(sizes[each]) for each in of.terms])
    body = data if weight is None else Mul(data, weight)
    return Each(out, tuple(axes), Reduce(of.combiner, of.terms, extents, body))


# --- weights --------------------------------------------------------------------------------------


def _cut_evenly(of: Contraction, lane: ScalarVar) -> dict[Buffer, int]:
    """What is read with the sum along the whole of an axis and in no other way, and at which dim.

    A part of a concatenation ends where no block does, and is read behind a condition.
    """
    found: dict[Buffer, int] = {}
    other: set[Buffer] = set()
    for each in of.loads():
        where = [n for n, place in enumerate(each.indices) if lane in free_vars(place)]
        at = where[0] if len(where) == 1 and each.indices[where[0]] is lane else None
        if at is not None and known(each.buffer.shape[at]) == of.sizes[lane]:
            other |= {each.buffer} if found.setdefault(each.buffer, at) != at else set()
        else:
            other.add(each.buffer)
    return {each: at for each, at in found.items() if each not in other}


def _cut(of: Buffer, at: int, lanes: int) -> Buffer:
    """The buffer with one axis as two."""
    count = -(-(known(of.shape[at]) or 0) // lanes)
    shape = (*of.shape[:at], index(count), index(lanes), *of.shape[at + 1 :])
    return Buffer(of.name, shape, of.dtype)


def packed(
    of: Contraction, lane: ScalarVar, parts: tuple[ScalarVar, ScalarVar], lanes: int, name: Name
) -> tuple[Packing, Load]:
    """How the weight is packed, and what is read of it then."""
    assert of.weight is not None
    places = of.weight.indices
    at = places.index(lane)
    rest = [number for number in range(len(places)) if number != at]
    shared = [number for number in rest if places[number] in of.axes]
    inside = [number for number in rest if number not in shared]
    inside.sort(key=lambda n: of.terms.index(places[n]) if places[n] in of.terms else -1)
    order = [*[_after(n, at) for n in shared], at, *[_after(n, at) for n in inside], at + 1]
    cut = _cut(of.weight.buffer, at, lanes)
    buffer = Buffer(name, tuple([cut.shape[n] for n in order]), cut.dtype)
    indices = (*places[:at], *parts, *places[at + 1 :])
    packing = Packing(of.inputs.index(of.weight.buffer), at, lanes, tuple(order))
    return packing, Load(buffer, tuple([indices[n] for n in order]))


def _after(number: int, at: int) -> int:
    return number if number < at else number + 1


def packer(
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


@frozen(eq=False)
class _Axis:
    """One axis of the data in a copy of it: axes there, where it is read, where it comes from."""

    sizes: tuple[int, ...]
    places: tuple[Scalar, ...]
    start: int
    steps: tuple[int, ...]

    def source(self, axes: Sequence[Scalar]) -> Scalar:
        found: Scalar = index(self.start)
        for axis, step in zip(axes, self.steps, strict=True):
            found = found + axis * step
        return simple(found)

    @property
    def last(self) -> int:
        """The last place of the data that is copied."""
        reach = [step * (size - 1) for step, size in zip(self.steps, self.sizes, strict=True)]
        return self.start + sum(reach)


def _axis(
    place: Scalar, count: int, row: ScalarVar | None, sizes: Mapping[ScalarVar, int]
) -> _Axis:
    """How an axis is copied.

    Where lanes go along a row in steps of more than one, elements that are neighbours for them
    become neighbours: x[2 * j + l]  -->  x[l % 2, j + l // 2].
    """
    low, high = _span(place, sizes)
    terms = {
        atoms[0]: factor for atoms, factor in polynomial(place).values()
        if atoms and sizes[atoms[0]] > 1  # type: ignore[index]  # affine: its atoms are variables
    }  # fmt: skip
    stride = terms.get(row, 1) if row is not None else 1
    if stride > 1 and row is not None:
        common = gcd(*terms.values())
        rest = simple(place - row * stride - low)
        if common == stride:
            moved = row if len(terms) == 1 else simple(row + rest // stride)
            return _Axis(((high - low) // stride + 1,), (moved,), low, (stride,))
        length = (high - low) // stride + 1
        places = (rest % stride, row + rest // stride)
        return _Axis((stride, length), places, low, (1, stride))
    if low >= 0 and high < count:
        return _Axis((count,), (place,), 0, (1,))
    return _Axis((high - low + 1,), (simple(place - low),), low, (1,))


def _with_room(
    of: Contraction, sizes: Mapping[ScalarVar, int], names: Names, row: ScalarVar | None = None
) -> tuple[list[Each], Load]:
    """The stage that copies the data into a buffer in which all places are, if it needs one."""
    old = of.data.buffer
    counts = [known(size) or 0 for size in old.shape]
    found = [
        _axis(place, count, row, sizes)
        for place, count in zip(of.data.indices, counts, strict=True)
    ]
    if all(e.sizes == (count,) and not e.start for e, count in zip(found, counts, strict=True)):
        return [], of.data
    shape = [index(size) for each in found for size in each.sizes]
    room = Buffer(names.name("pad"), tuple(shape), old.dtype)
    axes = [[names.var("a") for _ in each.sizes] for each in found]
    places = [each.source(own) for each, own in zip(found, axes, strict=True)]
    condition: Scalar | None = None
    for each, place, count in zip(found, places, counts, strict=True):
        for test in (
            *([Le(index(0), place)] if each.start < 0 else []),
            *([Lt(place, index(count))] if each.last >= count else []),
        ):
            condition = test if condition is None else And(condition, test)
    copied: Scalar = Load(old, tuple(places))
    if condition is not None:
        copied = Select(condition, copied, of.fill)
    every = tuple([axis for own in axes for axis in own])
    moved = tuple([place for each in found for place in each.places])
    return [Each(room, every, copied)], Load(room, moved)


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


NEAR = 128 * 1024
"""Bytes of what is copied anew for each place of the axes that are shared, at most."""


def _fits_near(of: Each, whole: Contraction) -> bool:
    """Whether what is copied is little for one place of the axes data and weight share."""
    count = elements(of.out)
    for axis in whole.shared:
        count //= whole.sizes[axis]
    return str(of.out.name) == "pad" and count * of.out.dtype.bytes <= NEAR


def elements(of: Buffer) -> int:
    """How many elements a buffer of known shape has."""
    return prod(known(size) or 0 for size in of.shape)
