"""Scattered terms: a reduction over the terms with a given index, as a scatter.

    y[p, j] = sum over k of (x[k, j] if i[k] == p else 0)
      -->  y[p, j] = 0                              for all
           for k: y[i[k], j] = y[i[k], j] + x[k, j]      where i[k] is a place

A guard that compares a result axis with a value independent of it selects one index per term. So
each term is visited once, not once per index. Terms with equal indices are combined in order.

The largest number of a term with an index is that of the last one. Its epilogue is applied to each
in turn: the last store remains.

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
>>> print(scattered_form(stages((x, i), (total,))))
y[j < 5] = 0.0, then y[i[k]] = y[i[k]] + x[k] if 0 <= i[k] and i[k] < 5 for k < 9
"""

from __future__ import annotations

from functools import reduce as joined
from itertools import permutations
from math import prod
from typing import Final

from attrs import frozen

from plica.analysis.index.context import EMPTY, conjuncts
from plica.analysis.index.simplify import simplify
from plica.analysis.site import map_of
from plica.core import Term, free_vars, map_bottom_up, substitute
from plica.ir.loop import scalar as sc
from plica.ir.loop.combiner import MEANING
from plica.ir.loop.stage import Each, Scatter
from plica.ir.loop.stages import Names, Stages, loads, pairs, reductions, stages, with_element
from plica.ir.loop.statement import Block, Branch, Kernel, Store
from plica.ir.type import known
from plica.schedule import primitive as st
from plica.schedule.default.general_schedule import block_schedule
from plica.schedule.default.machine import Machine
from plica.schedule.default.nest import opened
from plica.schedule.do import Body, DoBlock as Do, do

MIN_LANES: Final = 8
"""Fewer neighbours are no vector: what part of one has stored is not at hand for the next."""

MIN_TERMS_TO_SHARE: Final = 1 << 15  # fewer terms than that are not worth waking other cores


@frozen(eq=False)
class _Scattered:
    """A reduction of terms that name their place along an axis: where, what, and when."""

    axis: sc.ScalarVar
    place: sc.Scalar
    value: sc.Scalar
    conditions: tuple[sc.Scalar, ...]


def scattered_form(of: Stages, *, free: bool = False) -> Stages | None:
    """Such stages as a scatter, and its epilogue, if it is separate; None for other stages.

    What all terms of a place are joined to in the end it begins with, if their order is `free`.
    """
    every = pairs(of) if all(isinstance(stage, Each) for stage in of.stages) else []
    if len(every) != 1:
        return None
    ((fold, epilogue),) = every
    if (scattered := _scattered(fold)) is None:
        return None
    names = Names(of)
    first = _first(fold, epilogue) if free or _is_ordered(fold) else None
    if epilogue is not None and _tells_last(fold, scattered):
        return stages(of.inputs, (_last_terms(fold, epilogue, scattered, of.result, names),))
    if epilogue is None or first is not None:
        return stages(of.inputs, (_joined_terms(fold, scattered, of.result, names, first),))
    held = sc.Buffer(names.name("held"), fold.out.shape, sc.dtype_of(fold.value))
    terms = _joined_terms(fold, scattered, held, names)
    last = with_element(epilogue.value, fold.out, sc.Load(held, _read(fold, epilogue).indices))
    after = Each(of.result, epilogue.axes, last)
    return stages(of.inputs, (terms, after), (held, of.result))


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
    """The initial value that an epilogue adds to the terms of its index, or None."""
    if epilogue is None or not isinstance(fold.value, sc.Reduce):
        return None
    read = _read(fold, epilogue)
    if read.indices != epilogue.axes:
        return None
    _, join = MEANING[fold.value.combiner]
    parts = [child for child in epilogue.value._children if isinstance(child, sc.Scalar)]
    own: dict[Term, Term] = dict(zip(epilogue.axes, fold.axes, strict=True))
    for other, total in permutations(parts, 2):
        if total is read and join(other, total) is epilogue.value:
            return substitute(other, own)
    return None


def _scattered(of: Each) -> _Scattered | None:
    """The scatter of a stage, or None."""
    body = of.value
    if not isinstance(body, sc.Reduce) or body.runs or reductions(body.body):
        return None
    start, _ = MEANING[body.combiner]
    neutral = start(sc.dtype_of(body))
    value, guards = body.body, list[sc.Scalar]()
    while isinstance(value, sc.Select) and value.orelse is neutral:
        guards += conjuncts(value.condition)
        value = value.then
    for guard in guards:
        if not isinstance(guard, sc.Eq):
            continue
        rest = tuple([other for other in guards if other is not guard])
        for axis, place in ((guard.left, guard.right), (guard.right, guard.left)):
            if not isinstance(axis, sc.ScalarVar) or axis not in of.axes:
                continue
            if any(axis in free_vars(e) for e in (place, value, *rest)):
                continue
            if not free_vars(place).isdisjoint(body.axes):
                return _Scattered(axis, place, value, rest)
    return None


