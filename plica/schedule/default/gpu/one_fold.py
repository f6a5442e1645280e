"""A single reduction on a GPU: stages as one fold of terms, and its epilogue.

    held[j] = sum over k of x[k, j]                 body   x[k, j]           what is joined
    y[j]    = held[j] * 2                   -->     value  held[j] * 2       what is made of it

Which axes are cut, and how, is said by those who know whether terms are neighbours in memory
or results are (`plica.schedule.default.gpu.fold_form`).

>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.stages import stages
>>> from plica.ir.loop.tensor import buffer, reduce
>>> from plica.ir.type.dtype import f32
>>> x = buffer("x", (8192, 256), f32)
>>> total = stage("y", (256,), lambda j: reduce("sum", (8192,), lambda k: x[k, j]))
>>> of = stages((x,), (total,))
>>> found = one_fold(of, Names(of))
>>> [found.sizes[axis] for axis in (*found.wide, *found.row)]
[256, 8192]
"""

from __future__ import annotations

from collections.abc import Mapping

from attrs import frozen

from plica.core import Term, free_vars, substitute
from plica.ir.loop import Each, Names, Stages, loads, reductions, scalar as sc
from plica.ir.loop.stages import inlined
from plica.ir.type import known


@frozen(eq=False)
class OneFold:
    """Stages with one reduction, in the axes of their result and in those of the terms."""

    total: Each
    body: sc.Scalar  # a term
    value: sc.Scalar  # the epilogue of the total
    last: Each
    row: tuple[sc.ScalarVar, ...]  # axes of the terms
    sizes: Mapping[sc.ScalarVar, int]

    @property
    def wide(self) -> list[sc.ScalarVar]:
        """Axes of the result that are longer than 1."""
        return [axis for axis in self.last.axes if self.sizes[axis] != 1]

    @property
    def read(self) -> list[sc.Load]:
        """What differs from term to term."""
        return [load for load in loads(self.body) if not free_vars(load).isdisjoint(self.row)]


def one_fold(of: Stages, names: Names) -> OneFold | None:
    """Stages as one reduction and its epilogue, or None."""
    every = [stage for stage in of.stages if isinstance(stage, Each)]
    folds = [stage for stage in every if isinstance(stage.value, sc.Reduce)]
    if len(every) != len(of.stages) or of.outputs != (every[-1].out,) or len(folds) != 1:
        return None
    (total,), last = folds, every[-1]
    fold = total.value
    assert isinstance(fold, sc.Reduce)
    others = [fold.body, *[stage.value for stage in every if stage is not total]]
    if fold.runs or any(reductions(scalar) for scalar in others):
        return None
    plain = {stage.out: stage for stage in every if stage is not total and stage is not last}
    sizes = {axis: known(n) or 0 for axis, n in zip(last.axes, last.out.shape, strict=True)}
    value = last.value if last is not total else sc.Load(total.out, last.axes)
    value = computed_there(value, plain)
    places = {load.indices for load in loads(value) if load.buffer is total.out}
    if len(places) != 1:
        return None
    (place,) = places
    own = [scalar for scalar in place if not isinstance(scalar, sc.Lit)]
    wide = [axis for axis in last.axes if sizes[axis] != 1]
    if [each for each in own if sizes.get(each, 0) != 1] != wide:  # type: ignore[call-overload]  # others are no axes
        return None
    extents = [known(size) or 0 for size in fold.extents]
    terms = [names.var("k") for _ in extents]
    sizes |= dict(zip(terms, extents, strict=True))
    at: dict[Term, Term] = {
        **dict(zip(total.axes, place, strict=True)),
        **{axis: placed(own, sizes) for axis, own in zip(fold.axes, terms, strict=True)},
    }
    body = computed_there(substitute(fold.body, at), plain)
    body = substitute(body, {axis: sc.index(0) for axis in last.axes if sizes[axis] == 1})
    row = tuple([term for term in terms if sizes[term] > 1])
    if not row or not all(sizes.values()) or any(e.buffer is total.out for e in loads(body)):
        return None
    return OneFold(total, body, value, last, row, sizes)


def computed_there(value: sc.Scalar, plain: Mapping[sc.Buffer, Each]) -> sc.Scalar:
    """A value that reads none of some stages, nor what these read of one another."""
    for _ in plain:
        value = inlined(value, plain)
    return value


def placed(axis: sc.ScalarVar, sizes: Mapping[sc.ScalarVar, int]) -> sc.Scalar:
    """Where an axis is: at zero if it has one place."""
    return axis if sizes[axis] != 1 else sc.index(0)
