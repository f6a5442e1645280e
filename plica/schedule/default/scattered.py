"""Scattered terms: a reduction of those terms that name one's own place takes each to its place.

    y[p, j] = sum over k of (x[k, j] if i[k] == p else 0)
      -->  y[p, j] = 0                              for all
           for k: y[i[k], j] = y[i[k], j] + x[k, j]      where i[k] is a place

A guard that compares an axis of the result with something that does not depend on it says that all
but one of its places reduce nothing of a term.  So each term is looked at once, and not once for
each place.  A place joins its terms in the order in which they come.

The greatest number of a term that names a place is that of the last one.  What is made of it is
made of each of them in turn: what the last one stores is what stays.

    l[p] = max over k of (k if i[k] == p else none);  y[p, j] = x[l[p], j] if l[p] >= 0 else b[p, j]
      -->  y[p, j] = b[p, j]                        for all
           for k: y[i[k], j] = x[k, j]                   where i[k] is a place

>>> from plica.ir.loop.scalar import Lit
>>> from plica.ir.type.dtype import f32, i64
>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.tensor import buffer, reduce
>>> x, i = buffer("x", (9,), f32), buffer("i", (9,), i64)
>>> total = stage("y", (5,), lambda p: reduce(
...     "sum", (9,), lambda k: sc.Select(sc.Eq(i[k], p), x[k], Lit(0.0, f32))))
>>> made = scattered_form(stages((x, i), (total,)), Machine(512, 32))
>>> [type(each).__name__ for each in made.stages]
['ExternStage']
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce as joined
from itertools import permutations
from math import prod
from typing import Final

from attrs import evolve, frozen

from plica.analysis.index.context import EMPTY, conjuncts
from plica.analysis.index.simplify import simplify
from plica.core import Term, free_vars, map_bottom_up, substitute
from plica.ir.loop import scalar as sc
from plica.ir.loop.combiner import MEANING
from plica.ir.loop.stage import Each, ExternStage
from plica.ir.loop.stages import Names, Stages, loads, pairs, reductions, stages, with_element
from plica.ir.loop.statement import NOTHING, Bind, Branch, For, LoopKind, Stmt, Store, seq
from plica.ir.type import f32, known
from plica.schedule.default.machine import Machine

SHORTEST: Final = 8
"""Fewer neighbours are no vector: what part of one has stored is not at hand for the next."""

SHARED: Final = 1 << 15
"""Fewer terms than that are not worth waking other cores."""


@frozen(eq=False)
class _Scattered:
    """A reduction of terms that name their place along an axis: where, what, and when."""

    axis: sc.ScalarVar
    place: sc.Scalar
    value: sc.Scalar
    conditions: tuple[sc.Scalar, ...]


@frozen(eq=False)
class ScatterSteps:
    """What is done for scattered terms: every place begins, then each term goes to its place, then
    all that is held is made something of, if it is."""

    begin: Each
    terms: Stmt
    after: Each | None = None


def scattered_form(of: Stages, machine: Machine, *, free: bool = False) -> Stages | None:
    """Such stages with the loops they should have, None where they are others."""
    if of.dims or any(not known(size) for each in of.stages for size in each.outs[0].shape):
        return None
    if (found := scatter_steps(of, machine, free=free)) is None:
        return None
    names = Names(of)
    begin = _filled(found.begin, names)
    if found.after is None:
        return stages(of.inputs, (ExternStage((of.result,), seq(begin, found.terms)),))
    held, after = found.begin.out, _filled(found.after, names)
    made = ExternStage((held, of.result), seq(begin, found.terms, after))
    return stages(of.inputs, (made,), (held, of.result))


def scatter_steps(of: Stages, machine: Machine, *, free: bool = False) -> ScatterSteps | None:
    """What is done for such stages, of any size, None where they are others.

    What all terms of a place are joined to in the end it begins with, if their order is `free`.
    """
    every = pairs(of) if all(isinstance(each, Each) for each in of.stages) else []
    if len(every) != 1:
        return None
    ((fold, epilogue),) = every
    if (found := _scattered(fold)) is None:
        return None
    names = Names(of)
    first = _first(fold, epilogue) if free or _is_ordered(fold) else None
    if epilogue is not None and _tells_last(fold, found):
        return _last_terms(fold, epilogue, found, of.result, names, machine)
    if epilogue is None or first is not None:
        return _joined_terms(fold, found, of.result, names, machine, first)
    held = _kept(fold, names)
    terms = _joined_terms(fold, found, held, names, machine)
    last = with_element(epilogue.value, fold.out, sc.Load(held, _read(fold, epilogue).indices))
    return evolve(terms, after=Each(of.result, epilogue.axes, last))


def _read(fold: Each, epilogue: Each) -> sc.Load:
    """Where an epilogue reads a reduction."""
    (found,) = [load for load in loads(epilogue.value) if load.buffer is fold.out]
    return found


def _is_ordered(fold: Each) -> bool:
    """Whether its terms may be joined in any order, to the bit."""
    return isinstance(fold.value, sc.Reduce) and (
        fold.value.combiner in ("max", "min") or not sc.dtype_of(fold.value).is_float
    )


def _tells_last(fold: Each, found: _Scattered) -> bool:
    """Whether a reduction is the greatest number of those terms that name a place."""
    body = fold.value
    return isinstance(body, sc.Reduce) and body.combiner == "max" and body.axes == (found.value,)


def _first(fold: Each, epilogue: Each | None) -> sc.Scalar | None:
    """What an epilogue joins with the terms of its own place, None where it is no such one."""
    if epilogue is None or not isinstance(fold.value, sc.Reduce):
        return None
    read = _read(fold, epilogue)
    if read.indices != epilogue.axes:
        return None
    _, join = MEANING[fold.value.combiner]
    parts = [each for each in epilogue.value._children if isinstance(each, sc.Scalar)]
    own: dict[Term, Term] = dict(zip(epilogue.axes, fold.axes, strict=True))
    for other, total in permutations(parts, 2):
        if total is read and join(other, total) is epilogue.value:
            return substitute(other, own)
    return None


def _kept(of: Each, names: Names) -> sc.Buffer:
    return sc.Buffer(names.name("held"), of.out.shape, sc.dtype_of(of.value))


def _scattered(of: Each) -> _Scattered | None:
    """What is scattered by a stage, if anything is."""
    body = of.value
    if not isinstance(body, sc.Reduce) or body.runs or reductions(body.body):
        return None
    start, _ = MEANING[body.combiner]
    neutral = start(sc.dtype_of(body))
    value, guards = body.body, list[sc.Scalar]()
    while isinstance(value, sc.Select) and value.orelse is neutral:
        guards += conjuncts(value.condition)
        value = value.then
    for each in guards:
        if not isinstance(each, sc.Eq):
            continue
        rest = tuple([other for other in guards if other is not each])
        for axis, place in ((each.left, each.right), (each.right, each.left)):
            if not isinstance(axis, sc.ScalarVar) or axis not in of.axes:
                continue
            if any(axis in free_vars(e) for e in (place, value, *rest)):
                continue
            if not free_vars(place).isdisjoint(body.axes):
                return _Scattered(axis, place, value, rest)
    return None


def _joined_terms(  # noqa: PLR0917  # what is scattered, and where
    fold: Each,
    found: _Scattered,
    out: sc.Buffer,
    names: Names,
    machine: Machine,
    first: sc.Scalar | None = None,
) -> ScatterSteps:
    """Every place begins with nothing, or what comes first, then each term joins its place."""
    assert isinstance(fold.value, sc.Reduce)
    start, join = MEANING[fold.value.combiner]
    nothing = start(sc.dtype_of(fold.value))
    begin = Each(out, fold.axes, nothing if first is None else first)
    step = Store(out, fold.axes, join(sc.Load(out, fold.axes), found.value))
    return ScatterSteps(begin, _terms(fold, found, step, names, machine))


def _last_terms(  # noqa: PLR0917  # what is scattered, and where
    fold: Each, epilogue: Each, found: _Scattered, out: sc.Buffer, names: Names, machine: Machine
) -> ScatterSteps:
    """Every place begins as one that no term names, then each term puts what is made of it."""
    assert isinstance(fold.value, sc.Reduce)
    start, _ = MEANING[fold.value.combiner]
    ((number, count),) = zip(fold.value.axes, fold.value.extents, strict=True)
    none = with_element(epilogue.value, fold.out, start(sc.dtype_of(fold.value)))
    begin = Each(out, epilogue.axes, _chosen(simplify(none, EMPTY)))
    own: dict[Term, Term] = {axis: sc.index(0) for axis in epilogue.axes}
    own |= dict(zip(_read(fold, epilogue).indices, fold.axes, strict=True))
    one = simplify(with_element(epilogue.value, fold.out, number), EMPTY.loop(number, count))
    step = substitute(Store(out, epilogue.axes, _chosen(one)), own)
    return ScatterSteps(begin, _terms(fold, found, step, names, machine))


def _chosen(of: sc.Scalar) -> sc.Scalar:
    """A term whose choices are made where their conditions are known."""

    def one(node: Term) -> Term:
        if not isinstance(node, sc.Select) or not isinstance(node.condition, sc.Lit):
            return node
        return node.then if node.condition.value else node.orelse

    return map_bottom_up(one, of)


def _terms(fold: Each, found: _Scattered, store: Store, names: Names, machine: Machine) -> Stmt:
    """What is stored for each term, by the axes of a reduction, at the place that it names."""
    body = fold.value
    assert isinstance(body, sc.Reduce)
    sizes = dict(zip(fold.axes, fold.out.shape, strict=True))
    sizes |= dict(zip(body.axes, body.extents, strict=True))
    asked = {each for term in (found.place, *found.conditions) for each in free_vars(term)}
    others = [each for each in fold.axes if each is not found.axis]
    outer = [each for each in others if each in asked]
    inner = [each for each in others if each not in asked]
    place = names.var("place")
    step: Stmt = substitute(store, {found.axis: place})
    if inner:
        step = _along(inner[-1], sizes[inner[-1]], step, names, machine)
    for axis in reversed(inner[:-1]):
        step = For(axis, sizes[axis], "serial", step)
    inside = [*found.conditions, sc.Le(sc.index(0), place), sc.Lt(place, sizes[found.axis])]
    step = Bind(place, found.place, Branch(_all(inside), step, NOTHING))
    terms = prod([known(size) or 0 for axis, size in sizes.items() if axis is not found.axis])
    shares = machine.cores > 1 and terms >= SHARED
    for axis in reversed((*outer, *body.axes)):
        kind: LoopKind = "parallel" if shares and outer and axis is outer[0] else "serial"
        step = For(axis, sizes[axis], kind, step)
    return step


def _along(axis: sc.ScalarVar, size: sc.Scalar, step: Stmt, names: Names, machine: Machine) -> Stmt:
    """A step for each place of a row: vectors of these, and one by one what they leave of a row
    that is open."""
    if (count := known(size)) is not None:
        return For(axis, size, "vectorized" if count >= SHORTEST else "serial", step)
    lanes = machine.lanes(f32)
    strip, lane = names.var("strip"), names.var("lane")
    whole = size // lanes
    vector = For(
        lane, sc.index(lanes), "vectorized", substitute(step, {axis: strip * lanes + lane})
    )
    rest = substitute(step, {axis: whole * lanes + lane})
    return seq(For(strip, whole, "serial", vector), For(lane, size - whole * lanes, "serial", rest))


def _all(conditions: Iterable[sc.Scalar]) -> sc.Scalar:
    return joined(sc.And, conditions)


def _filled(of: Each, names: Names) -> Stmt:
    """The loops of a stage that has nothing to sum, by axes of its own."""
    own: dict[Term, Term] = {axis: names.var("j") for axis in of.axes}
    step: Stmt = substitute(Store(of.out, of.axes, of.value), own)
    for at, (axis, size) in reversed(list(enumerate(zip(of.axes, of.out.shape, strict=True)))):
        kind: LoopKind = "vectorized" if at == len(of.axes) - 1 else "serial"
        step = For(own[axis], size, kind, step)  # type: ignore[arg-type]  # variables for variables
    return step