def _joined_terms(
    fold: Each, found: _Scattered, out: sc.Buffer, names: Names, first: sc.Scalar | None = None
) -> Scatter:
    """Every element starts with the initial value, then each term is added to its element."""
    assert isinstance(fold.value, sc.Reduce)
    start, join = MEANING[fold.value.combiner]
    nothing = start(sc.dtype_of(fold.value))
    value = join(sc.Load(out, fold.axes), found.value)
    begin = Each(out, fold.axes, nothing if first is None else first)
    return _scatter(fold, found, begin, Store(out, fold.axes, value), names)


def _last_terms(
    fold: Each, epilogue: Each, found: _Scattered, out: sc.Buffer, names: Names
) -> Scatter:
    """Every element starts as without terms, then each term writes its value."""
    assert isinstance(fold.value, sc.Reduce)
    start, _ = MEANING[fold.value.combiner]
    ((number, count),) = zip(fold.value.axes, fold.value.extents, strict=True)
    none = with_element(epilogue.value, fold.out, start(sc.dtype_of(fold.value)))
    begin = Each(out, epilogue.axes, _chosen(simplify(none, EMPTY)))
    own: dict[Term, Term] = {axis: sc.index(0) for axis in epilogue.axes}
    own |= dict(zip(_read(fold, epilogue).indices, fold.axes, strict=True))
    one = simplify(with_element(epilogue.value, fold.out, number), EMPTY.loop(number, count))
    store = substitute(Store(out, epilogue.axes, _chosen(one)), own)
    return _scatter(fold, found, begin, store, names)


def _chosen(of: sc.Scalar) -> sc.Scalar:
    """A term whose choices are made where their conditions are known."""

    def one(node: Term) -> Term:
        if not isinstance(node, sc.Select) or not isinstance(node.condition, sc.Lit):
            return node
        return node.then if node.condition.value else node.orelse

    return map_bottom_up(one, of)


def _scatter(fold: Each, found: _Scattered, begin: Each, store: Store, names: Names) -> Scatter:
    """The scatter of some terms: axes that say which place is meant, those of the reduction, then
    those along which neighbours are stored."""
    body = fold.value
    assert isinstance(body, sc.Reduce)
    sizes = dict(zip(fold.axes, fold.out.shape, strict=True))
    sizes |= dict(zip(body.axes, body.extents, strict=True))
    named = {var for term in (found.place, *found.conditions) for var in free_vars(term)}
    others = [axis for axis in fold.axes if axis is not found.axis]
    outer = [axis for axis in others if axis in named]
    inner = [axis for axis in others if axis not in named]
    terms = (*outer, *body.axes, *inner)
    store = substitute(store, {found.axis: found.place})
    size = sizes[found.axis]
    inside = [*found.conditions, sc.Le(sc.index(0), found.place), sc.Lt(found.place, size)]
    own: dict[Term, Term] = {axis: names.var("j") for axis in begin.axes}
    return Scatter(
        begin.out,
        tuple([own[axis] for axis in begin.axes]),  # type: ignore[misc]  # variables of its own
        substitute(begin.value, own),
        terms,
        tuple([sizes[axis] for axis in terms]),
        joined(sc.And, inside),
        store.indices,
        store.value,
    )


def scatter_schedule(kernel: Kernel, machine: Machine) -> Do | None:
    """The schedule of a kernel with scatters, or None: contiguous stores are lanes, and cores share
    the axes that indices do not depend on."""
    blocks = [site.node for site in map_of(kernel).blocks.values()]
    if not any(_is_scatter(block) for block in blocks):
        return None

    @do
    def schedule() -> Body:
        for block in blocks:
            if _is_scatter(block):
                yield from _scatter_steps(block, machine)
            else:
                yield from block_schedule(block, machine)

    return schedule()


def _is_scatter(of: Block) -> bool:
    """Whether a block stores term after term."""
    return "ordered" in of.kinds and isinstance(of.body, Branch)


def _scatter_steps(of: Block, machine: Machine) -> Body:
    assert isinstance(of.body, Branch)
    store = of.body.then
    assert isinstance(store, Store)
    _, every = yield from opened(of)
    by = dict(zip(of.vars, every, strict=True))
    sizes = {var: known(size) for var, size in zip(of.vars, of.extents, strict=True)}
    last = of.vars[-1]
    if store.indices[-1:] == (last,):
        if (size := sizes[last]) is None:
            _, lane = yield st.split(by[last], (None, machine.lanes(store.buffer.dtype)))
            yield st.vectorize(lane)
        elif size >= MIN_LANES:
            yield st.vectorize(by[last])
    terms = prod([size or 0 for size in sizes.values()])
    outer = next((var for var in of.vars[:-1] if sizes[var] != 1), last)
    if machine.cores > 1 and terms >= MIN_TERMS_TO_SHARE and outer in store.indices:
        yield st.parallel(by[outer])
