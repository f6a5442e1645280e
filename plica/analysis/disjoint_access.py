"""Disjoint accesses: what a statement reads and writes, and whether two accesses can overlap.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.scalar import index
>>> from plica.ir.loop.tensor import axis, buffer
>>> x, i, j = buffer("x", (64,), f32), axis("i"), axis("j")
>>> row = For(i, sc.index(8), "serial", For(j, sc.index(8), "serial", Store(x, (i * 8 + j,), x[i])))
>>> write, read = accesses(row, EMPTY)
>>> are_disjoint(write, write, i, ()), are_disjoint(write, read, i, ())
(True, False)
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from attrs import evolve, frozen

from plica.analysis.index import EMPTY, Context, can_prove
from plica.analysis.index.context import Range
from plica.analysis.index.iteration import iteration_map
from plica.analysis.statement import contexts
from plica.core import Name, Term, free_vars, map_bottom_up, post_order, substitute
from plica.ir.loop import scalar as sc
from plica.ir.loop.invocation import find_intrinsic
from plica.ir.loop.statement import For, Invoke, Region, Stmt, Store, substatements
from plica.ir.loop.vector import has_vectors
from plica.ir.type import from_polynomial, i64, known, polynomial

__all__ = ["EMPTY", "For", "IndexedAccess", "accesses", "are_disjoint"]


MAX_VARIABLES_PROVED: Final = 4  # questions about this many variables are looked into


@frozen(eq=False)
class IndexedAccess:
    """An access to a buffer; `indices` is None if the accessed elements are unknown."""

    buffer: sc.Buffer
    indices: tuple[sc.Scalar, ...] | None
    context: Context
    written: bool
    origin: IndexedAccess | None = None
    """Where it was first found, for one that was moved to another iteration."""


def accesses(root: Stmt, context: Context) -> tuple[IndexedAccess, ...]:
    """Every access inside a statement, with its context; a store's write comes before its reads."""
    found: list[IndexedAccess] = []
    seen: set[tuple[Stmt, Context]] = set()
    stack: list[tuple[Stmt, Context]] = [(root, context)]
    while stack:
        stmt, here = stack.pop()
        if (stmt, here) in seen:
            continue
        seen.add((stmt, here))
        inside = substatements(stmt)
        if isinstance(stmt, Store):
            found.append(IndexedAccess(stmt.buffer, _plain(stmt.indices, ()), here, True))
        own = [each for each in stmt._children if each not in inside]
        bound: list[Term] = []
        for node in post_order(*own):
            if isinstance(node, sc.Reduce):
                bound.extend(node.axes)
        for node in post_order(*own):
            if isinstance(node, sc.Load):
                found.append(IndexedAccess(node.buffer, _plain(node.indices, bound), here, False))
            elif isinstance(node, Region) and not isinstance(stmt, Invoke):
                found += [IndexedAccess(node.buffer, None, here, way) for way in (False, True)]
        if isinstance(stmt, Invoke):
            found += _invoked(stmt, here)
        stack.extend(reversed(list(zip(inside, contexts(stmt, here), strict=True))))
    return tuple(found)


def _invoked(call: Invoke, context: Context) -> Iterator[IndexedAccess]:
    """The accesses of an intrinsic: all regions, and writes of its results."""
    intrinsic = find_intrinsic(call.name)
    for number, region in enumerate(call.operands):
        if not isinstance(region, Region):
            continue
        here, places = context, list[sc.Scalar]()
        for at, (start, extent) in enumerate(zip(region.starts, region.extents, strict=True)):
            if known(extent) == 1:
                places.append(start)
                continue
            var = sc.ScalarVar(Name("an element", at), i64)
            here = here.loop(var, extent)
            places.append(start + var)
        written = intrinsic is None or number >= intrinsic.meaning.inputs
        for way in (False, True)[: 1 + written]:
            yield IndexedAccess(region.buffer, _plain(tuple(places), ()), here, way)


def _plain(indices: tuple[sc.Scalar, ...], bound: Collection[Term]) -> tuple[sc.Scalar, ...] | None:
    for each in indices:
        free = free_vars(each)
        if has_vectors(each) or not free.isdisjoint(bound):
            return None
        if any(isinstance(one, sc.Buffer) for one in free):
            return None
    return indices


