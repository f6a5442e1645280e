"""Contractions: sums of products of two tensors, with epilogues.

    out[n, o, i, j] = f(sum over c, k, l of x[n, c, i + k, j + l] * w[o, c, k, l], …)

Matrix products and all convolutions are contractions. An axis of the result occurs in the weight
only (`n`), in the data only (`m`), or in both (`batch`); reduction axes are `k`. The possible reuse
follows from that. Pools have no weight: the axes along which windows slide are their `m`.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.stages import stages
>>> from plica.ir.loop.tensor import buffer, reduce
>>> x, w = buffer("x", (4, 8), f32), buffer("w", (6, 8), f32)
>>> dense = stage("y", (4, 6), lambda m, n: reduce("sum", (8,), lambda k: x[m, k] * w[n, k]))
>>> found = contraction(stages((x, w), (dense,)))
>>> [str(each.name) for each in (*found.n, *found.m)]
['i_1', 'i']
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from typing import TypeAlias

from attrs import evolve, frozen

from plica.analysis.enclosing import simple
from plica.analysis.index.context import conjuncts
from plica.core import Name, Term, free_vars, fresh, map_bottom_up, post_order, substitute
from plica.ir.loop import Each, Names, Stages, loads, scalar as sc
from plica.ir.loop.stages import pairs, with_element
from plica.ir.type import dim, known, polynomial
from plica.schedule.default.tile import USUAL_OPEN_SIZE

Index: TypeAlias = tuple[sc.Scalar, ...]


@frozen(eq=False, slots=False)
class Contraction:
    """`value` at the axes, where `reduced` is the sum over `k` of `data * weight`."""

    inputs: tuple[sc.Buffer, ...]
    axes: tuple[sc.ScalarVar, ...]
    k: tuple[sc.ScalarVar, ...]
    sizes: Mapping[sc.ScalarVar, int]
    data: sc.Load
    weight: sc.Load | None
    combiner: sc.Combiner
    guards: tuple[sc.Scalar, ...]
    """What says that the place of the data is inside; elsewhere it is `fill`."""
    fill: sc.Lit
    reduced: sc.Buffer
    value: sc.Scalar
    runs: sc.Runs = ""
    """How its sums are cut into runs, if they are."""
    run: tuple[int, ...] = ()
    """The terms of a run along each axis, once they are chosen (`summed`)."""
    free: bool = False
    """Whether totals of runs may be made in another way than the sum says."""
    open: Mapping[sc.ScalarVar, sc.Scalar] = {}
    """The extents of open axes, whose `sizes` are usual ones."""

    @property
    def guarded(self) -> bool:
        """Whether some places of the data are outside."""
        return bool(self.guards)

    def extent(self, axis: sc.ScalarVar) -> sc.Scalar:
        """The extent of an axis."""
        return self.open.get(axis) or sc.index(self.sizes[axis])

    @cached_property
    def n(self) -> tuple[sc.ScalarVar, ...]:
        """The axes along which data can be reused, those of length 1 left out."""
        return () if self.weight is None else self._within(self.weight, self.data)

    @cached_property
    def m(self) -> tuple[sc.ScalarVar, ...]:
        """The axes along which weights can be reused, those of length 1 left out."""
        if self.weight is not None:
            return self._within(self.data, self.weight)
        apart = self.batch
        return tuple([a for a in self.axes if a not in apart and self.sizes[a] > 1])

    @cached_property
    def batch(self) -> tuple[sc.ScalarVar, ...]:
        """The axes along which nothing can be reused, those of length 1 left out."""
        both: frozenset[Term] = frozenset(self.data.indices)
        if self.weight is not None:
            both = free_vars(self.data) & free_vars(self.weight)
        return tuple([axis for axis in self.axes if axis in both and self.sizes[axis] > 1])

    @property
    def depth(self) -> int:
        """How many products are summed."""
        count = 1
        for each in self.k:
            count *= self.sizes[each]
        return count

    def _within(self, one: sc.Load, other: sc.Load) -> tuple[sc.ScalarVar, ...]:
        mine, theirs = free_vars(one), free_vars(other)
        return tuple([a for a in self.axes if a in mine and a not in theirs and self.sizes[a] > 1])

    def loads(self) -> list[sc.Load]:
        """The operands of the epilogue besides the sum."""
        found = [node for node in post_order(self.value) if isinstance(node, sc.Load)]
        return [node for node in found if node.buffer is not self.reduced]


@lru_cache(maxsize=512)
def contraction(
    of: Stages, again: bool = False, other: bool = False, opened: bool = False
) -> Contraction | None:
    """The contraction of some stages, or None if schedules do not support them.

    Where either side of a product may be the weight, the `other` way round it is the left one.

    Its axes are in the order of the result: in which order a sum is made of its terms does not
    depend on the order of sums.  The epilogue reads neither data nor weight `again`, which may be
    copied to another place, if that is not allowed.  Axes of the result may be open if `opened`:
    both operands are read at these as they lie.
    """
    every = pairs(of) if all(isinstance(stage, Each) for stage in of.stages) else []
    if len(every) != 1:
        return None
    ((fold, epilogue),) = every
    body = fold.value
    if not isinstance(body, sc.Reduce) or body.combiner not in ("sum", "max", "min"):
        return None
    last = _epilogue(fold, epilogue)
    sizes: dict[sc.ScalarVar, int] = {}
    extents: dict[sc.ScalarVar, sc.Scalar] = {}
    for var, size in (
        *zip(fold.axes, fold.out.shape, strict=True),
        *zip(last.axes, last.shape, strict=True),
        *zip(body.axes, body.extents, strict=True),
    ):
        if (count := known(size)) is None and opened and var not in body.axes:
            count, extents[var] = USUAL_OPEN_SIZE, size
        if not count:
            return None
        sizes[var] = count
    known_sizes = {var: size for var, size in sizes.items() if var not in extents}
    if (product := product_of(body, known_sizes, other)) is None:
        return None
    data, guards, fill, weight = product
    if weight is not None and data.buffer is weight.buffer:
        return None
    if not all(says_inside(guard, data) for guard in guards) or not _is_affine(data, sizes):
        return None
    if weight is not None and fill.value != 0:
        return None
    for load in () if again else loads(last.value):
        if load.buffer is data.buffer or (weight is not None and load.buffer is weight.buffer):
            return None
    single = [each for each in body.axes if sizes[each] == 1]
    single = single[len(single) == len(body.axes) :]
    gone = [*single, *[axis for axis in fold.axes if axis not in last.axes]]
    return Contraction(
        inputs=of.inputs,
        axes=last.axes,
        k=tuple([each for each in body.axes if each not in single]),
        sizes={var: size for var, size in sizes.items() if var not in gone},
        data=(place := _without(data, gone)),
        weight=None if weight is None else _without(weight, gone),
        combiner=body.combiner,
        guards=_moved(guards, data, place),
        fill=fill,
        reduced=last.reduced,
        value=last.value,
        runs=body.runs,
        open=extents,
    )


@frozen(eq=False)
class _Last:
    """The epilogue of each element of a reduction, which is read from `reduced` at `axes`."""

    reduced: sc.Buffer
    axes: tuple[sc.ScalarVar, ...]
    shape: Index
    value: sc.Scalar


def _epilogue(fold: Each, epilogue: Each | None) -> _Last:
    """The epilogue of a reduction over the axes of that, in its own order."""
    if epilogue is None:
        whole = sc.Buffer(Names(fold).name("reduced"), fold.out.shape, fold.out.dtype)
        return _Last(whole, fold.axes, fold.out.shape, sc.Load(whole, fold.axes))
    (read,) = [load for load in loads(epilogue.value) if load.buffer is fold.out]
    back: dict[Term, Term] = {
        place: axis
        for place, axis in zip(read.indices, fold.axes, strict=True)
        if isinstance(place, sc.ScalarVar)
    }
    axes = tuple([back.get(axis, axis) for axis in epilogue.axes])
    reduced = sc.Buffer(fold.out.name, epilogue.out.shape, fold.out.dtype)
    value = substitute(
        with_element(epilogue.value, fold.out, sc.Load(reduced, epilogue.axes)), back
    )
    return _Last(reduced, axes, epilogue.out.shape, value)  # type: ignore[arg-type]  # variables and scalars stay such


def product_of(
    of: sc.Reduce, sizes: Mapping[sc.ScalarVar, int], other: bool = False
) -> tuple[sc.Load, tuple[sc.Scalar, ...], sc.Lit, sc.Load | None] | None:
    """The factors of a reduction: the data with its guards and padding value, and the weight.

    The weight is indexed directly by its own axes; the operands of a product may be in either
    order.
    """
    if not isinstance(of.body, sc.Mul) or of.combiner != "sum":
        data, guards, fill = _guarded(of.body)
        return None if data is None or other else (data, guards, fill, None)
    if other:
        both = [child for child in of.body._children if isinstance(child, sc.Load)]
        if len(both) != 2 or not all(_is_plain(load, sizes) for load in both):
            return None
        return both[1], (), sc.Lit(0, sc.dtype_of(both[1])), both[0]
    for left, right in ((of.body.left, of.body.right), (of.body.right, of.body.left)):
        if isinstance(right, sc.Load) and _is_plain(right, sizes):
            data, guards, fill = _guarded(left)
            if data is not None:
                return data, guards, fill, right
    return None


def _without(of: sc.Load, single: list[sc.ScalarVar]) -> sc.Load:
    """The load where some variables are 0, which is all they ever are."""
    where = dict.fromkeys(single, sc.index(0))
    return sc.Load(of.buffer, tuple([simple(substitute(index, where)) for index in of.indices]))


def _guarded(of: sc.Scalar) -> tuple[sc.Load | None, tuple[sc.Scalar, ...], sc.Lit]:
    """A possibly guarded load, its conditions, and the value elsewhere."""
    match of:
        case sc.Select(condition, sc.Load() as inside, sc.Lit() as fill):
            return inside, tuple(conjuncts(condition)), fill
        case sc.Load():
            return of, (), sc.Lit(0, sc.dtype_of(of))
        case _:
            return None, (), sc.Lit(0, sc.dtype_of(of))


def says_inside(condition: sc.Scalar, of: sc.Load) -> bool:
    """Whether a condition says that one of the indices of a load is inside."""
    match condition:
        case sc.Le(low, place) if low is sc.index(0):
            return place in of.indices
        case sc.Lt(place, size):
            return (place, size) in zip(of.indices, of.buffer.shape, strict=True)
        case _:
            return False


def _moved(guards: Sequence[sc.Scalar], of: sc.Load, to: sc.Load) -> tuple[sc.Scalar, ...]:
    """The guards of a load whose indices are written in another way."""
    scalars: list[sc.Scalar] = []
    for old, new, size in zip(of.indices, to.indices, of.buffer.shape, strict=True):
        both = {
            sc.Le(sc.index(0), old): sc.Le(sc.index(0), new),
            sc.Lt(old, size): sc.Lt(new, size),
        }
        scalars += [now for before, now in both.items() if before in guards]
    return tuple(scalars)


def _is_affine(of: sc.Load, sizes: Mapping[sc.ScalarVar, int]) -> bool:
    for place in of.indices:
        for atoms, _ in polynomial(place).values():
            if len(atoms) > 1 or any(atom not in sizes for atom in atoms):
                return False
    return True


def _is_plain(of: sc.Load, sizes: Mapping[sc.ScalarVar, int]) -> bool:
    """Whether a load is indexed by a distinct variable in each dim, over its whole extent."""
    variables = [index for index in of.indices if isinstance(index, sc.ScalarVar)]
    if len(set(variables)) != len(variables):
        return False
    return all(
        sizes.get(place) == known(size) if isinstance(place, sc.ScalarVar) else known(size) == 1
        for place, size in zip(of.indices, of.buffer.shape, strict=True)
    )


def lies_open(of: Contraction) -> bool:
    """Whether operands go through all of a dim along each open axis that they name."""
    return all(
        free_vars(place).isdisjoint(of.open)
        or (isinstance(place, sc.ScalarVar) and of.open[place] is size)
        for load in (of.data, of.weight) if load is not None
        for place, size in zip(load.indices, load.buffer.shape, strict=True)
    )  # fmt: skip


def stride(of: sc.Load, along: sc.ScalarVar) -> int:
    """How many bytes apart the elements are that neighbours along an axis read."""
    found, apart = 0, of.buffer.dtype.bytes
    for place, size in zip(reversed(of.indices), reversed(of.buffer.shape), strict=True):
        for atoms, factor in polynomial(place).values():
            if atoms == (along,):
                found += factor * apart
        apart *= known(size) or 1
    return found


# --- other shapes of the same memory --------------------------------------------------------------


def merged(of: Contraction, at: int = -2) -> Contraction | None:
    """The contraction with two adjacent axes merged, by default the last two, or None if they are
    not mergeable.

    x[n, c, i, j] * w[o, c]  -->  x[n, c, p] * w[o, c]
    """
    if len(of.axes) < 2 or of.guarded or of.weight is None:
        return None
    first = at % len(of.axes)
    i, j = of.axes[first : first + 2]
    if (i not in of.m and of.sizes[i] > 1) or j not in of.m:
        return None
    # Of an axis of one place that both sides have, the weight has that place.
    weight = substitute(of.weight, {i: sc.index(0)}) if of.sizes[i] == 1 else of.weight
    if _mentions(weight.indices, (i, j)):
        return None
    loads = [*of.loads(), of.data]
    views: dict[sc.Buffer, tuple[sc.Buffer, int]] = {}
    for load in loads:
        place = _beside(load, (i, j), of)
        if place is None and not _mentions(load.indices, (i, j)):
            continue
        if place is None:
            return None
        flat = _flat(load.buffer, place)
        if views.setdefault(load.buffer, (flat, place)) != (flat, place):
            return None
    if of.data.buffer not in views:
        return None
    if any(load.buffer in views and _beside(load, (i, j), of) is None for load in loads):
        return None
    views[of.reduced] = _flat(of.reduced, first), first
    whole = sc.ScalarVar(fresh(Name("p"), {each.name for each in of.sizes}), j.dtype)

    def viewed(node: Term) -> Term:
        if isinstance(node, sc.Load) and node.buffer in views:
            flat, place = views[node.buffer]
            return sc.Load(flat, (*node.indices[:place], whole, *node.indices[place + 2 :]))
        return node

    data, value = map_bottom_up(viewed, of.data), map_bottom_up(viewed, of.value)
    assert isinstance(data, sc.Load)
    assert isinstance(value, sc.Scalar)
    if i in free_vars(value) or j in free_vars(value):
        return None
    sizes_ = {var: size for var, size in of.sizes.items() if var not in (i, j)}
    open_ = {var: size for var, size in of.open.items() if var not in (i, j)}
    if len(open_) < len(of.open):
        open_[whole] = dim(of.extent(i) * of.extent(j))
    return evolve(
        of,
        inputs=tuple([views[buffer][0] if buffer in views else buffer for buffer in of.inputs]),
        axes=(*of.axes[:first], whole, *of.axes[first + 2 :]),
        sizes=sizes_ | {whole: of.sizes[i] * of.sizes[j]},
        open=open_,
        data=data,
        weight=weight,
        reduced=views[of.reduced][0],
        value=value,
    )


def flattened(of: Contraction) -> Contraction:
    """The contraction with all neighbouring axes as one that can be.

    x[n, i, j, c] * w[c, o]  -->  x[n, p, c] * w[c, o]
    """
    for at in range(len(of.axes) - 2, -1, -1):
        if of.axes[at] in of.m and (found := merged(of, at)) is not None:
            of = found
    return merged(of) or of


def _beside(of: sc.Load, pair: tuple[sc.ScalarVar, sc.ScalarVar], whole: Contraction) -> int | None:
    """Where a load has the whole of two axes side by side and nowhere else, None if it has not."""
    i, j = pair
    if j not in of.indices:
        return None
    place = of.indices.index(j) - 1
    if place < 0 or not (
        of.indices[place] is i or (whole.sizes[i] == 1 and of.indices[place] is sc.index(0))
    ):
        return None
    counts = [whole.extent(i), whole.extent(j)]
    rest = (*of.indices[:place], *of.indices[place + 2 :])
    return (
        place
        if counts == [*of.buffer.shape[place : place + 2]] and not _mentions(rest, pair)
        else None
    )


def _mentions(places: Index, variables: tuple[sc.ScalarVar, ...]) -> bool:
    return any(not free_vars(place).isdisjoint(variables) for place in places)


def _flat(of: sc.Buffer, place: int) -> sc.Buffer:
    rows, columns = of.shape[place : place + 2]
    shape = (*of.shape[:place], dim(rows * columns), *of.shape[place + 2 :])
    return sc.Buffer(of.name, shape, of.dtype)
