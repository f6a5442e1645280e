"""Unit axes: axes of length 1, and the dims they go along, are left out where something precedes
them.

    m[i, u < 1] = sum(x[i, k, u] for k)              -->   m[i] = sum(x[i, k] for k)
    m[i] = sum(x[i, k, u] for k, for u in range(1))  -->   m[i] = sum(x[i, k] for k)

What a row is, and whether it is contiguous, is then seen by those who look at the last axis.  A dim
is left out where all that read it are at an axis of length 1 or at 0; those before the first longer
one stay, as loops over them cost nothing.  Where windows of a sum slide all stay: they may be that
short.

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

from collections.abc import Sequence

from plica.core import Term, map_bottom_up, post_order, substitute
from plica.ir.loop import Buffer, Each, Load, Reduce, ScalarVar, Stages, index, loads, reductions
from plica.ir.loop.stages import stages
from plica.ir.type import known


def without_units(of: Stages, free: bool = False) -> Stages:
    """The stages without such axes; those with open sizes as they are.

    The runs of a sum depend on its axes, so these stay unless the order of terms is `free`.
    """
    every = [each for each in of.stages if isinstance(each, Each)]
    if of.dims or len(every) != len(of.stages) or not all(map(_is_plain, every)):
        return of
    units = [_units(each, free) for each in every]
    gone = {each: _gone(each, every, units) for each in (*of.inputs, *of.made)}
    if not any(gone.values()) and not any(_terms(*each) for each in zip(every, units, strict=True)):
        return of
    views = {each: _view(each, at) for each, at in gone.items()}
    made = [_stage(each, own, gone, views) for each, own in zip(every, units, strict=True)]
    return stages(
        tuple([views[each] for each in of.inputs]),
        tuple(made),
        tuple([views[each] for each in of.outputs]),
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
        isinstance(each, ScalarVar) or known(each) is not None
        for load in loads(of.value)
        for each in load.indices
    )


def _gone(
    of: Buffer, every: Sequence[Each], units: Sequence[frozenset[ScalarVar]]
) -> frozenset[int]:
    """The dims of a tensor that are left out."""
    sizes = [known(size) for size in of.shape]
    first = next((at for at, size in enumerate(sizes) if size != 1), len(sizes))
    found = {at for at, size in enumerate(sizes) if size == 1 and at > first and not of.strides}
    for each, own in zip(every, units, strict=True) if found else ():
        if each.out is of:
            found -= {at for at in found if each.axes[at] not in own}
        for load in loads(each.value):
            if load.buffer is of:
                places = {at: load.indices[at] for at in found}
                found -= {n for n, e in places.items() if e not in own and e is not index(0)}
    return frozenset(found)


def _terms(of: Each, units: frozenset[ScalarVar]) -> bool:
    """Whether a reduction has terms to leave out."""
    return any(_kept(each, units) != each.axes for each in reductions(of.value))


def _kept(of: Reduce, units: frozenset[ScalarVar]) -> tuple[ScalarVar, ...]:
    """The axes of a reduction that stay: one at least."""
    return tuple([each for each in of.axes if each not in units]) or of.axes[-1:]


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
