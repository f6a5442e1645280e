"""Register tiles: a contraction as stages whose sums fit into vector registers.

    lanes over N       the weight is packed so that a vector of it is read at once
                           w[o, c, k, l]  -->  packed[o // 16, c, k, l, o % 16]
    lanes over a row   neighbours in a row of the result, weights as they are

Where the data has a border of zeros it is first copied into a buffer that has padding for that, so
that no guard is left inside the loops of the sum.  The stages are `pad` and `packed` where they are
needed, `sum`, and `out`.  A weight that is constant is packed beforehand (`plica.schedule.hoist`).
What fills no tile is peeled off by the schedule.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.tensor import buffer, reduce
>>> from plica.schedule.default.contraction import contraction
>>> x, w = buffer("x", (4, 8), f32), buffer("w", (8, 20), f32)
>>> times = stage("y", (4, 20), lambda m, n: reduce("sum", (8,), lambda k: x[m, k] * w[k, n]))
>>> of = contraction(joined((x, w), (times,)))
>>> print(register_tile(of, of.n[-1], 16, Machine(vector=512, registers=32)))
packed[b < 2, k < 8, v < 16] = w[k, b * 16 + v] if b * 16 + v < 20 else 0.0
sum[i < 4, i_1 < 32] = sum(x[i, k] * packed[i_1 // 16, k, i_1 % 16] for k in range(8))
out[i < 4, i_1 < 20] = sum[i, i_1]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from math import gcd, prod

from attrs import frozen

from plica.analysis.enclosing import simple
from plica.core import Name, free_vars, fresh, substitute
from plica.ir.loop.scalar import (
    And,
    Buffer,
    Le,
    Lit,
    Load,
    Lt,
    Max,
    Scalar,
    ScalarVar,
    Select,
    dtype_of,
    index,
)
from plica.ir.loop.stage import Each
from plica.ir.loop.stages import Names, Stages, stages as joined, with_element
from plica.ir.type import dim, i64, known, polynomial
from plica.schedule.default.contraction import Contraction, stride
from plica.schedule.default.machine import Machine
from plica.schedule.default.summed import summed


def names_of(of: Contraction) -> Names:
    """The names a contraction uses."""
    return Names(*of.inputs, of.reduced, *of.sizes, of.value)


def register_tile(
    of: Contraction,
    lane: ScalarVar,
    lanes: int,
    machine: Machine,
    *,
    vectors_across: int = 1,
    kept: bool = False,
    before: tuple[Each, ...] = (),
    anew: bool = False,
) -> Stages:
    """Vectors along one axis of the result: the last of the weight alone, which is packed for that,
    or the last of all.

    If vectors do not divide that axis, sums continue to a multiple. Data is then read under masks,
    if the machine has them, or copied to a padded buffer. A packed weight has `vectors_across`
    vectors of a term before those of the next. Totals of runs are `kept` in memory between runs if
    all tiles of one run are computed before the next. Stages `before` compute the data, if it is no
    input: as a whole, or `anew` for each group of tiles, without memory for all of it.
    """
    names = names_of(of)
    sizes = dict(of.sizes)
    stages: list[Each] = []
    padding: list[Each] = []
    sizes[lane] = -(-sizes[lane] // lanes) * lanes
    weight, data = of.weight, inside(of, sizes)
    if lane in of.n:
        assert weight is not None
        outer, inner = names.var("b"), names.var("v")
        wide = lanes * vectors_across
        there = packed(of, lane, (outer, inner), wide, names.name("packed"))
        pack = packer(weight, lane, (outer, inner), wide, there)
        if kept:
            pack, there = _by_run(of, pack, there, names)
        stages.append(pack)
        weight = substitute(there, {outer: lane // wide, inner: lane % wide})
        column = of.m[-1] if of.m else None
        padding, data = with_padding(of, sizes, names)
        stages[:0] = padding
    else:
        column = of.n[-1] if of.n else None
        near = stride(of.data, lane) == of.data.buffer.dtype.bytes
        if of.guarded or not (machine.masks and near):
            padding, data = with_padding(of, sizes, names, lane)
            stages = [*padding]
    apart = [a for a in of.axes if a is not lane and a is not column]
    axes = (*apart, *([] if column is None else [column]), lane)
    total, element = summed(of, axes, sizes, data, weight, names)
    memory: list[Buffer] = []
    if kept and len(total) > 1:
        totals = total[-1].out
        whole = Each(
            Buffer(names.name("whole"), totals.shape, totals.dtype), axes, Load(totals, axes)
        )
        total, memory = [*total, whole], [totals]
        element = with_element(element, totals, Load(whole.out, axes))
    value = with_element(of.value, of.reduced, element)
    shape = tuple([of.extent(axis) for axis in of.axes])
    out = Buffer(names.name("out"), shape, dtype_of(value))
    stages[:0] = before
    made_anew = [stage for stage in padding if of.batch and _fits_near(stage, of, machine)]
    made_anew += before if anew else ()
    scratch = tuple([stage.out for stage in stages if stage not in made_anew])
    return joined(of.inputs, [*stages, *total, Each(out, of.axes, value)], (*scratch, *memory, out))


def inside(of: Contraction, sizes: Mapping[ScalarVar, int]) -> Scalar:
    """The data where its index is in bounds, else the padding value."""
    places = zip(of.data.indices, of.data.buffer.shape, strict=True)
    known_places = [place for place in places if free_vars(place[0]).isdisjoint(of.open)]
    tests = [test for at, size in known_places for test in bounds(at, span(at, sizes), size)]
    return where([*tests, *_open_guards(of)], of.data, of.fill)


def _open_guards(of: Contraction) -> list[Scalar]:
    """The guards of places along open axes, which are as far outside as the operator said."""
    return [guard for guard in of.guards if not free_vars(guard).isdisjoint(of.open)]


def bounds(place: Scalar, reach: tuple[int, int], size: Scalar) -> list[Scalar]:
    """The conditions under which a place is inside an axis, of those that its reach leaves open."""
    low, high = reach
    below = [Le(index(0), place)] if low < 0 else []
    return [*below, *([Lt(place, size)] if high >= (known(size) or 0) else [])]


def where(tests: Sequence[Scalar], value: Scalar, fill: Scalar) -> Scalar:
    """A value where all conditions hold, else what stands there."""
    return Select(reduce(And, tests), value, fill) if tests else value


# --- weights --------------------------------------------------------------------------------------


def _cut(of: Buffer, at: int, lanes: int) -> Buffer:
    """The buffer with one axis as two."""
    count = -(-(known(of.shape[at]) or 0) // lanes)
    shape = (*of.shape[:at], index(count), index(lanes), *of.shape[at + 1 :])
    return Buffer(of.name, shape, of.dtype)


def packed(
    of: Contraction, lane: ScalarVar, parts: tuple[ScalarVar, ScalarVar], lanes: int, name: Name
) -> Load:
    """The load of the packed weight."""
    assert of.weight is not None
    places = of.weight.indices
    at = places.index(lane)
    rest = [number for number in range(len(places)) if number != at]
    shared = [number for number in rest if places[number] in of.axes]
    inside = [number for number in rest if number not in shared]
    inside.sort(key=lambda n: of.k.index(places[n]) if places[n] in of.k else -1)
    order = [*[_after(n, at) for n in shared], at, *[_after(n, at) for n in inside], at + 1]
    cut = _cut(of.weight.buffer, at, lanes)
    buffer = Buffer(name, tuple([cut.shape[n] for n in order]), cut.dtype)
    indices = (*places[:at], *parts, *places[at + 1 :])
    return Load(buffer, tuple([indices[n] for n in order]))


def _after(number: int, at: int) -> int:
    return number if number < at else number + 1


def packer(
    weight: Load, lane: ScalarVar, parts: tuple[ScalarVar, ScalarVar], lanes: int, packed: Load
) -> Each:
    """The stage that packs a weight, 0 where it has no more elements."""
    outer, inner = parts
    place = outer * lanes + inner
    whole: Scalar = substitute(weight, {lane: place})
    size = weight.buffer.shape[weight.indices.index(lane)]
    if (known(size) or 0) % lanes:
        whole = Select(Lt(place, size), whole, Lit(0, weight.buffer.dtype))
    fixed = {number: place for number, place in enumerate(packed.indices) if isinstance(place, Lit)}
    used = {var.name for var in free_vars(whole) if isinstance(var, ScalarVar)}
    axes = tuple(
        [
            ScalarVar(fresh(Name("u", number), used), i64) if number in fixed else place
            for number, place in enumerate(packed.indices)
        ]
    )
    return Each(packed.buffer, axes, whole)  # type: ignore[arg-type]  # the others are variables


def _by_run(of: Contraction, pack: Each, there: Load, names: Names) -> tuple[Each, Load]:
    """A packed weight with each run contiguous.

    packed[o, k, v]  -->  packed[k // 64, o, k % 64, v]
    """
    parts = {k: part for k, part in zip(of.k, of.run, strict=True) if part < of.sizes[k]}
    cut = [at for at, place in enumerate(there.indices) if place in parts]
    part = {at: parts[there.indices[at]] for at in cut}  # type: ignore[index]  # a variable, then
    runs = {at: names.var("b") for at in cut}
    shape = [index(part[at]) if at in part else size for at, size in enumerate(there.buffer.shape)]
    counts = [index((known(there.buffer.shape[at]) or 0) // part[at]) for at in cut]
    buffer = Buffer(there.buffer.name, (*counts, *shape), there.buffer.dtype)
    where = {pack.axes[at]: runs[at] * part[at] + pack.axes[at] for at in cut}
    first = [there.indices[at] // part[at] for at in cut]
    rest = [place % part[at] if at in part else place for at, place in enumerate(there.indices)]
    axes = (*runs.values(), *pack.axes)
    return Each(buffer, axes, substitute(pack.value, where)), Load(buffer, (*first, *rest))


# --- data -----------------------------------------------------------------------------------------


@frozen(eq=False)
class _Axis:
    """An axis of the data in its copy: its axes there, its index, and its source."""

    shape: tuple[Scalar, ...]
    places: tuple[Scalar, ...]
    start: int
    steps: tuple[int, ...]

    def source(self, axes: Sequence[Scalar]) -> Scalar:
        scalar: Scalar = index(self.start)
        for axis, step in zip(axes, self.steps, strict=True):
            scalar = scalar + axis * step
        return simple(scalar)

    def tests(self, place: Scalar, size: Scalar) -> list[Scalar]:
        """The conditions under which the source is inside."""
        if (self.shape, self.start) == ((size,), 0):
            return []
        last: Scalar = index(self.start)
        for step, count in zip(self.steps, self.shape, strict=True):
            last = last + (count - 1) * step
        # Of an open axis it is not known which windows end behind it.
        return bounds(place, (self.start, known(dim(last)) or 0), size)


def _axis(
    place: Scalar, count: int, row: ScalarVar | None, sizes: Mapping[ScalarVar, int]
) -> _Axis:
    """How an axis is copied.

    Where lanes go along a row in steps of more than one, elements that are neighbours for them
    become neighbours: x[2 * j + l]  -->  x[l % 2, j + l // 2].
    """
    low, high = span(place, sizes)
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
            return _Axis((index((high - low) // stride + 1),), (moved,), low, (stride,))
        length = (high - low) // stride + 1
        places = (rest % stride, row + rest // stride)
        return _Axis((index(stride), index(length)), places, low, (1, stride))
    if low >= 0 and high < count:
        return _Axis((index(count),), (place,), 0, (1,))
    return _Axis((index(high - low + 1),), (simple(place - low),), low, (1,))


def _open_axis(
    place: Scalar, size: Scalar, of: Contraction, beyond: Mapping[ScalarVar, int]
) -> _Axis:
    """The same of an index along open axes, all of whose places the copy has if it has a guard, or
    places beyond the end of an axis are read."""
    guarded = any(place in guard._children for guard in of.guards)
    if not guarded and free_vars(place).isdisjoint(beyond):
        return _Axis((size,), (place,), 0, (1,))
    start, least, reach = 0, 1, index(1)
    for atoms, factor in polynomial(place).values():
        if not atoms:
            start += factor
            continue
        (var,) = atoms
        assert isinstance(var, ScalarVar)
        extent = dim(of.extent(var) + beyond.get(var, 0))
        reach = reach + (extent - 1) * factor
        least += ((known(extent) or 0) - 1) * factor
    whole = dim(reach) if least >= 0 else Max(dim(reach), index(0))  # where there are no windows
    return _Axis((whole,), (simple(place - start),), start, (1,))


def with_padding(
    of: Contraction,
    sizes: Mapping[ScalarVar, int],
    names: Names,
    row: ScalarVar | None = None,
    beyond: Mapping[ScalarVar, int] = {},
) -> tuple[list[Each], Load]:
    """The stage that copies the data into a buffer in which all places are, if it needs one, also
    those of a number of elements `beyond` the end of open axes."""
    old = of.data.buffer
    found = [
        _open_axis(place, size, of, beyond) if not free_vars(place).isdisjoint(of.open)
        else _axis(place, known(size) or 0, row, sizes)
        for place, size in zip(of.data.indices, old.shape, strict=True)
    ]  # fmt: skip
    shape = [size for each in found for size in each.shape]
    if shape == [*old.shape] and not any(each.start for each in found):
        return [], of.data
    padding = Buffer(names.name("pad"), tuple(shape), old.dtype)
    axes = [[names.var("a") for _ in each.shape] for each in found]
    places = [each.source(own) for each, own in zip(found, axes, strict=True)]
    inside = zip(found, places, old.shape, strict=True)
    tests = [test for each, place, size in inside for test in each.tests(place, size)]
    copied = where(tests, Load(old, tuple(places)), of.fill)
    every = tuple([axis for own in axes for axis in own])
    moved = tuple([place for each in found for place in each.places])
    return [Each(padding, every, copied)], Load(padding, moved)


def span(place: Scalar, sizes: Mapping[ScalarVar, int]) -> tuple[int, int]:
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


def _fits_near(of: Each, whole: Contraction, machine: Machine) -> bool:
    """Whether the copy for one point of the batch axes fits in a near cache."""
    count = elements(of.out)
    for axis in whole.batch:
        count //= whole.sizes[axis]
    return count * of.out.dtype.bytes <= machine.near


def elements(of: Buffer) -> int:
    """How many elements a buffer of known shape has."""
    return prod(known(size) or 0 for size in of.shape)