def are_disjoint(
    one: IndexedAccess, two: IndexedAccess, var: sc.ScalarVar, same: Collection[sc.ScalarVar]
) -> bool:
    """Whether two accesses at different values of a variable never touch one element.

    The variables in `same` have one value for both; all others may differ.
    """
    for each in [each.var for each in one.context.ranges if each.var not in same]:
        step = _step(one.context, each)
        if step is not None and step == _step(two.context, each):
            number = sc.ScalarVar(Name(f"{each.name.hint} step", each.name.index), each.dtype)
            one, two = (_in_steps(access, each, step, number) for access in (one, two))
            var = number if var is each else var
    if one.indices is None or two.indices is None:
        return False
    pinned = _pinned(one.context, var)
    if pinned is not None and pinned is _pinned(two.context, var):
        return True  # one thread's own work
    first, second = one.origin or one, two.origin or two
    if first.indices == second.indices:
        mine = {each.var for each in one.context.ranges}
        fixed = {r.var for r in two.context.ranges if r.var in mine and r.var in same}
        if _apart(first, var, fixed):
            return True
    theirs: dict[Term, Term] = {}
    for each in (*(r.var for r in one.context.ranges), *(r.var for r in two.context.ranges), var):
        if each not in same:
            theirs[each] = sc.ScalarVar(
                Name(f"{each.name.hint} other", each.name.index), each.dtype
            )
    other = theirs[var]
    assert isinstance(other, sc.ScalarVar)
    ranges = [*one.context.ranges]
    ranged = {each.var for each in ranges}
    for range_ in two.context.ranges:
        moved = substitute(range_, theirs)
        if moved.var not in ranged:
            ranges.append(moved)
    facts = [*one.context.facts, *[substitute(each, theirs) for each in two.context.facts]]
    context = Context(tuple(ranges)).where(*facts)
    pairs = [
        (mine, substitute(its, theirs)) for mine, its in zip(one.indices, two.indices, strict=True)
    ]
    agreed: set[Term] = {*same}
    for one_place, another in pairs:  # versions of a buffer, say: short questions, worth a proof
        told = free_vars(one_place) | free_vars(another)
        if told <= agreed:
            own = Context(tuple([each for each in ranges if each.var in told]))
            if can_prove(sc.Ne(one_place, another), own):
                return True
    # A superfluous barrier is cheap, a long proof is not: of many facts only related ones are used.
    quick = len(ranges) > MAX_VARIABLES_PROVED
    for low, high in ((var, other), (other, var)):
        here = context.where(sc.Lt(low, high))
        for left, right in pairs:
            told = free_vars(left) | free_vars(right) | {low, high}
            about = _near(here, told) if quick else here
            if can_prove(sc.Ne(left, right), about, quick=quick):
                break
        else:
            return False
    return True


def _near(context: Context, told: frozenset[Term]) -> Context:
    """The facts of a context about some variables alone."""
    ranges = tuple([each for each in context.ranges if each.var in told])
    return Context(ranges, tuple([each for each in context.facts if free_vars(each) <= told]))


def _pinned(context: Context, var: Term) -> sc.Scalar | None:
    """The constant that a context fixes for a variable, if a fact states one."""
    for each in context.facts:
        if isinstance(each, sc.Eq) and each.left is var and known(each.right) is not None:
            return each.right
    return None


def _step(context: Context, var: sc.ScalarVar) -> int | None:
    """The number that a variable is a multiple of, if a fact says so."""
    for each in context.facts:
        match each:
            case sc.Eq(sc.FloorMod(left, sc.Lit(step)), sc.Lit(0)) if left is var and int(step) > 1:
                return int(step)
            case _:
                pass
    return None


def _in_steps(
    of: IndexedAccess, var: sc.ScalarVar, step: int, number: sc.ScalarVar
) -> IndexedAccess:
    """An access where a variable is a given number of times a number."""

    def change(node: Term) -> Term:
        match node:
            case sc.FloorDiv(left, sc.Lit(by)) if left is var and by == step:
                return number
            case sc.FloorMod(left, sc.Lit(by)) if left is var and by == step:
                return sc.index(0)
            case _:
                return node

    def told(each: sc.Scalar) -> sc.Scalar:
        return substitute(map_bottom_up(change, each), {var: number * step})

    ranges = [evolve(each, var=number, start=each.start // step, stop=(each.stop - 1) // step + 1)
              if each.var is var else each for each in of.context.ranges]  # fmt: skip
    facts = [told(each) for each in of.context.facts]
    places = None if of.indices is None else tuple([told(each) for each in of.indices])
    origin = None if of.origin is None else _in_steps(of.origin, var, step, number)
    context = Context(tuple(ranges)).where(*facts)
    return evolve(of, indices=places, context=context, origin=origin)


def _apart(access: IndexedAccess, var: sc.ScalarVar, fixed: Collection[sc.ScalarVar]) -> bool:
    """Whether accesses with different values of `var` touch different elements, and `var` occurs.

    Those that are `fixed` do not differ.
    """
    assert access.indices is not None
    moving = [each for each in access.context.ranges if each.var not in fixed]
    variables = {each.var for each in moving}
    places = []
    for each in access.indices:
        terms = {
            key: (atoms, factor)
            for key, (atoms, factor) in polynomial(each).items()
            if any(not variables.isdisjoint(free_vars(atom)) for atom in atoms)
        }
        places.append(from_polynomial(terms))
    # Who agrees in all places agrees in each: one that tells its variables is enough, whatever
    # another (the version of a buffer, say) leaves open.
    return any(
        _tells(some, var, moving) for some in (places, *[[each] for each in places if places[1:]])
    )


def _tells(places: Sequence[sc.Scalar], var: sc.ScalarVar, moving: Sequence[Range]) -> bool:
    """Whether places that agree have one value of a variable."""
    free = frozenset[Term]().union(*[free_vars(each) for each in places])
    if var not in free:
        return False
    loops = [(each.var, each.stop - each.start) for each in moving if each.var in free]
    reach = [sc.index(1)] * len(places)  # how far they reach does not matter
    return iteration_map(loops, places, reach).injective
