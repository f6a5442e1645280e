"""Collapse: axes that all tensors walk through together become one.

    y[n, c, i, j] = max(x[n, c, i, j] * s[c], 0)   -->   y[n, c, p] = max(x[n, c, p] * s[c], 0)
    m[c] = sum(x[c, i, j] for i, j)                -->   m[c] = sum(x[c, p] for p)

Rows are then as long as they can be: vectors are full, sums are sums of rows, and a batch of matrix
products with one matrix is one product.  The tensors are the same memory, seen in another shape.

Two adjacent axes can be fused if every tensor indexed by one of them is indexed by both, in
adjacent dims of exactly their sizes. Conflicts between pairs are resolved by removing pairs until
all remaining ones agree. Axes of length 1 are dropped before.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.tensor import buffer, reduce
>>> x, s = buffer("x", (2, 3, 4, 5), f32), buffer("s", (3,), f32)
>>> scaled = stage("y", (2, 3, 4, 5), lambda n, c, i, j: x[n, c, i, j] * s[c])
>>> print(collapsed(stages((x, s), (scaled,))))
y[i < 2, i_1 < 3, i_2 < 20] = x[i, i_1, i_2] * s[i_1]
>>> mean = stage("m", (2, 3), lambda n, c: reduce("sum", (4, 5), lambda i, j: x[n, c, i, j]))
>>> print(collapsed(stages((x,), (mean,))))
m[i < 6] = sum(x[i, k] for k in range(20))

Law: `evaluate_stages` gives the same elements, and each sum has its terms in the same order.

Unit axes: axes of length 1, and the dims they go along, are left out where something precedes
them.

    m[i, u < 1] = sum(x[i, k, u] for k)              -->   m[i] = sum(x[i, k] for k)
    m[i] = sum(x[i, k, u] for k, for u in range(1))  -->   m[i] = sum(x[i, k] for k)

Code that inspects the last axis then sees the contiguous rows. A dim is dropped if all reads of it
use an axis of length 1 or index 0; those before the first longer one stay, because loops over them
cost nothing. All axes of window sums stay, because windows may be that short.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.tensor import buffer, reduce
>>> x = buffer("x", (4, 5, 1), f32)
>>> most = stage("m", (4, 1), lambda i, u: reduce("max", (5,), lambda k: x[i, k, u]))
>>> print(without_units(stages((x,), (most,))))
m[i < 4] = max(x[i, k] for k in range(5))

Law: `evaluate_stages` gives the same elements, and each sum has its terms in the same order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import TypeAlias, TypeVar

from attrs import frozen

from plica.core import Term, free_vars, map_bottom_up, post_order, substitute
from plica.ir.loop import index
from plica.ir.loop.scalar import Buffer, Load, Reduce, Scalar, ScalarVar
from plica.ir.loop.stage import Each, Scan
from plica.ir.loop.stages import Stages, as_elements, as_scan, loads, reductions, stages
from plica.ir.type import known, product


def without_units(of: Stages, free: bool = False) -> Stages:
    """The stages without unit axes; open sizes are unchanged.

    The runs of a sum depend on its axes, so these stay unless the order of terms is `free`.
    """
    every = [stage for stage in of.stages if isinstance(stage, Each)]
    if of.dims or len(every) != len(of.stages) or not all(map(_is_plain, every)):
        return of
    units = [_units(stage, free) for stage in every]
    gone = {buffer: _gone(buffer, every, units) for buffer in (*of.inputs, *of.made)}
    if not any(gone.values()) and not any(_terms(*each) for each in zip(every, units, strict=True)):
        return of
    views = {buffer: _view(buffer, at) for buffer, at in gone.items()}
    made = [_stage(stage, own, gone, views) for stage, own in zip(every, units, strict=True)]
    return stages(
        tuple([views[buffer] for buffer in of.inputs]),
        tuple(made),
        tuple([views[output] for output in of.outputs]),
    )


def _units(of: Each, free: bool) -> frozenset[ScalarVar]:
    """The axes of length 1 that say nothing but where tensors are read."""
    found = {a for a, n in zip(of.axes, of.out.shape, strict=True) if known(n) == 1}
    for each in reductions(of.value):
        if free or not each.runs:
            found |= {a for a, n in zip(each.axes, each.extents, strict=True) if known(n) == 1}
    used = {
        kid
        for node in post_order(of.value)
        if not isinstance(node, Load | Reduce)
        for kid in node._children
    }
    return frozenset(found - used)


def _is_plain(of: Each) -> bool:
    """Whether all is read at axes or at fixed places, or nothing is summed."""
    return not reductions(of.value) or all(
        isinstance(scalar, ScalarVar) or known(scalar) is not None
        for load in loads(of.value)
        for scalar in load.indices
    )


def _gone(
    of: Buffer, every: Sequence[Each], units: Sequence[frozenset[ScalarVar]]
) -> frozenset[int]:
    """The dims of a tensor that are left out."""
    sizes = [known(size) for size in of.shape]
    first = next((at for at, size in enumerate(sizes) if size != 1), len(sizes))
    found = {at for at, size in enumerate(sizes) if size == 1 and at > first and not of.strides}
    for stage, own in zip(every, units, strict=True) if found else ():
        if stage.out is of:
            found -= {at for at in found if stage.axes[at] not in own}
        for load in loads(stage.value):
            if load.buffer is of:
                places = {at: load.indices[at] for at in found}
                found -= {n for n, e in places.items() if e not in own and e is not index(0)}
    return frozenset(found)


def _terms(of: Each, units: frozenset[ScalarVar]) -> bool:
    """Whether a reduction has terms to leave out."""
    return any(_kept(reduction, units) != reduction.axes for reduction in reductions(of.value))


def _kept(of: Reduce, units: frozenset[ScalarVar]) -> tuple[ScalarVar, ...]:
    """The remaining axes of a reduction: at least one."""
    return tuple([axis for axis in of.axes if axis not in units]) or of.axes[-1:]


def _view(of: Buffer, gone: frozenset[int]) -> Buffer:
    """A tensor in its new shape."""
    if not gone:
        return of
    shape = tuple([size for at, size in enumerate(of.shape) if at not in gone])
    return Buffer(of.name, shape, of.dtype, of.scope, of.strides, of.align)


def _stage(
    of: Each,
    units: frozenset[ScalarVar],
    gone: dict[Buffer, frozenset[int]],
    views: dict[Buffer, Buffer],
) -> Each:
    """A stage over fewer axes."""
    out: frozenset[int] = gone[of.out]
    axes = tuple([axis for at, axis in enumerate(of.axes) if at not in out])

    def change(node: Term) -> Term:
        match node:
            case Load(buffer, indices) if gone.get(buffer):
                kept = tuple([e for at, e in enumerate(indices) if at not in gone[buffer]])
                return Load(views[buffer], kept)
            case Reduce(combiner, terms, extents, body, runs):
                kept = _kept(node, units)
                if kept == terms:
                    return node
                sizes = tuple([n for a, n in zip(terms, extents, strict=True) if a in kept])
                left = {axis: index(0) for axis in terms if axis not in kept}
                inside = substitute(body, dict(left))
                return Reduce(combiner, kept, sizes, inside, runs)
            case _:
                return node

    value = map_bottom_up(change, of.value)
    value = substitute(value, {axis: index(0) for axis in of.axes if axis not in axes})
    return Each(views[of.out], axes, value)


Pair: TypeAlias = "tuple[int, ScalarVar, ScalarVar]"  # neighbouring axes of a stage, by its number
Place: TypeAlias = "tuple[Buffer, int]"  # a dim of a tensor, and the next
Lengths: TypeAlias = Mapping[ScalarVar, Scalar]  # how long each axis of a stage is
T = TypeVar("T")


@lru_cache(maxsize=512)
def collapsed(of: Stages, free: bool = False, opened: bool = False) -> Stages:
    """The stages with as few axes as they can have; those with open sizes only if `opened`.

    The runs of a sum depend on its axes, so these stay separate unless the order of terms is
    `free`.
    """
    if (of.dims and not opened) or not all(isinstance(stage, Each | Scan) for stage in of.stages):
        return of
    if any(isinstance(stage, Scan) for stage in of.stages):
        plain = _collapsed(as_elements(of), free)
        return stages(plain.inputs, map(as_scan, plain.stages), plain.outputs)
    return _collapsed(of, free)


def _collapsed(of: Stages, free: bool) -> Stages:
    """The same of stages of elements."""
    of = without_units(of, free)
    every = [stage for stage in of.stages if isinstance(stage, Each)]
    lengths = [_lengths(stage) for stage in every]
    if None in lengths:
        return of
    agreement = _agreement(of, every, [length or {} for length in lengths], free)
    if not agreement.pairs:
        return of
    views = {buffer: agreement.view(buffer) for buffer in (*of.inputs, *of.made)}
    made = tuple([agreement.stage(at, stage, views) for at, stage in enumerate(every)])
    return stages(
        tuple([views[buffer] for buffer in of.inputs]),
        made,
        tuple([views[output] for output in of.outputs]),
    )


@frozen(eq=False)
class _Agreement:
    """The pairs of axes and of dims that become one."""

    pairs: frozenset[Pair]
    places: frozenset[Place]

    def view(self, of: Buffer) -> Buffer:
        """A tensor in its new shape."""
        sizes = [_product([of.shape[at] for at in run]) for run in self.dims(of)]
        return Buffer(of.name, tuple(sizes), of.dtype, of.scope, of.strides, of.align)

    def dims(self, of: Buffer) -> list[list[int]]:
        """The dims of a tensor, those that become one together."""
        return _runs(range(len(of.shape)), lambda at, _: (of, at) in self.places)

    def axes(self, number: int, of: Iterable[ScalarVar]) -> list[list[ScalarVar]]:
        """Axes of a stage, those that become one together."""
        return _runs(of, lambda u, v: (number, u, v) in self.pairs)

    def stage(self, number: int, of: Each, views: Mapping[Buffer, Buffer]) -> Each:
        """A stage over fewer axes: the first of the fused axes represents all."""

        def change(node: Term) -> Term:
            match node:
                case Load(buffer, indices):
                    places = [indices[run[0]] for run in self.dims(buffer)]
                    return Load(views.get(buffer, buffer), tuple(places))
                case Reduce(combiner, terms, extents, body, runs):
                    together = self.axes(number, terms)
                    size = dict(zip(terms, extents, strict=True))
                    long = tuple([_product([size[var] for var in few]) for few in together])
                    axes = tuple([few[0] for few in together])
                    return Reduce(combiner, axes, long, body, runs)
                case _:
                    return node

        value = map_bottom_up(change, of.value)
        return Each(views[of.out], tuple([run[0] for run in self.axes(number, of.axes)]), value)


def _product(sizes: list[Scalar]) -> Scalar:
    return sizes[0] if len(sizes) == 1 else product(sizes)


def _runs(of: Iterable[T], joins: Callable[[T, T], bool]) -> list[list[T]]:
    """Neighbours that belong together."""
    found: list[list[T]] = []
    for each in of:
        if found and joins(found[-1][-1], each):
            found[-1].append(each)
        else:
            found.append([each])
    return found


def _lengths(of: Each) -> Lengths | None:
    """The length of each axis of a stage; None if a name has two lengths."""
    found: dict[ScalarVar, Scalar] = {}
    for axes, shape in (
        (of.axes, of.out.shape),
        *[(reduction.axes, reduction.extents) for reduction in reductions(of.value)],
    ):
        for axis, size in zip(axes, shape, strict=True):
            if found.setdefault(axis, size) is not size:
                return None
    return found


# --- which pairs agree ----------------------------------------------------------------------------


def _agreement(whole: Stages, every: list[Each], lengths: list[Lengths], free: bool) -> _Agreement:
    """The most pairs of axes and of dims that agree with one another."""
    pairs = {
        (number, u, v)
        for number, stage in enumerate(every)
        for axes in _boxes(stage, apart=not free)
        for u, v in pairwise(axes)
        if not {known(lengths[number][var]) for var in (u, v)} & {0, 1}  # nothing is gained
        and not _stands_alone(stage.value, (u, v))
    }
    places = {
        (buffer, at)
        for buffer in (*whole.inputs, *whole.made)
        for at in range(len(buffer.shape) - 1)
        if not buffer.strides
    }
    while True:
        wrong = [place for place in places if not _is_one(place, every, pairs, lengths)]
        places.difference_update(wrong)
        apart = [pair for pair in pairs if not _is_together(pair, every[pair[0]], places)]
        pairs.difference_update(apart)
        if not wrong and not apart:
            return _Agreement(frozenset(pairs), frozenset(places))


def _boxes(of: Each, *, apart: bool = False) -> list[tuple[ScalarVar, ...]]:
    """The axes of a stage and those of each of its reductions; with `apart`, without those
    in runs."""
    found = reductions(of.value)
    return [of.axes, *[reduction.axes for reduction in found if not (apart and reduction.runs)]]


def _is_one(place: Place, every: list[Each], pairs: set[Pair], lengths: list[Lengths]) -> bool:
    """Whether all that read or write two dims of a tensor go through them as through one."""
    of, at = place
    sizes = [*of.shape[at : at + 2]]
    for number, each in enumerate(every):
        ways = [each.axes[at : at + 2]] if each.out is of else []
        ways += [load.indices[at : at + 2] for load in loads(each.value) if load.buffer is of]  # type: ignore[misc]  # those that are no pair are found below
        for way in ways:
            if (number, *way) not in pairs or [lengths[number][axis] for axis in way] != sizes:
                return False
    return True


def _is_together(pair: Pair, of: Each, places: set[Place]) -> bool:
    """Whether two axes of a stage stand only in neighbouring dims that become one."""
    _, u, v = pair
    for axes in _boxes(of):
        if (u in axes or v in axes) and (u, v) not in pairwise(axes):
            return False
    if u in of.axes and (of.out, of.axes.index(u)) not in places:
        return False
    for load in loads(of.value):
        for at, index_ in enumerate(load.indices):
            terms = free_vars(index_)
            if u in terms and ((load.buffer, at) not in places or load.indices[at + 1] is not v):
                return False
            if v in terms and (not at or load.indices[at - 1] is not u):
                return False
    return True


def _stands_alone(of: Scalar, axes: tuple[ScalarVar, ScalarVar]) -> bool:
    """Whether an axis is used for something else than to say where a tensor is read."""
    stack: list[Term] = [of]
    seen: set[Term] = set()
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen.add(node)
        if node in axes:
            return True
        match node:
            case Load(_, indices):
                stack.extend([scalar for scalar in indices if not isinstance(scalar, ScalarVar)])
            case Reduce():
                stack.append(node.body)
            case _:
                stack.extend(node._children)
    return False
