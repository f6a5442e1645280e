"""Disjoint accesses: whether two iterations of a loop can touch one element of a buffer.

`accesses(stmt, context)` lists the reads and writes of a statement. Each has its buffer, its index
terms, and the loop ranges and facts that hold there. `are_disjoint(first, second, var, same)` asks
whether `first` in one iteration of `var` and `second` in a different iteration never overlap.
False means "not proved". After a variable that moves in steps is replaced by its number of steps,
there are three tests, the cheapest first:

1. one thread: a fact fixes `var` to the same constant for both accesses;
2. injectivity: both have equal index terms, and these terms determine `var`;
3. proof: the variables of the second access are renamed, and some index is proved to differ, once
   for `var < var'` and once for `var' < var`.

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
from plica.core import Name, Term, all_of, free_vars, map_bottom_up, post_order, substitute
from plica.ir.loop import scalar as sc
from plica.ir.loop.invocation import find_intrinsic
from plica.ir.loop.statement import For, Invoke, Region, Stmt, Store, substatements
from plica.ir.loop.vector import has_vectors
from plica.ir.type import from_polynomial, i64, known, polynomial

__all__ = ["EMPTY", "For", "IndexedAccess", "accesses", "are_disjoint"]


MAX_RANGES_PROVED_WITH_ALL_FACTS: Final = 4
"""With more loop ranges, a proof uses only the facts about the variables of the question."""


@frozen(eq=False)
class IndexedAccess:
    """A read or a write; `indices` is None if the accessed elements are unknown."""

    buffer: sc.Buffer
    indices: tuple[sc.Scalar, ...] | None
    context: Context
    written: bool
    origin: IndexedAccess | None = None
    """The access in its own iteration, for one that was shifted to another iteration."""


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
        nested = substatements(stmt)
        if isinstance(stmt, Store):
            indices = _loop_indices(stmt.indices, ())
            found.append(IndexedAccess(stmt.buffer, indices, here, written=True))
        scalars = [child for child in stmt._children if child not in nested]
        reduced: list[Term] = []  # axes of reductions, which are no loops of the context
        for fold in all_of(sc.Reduce, *scalars):
            reduced.extend(fold.axes)
        for node in post_order(*scalars):
            if isinstance(node, sc.Load):
                indices = _loop_indices(node.indices, reduced)
                found.append(IndexedAccess(node.buffer, indices, here, written=False))
            elif isinstance(node, Region) and not isinstance(stmt, Invoke):
                for written in (False, True):
                    found.append(IndexedAccess(node.buffer, None, here, written))
        if isinstance(stmt, Invoke):
            found += _intrinsic_accesses(stmt, here)
        stack.extend(reversed(list(zip(nested, contexts(stmt, here), strict=True))))
    return tuple(found)


def _intrinsic_accesses(call: Invoke, context: Context) -> Iterator[IndexedAccess]:
    """The accesses of an intrinsic: it reads every region, and writes those of its results."""
    intrinsic = find_intrinsic(call.name)
    for number, region in enumerate(call.operands):
        if not isinstance(region, Region):
            continue
        here, indices = context, list[sc.Scalar]()
        for axis, (start, extent) in enumerate(zip(region.starts, region.extents, strict=True)):
            if known(extent) == 1:
                indices.append(start)
                continue
            offset = sc.ScalarVar(Name("an element", axis), i64)
            here = here.loop(offset, extent)
            indices.append(start + offset)
        is_result = intrinsic is None or number >= intrinsic.meaning.inputs
        for written in (False, True)[: 1 + is_result]:
            yield IndexedAccess(region.buffer, _loop_indices(indices, ()), here, written)


def _loop_indices(
    indices: Sequence[sc.Scalar], reduced: Collection[Term]
) -> tuple[sc.Scalar, ...] | None:
    """The indices if they depend on loops and sizes alone, or None.

    They may not depend on loaded values, on lanes of vectors, or on the axes of a reduction.
    """
    for index in indices:
        free = free_vars(index)
        if has_vectors(index) or not free.isdisjoint(reduced):
            return None
        if any(isinstance(var, sc.Buffer) for var in free):
            return None
    return tuple(indices)


def are_disjoint(
    first: IndexedAccess, second: IndexedAccess, var: sc.ScalarVar, same: Collection[sc.ScalarVar]
) -> bool:
    """Whether two accesses at different values of `var` never touch one element.

    The variables in `same` have equal values in both accesses; all others are independent.
    """
    for loop in [each.var for each in first.context.ranges if each.var not in same]:
        step = _step(first.context, loop)
        if step is not None and step == _step(second.context, loop):
            number = sc.ScalarVar(Name(f"{loop.name.hint} step", loop.name.index), loop.dtype)
            first, second = (
                _counted_in_steps(access, loop, step, number) for access in (first, second)
            )
            var = number if var is loop else var
    if first.indices is None or second.indices is None:
        return False
    fixed = _fixed_value(first.context, var)
    if fixed is not None and fixed is _fixed_value(second.context, var):
        return True  # both are done by one thread
    first_origin, second_origin = first.origin or first, second.origin or second
    if first_origin.indices == second_origin.indices:
        loops = {each.var for each in first.context.ranges}
        shared = {r.var for r in second.context.ranges if r.var in loops and r.var in same}
        if _indices_determine(first_origin, var, shared):
            return True
    renamed: dict[Term, Term] = {}
    ranges = [*first.context.ranges]
    for loop in (*[r.var for r in (*ranges, *second.context.ranges)], var):
        if loop not in same:
            renamed[loop] = sc.ScalarVar(
                Name(f"{loop.name.hint} other", loop.name.index), loop.dtype
            )
    other = renamed[var]
    assert isinstance(other, sc.ScalarVar)
    ranged = {each.var for each in ranges}
    for range_ in second.context.ranges:
        moved = substitute(range_, renamed)
        if moved.var not in ranged:
            ranges.append(moved)
    facts = [*first.context.facts, *[substitute(fact, renamed) for fact in second.context.facts]]
    context = Context(tuple(ranges)).where(*facts)
    pairs = [
        (left, substitute(right, renamed))
        for left, right in zip(first.indices, second.indices, strict=True)
    ]
    agreed: set[Term] = {*same}
    for left, right in pairs:  # such as the version of a buffer: a short question, worth a proof
        variables = free_vars(left) | free_vars(right)
        if variables <= agreed:
            own = Context(tuple([each for each in ranges if each.var in variables]))
            if can_prove(sc.Ne(left, right), own):
                return True
    # A superfluous barrier is cheap, a long proof is not: of many facts only related ones are used.
    quick = len(ranges) > MAX_RANGES_PROVED_WITH_ALL_FACTS
    for low, high in ((var, other), (other, var)):
        ordered = context.where(sc.Lt(low, high))
        for left, right in pairs:
            variables = free_vars(left) | free_vars(right) | {low, high}
            facts_used = _facts_about(ordered, variables) if quick else ordered
            if can_prove(sc.Ne(left, right), facts_used, quick=quick):
                break
        else:
            return False
    return True


def _facts_about(context: Context, variables: frozenset[Term]) -> Context:
    """The ranges and facts of a context that mention no other variables."""
    ranges = tuple([each for each in context.ranges if each.var in variables])
    return Context(ranges, tuple([fact for fact in context.facts if free_vars(fact) <= variables]))


def _fixed_value(context: Context, var: Term) -> sc.Scalar | None:
    """The constant `c` of a fact `var == c`, or None."""
    for fact in context.facts:
        if isinstance(fact, sc.Eq) and fact.left is var and known(fact.right) is not None:
            return fact.right
    return None


def _step(context: Context, var: sc.ScalarVar) -> int | None:
    """The step `s` of a fact `var % s == 0`, or None."""
    for fact in context.facts:
        match fact:
            case sc.Eq(sc.FloorMod(left, sc.Lit(step)), sc.Lit(0)) if left is var and int(step) > 1:
                return int(step)
            case _:
                pass
    return None


def _counted_in_steps(
    of: IndexedAccess, var: sc.ScalarVar, step: int, number: sc.ScalarVar
) -> IndexedAccess:
    """The access with `var` replaced by `number * step`, also in its ranges and facts."""

    def simplify(node: Term) -> Term:
        match node:
            case sc.FloorDiv(left, sc.Lit(by)) if left is var and by == step:
                return number
            case sc.FloorMod(left, sc.Lit(by)) if left is var and by == step:
                return sc.index(0)
            case _:
                return node

    def rewritten(term: sc.Scalar) -> sc.Scalar:
        return substitute(map_bottom_up(simplify, term), {var: number * step})

    ranges = [evolve(each, var=number, start=each.start // step, stop=(each.stop - 1) // step + 1)
              if each.var is var else each for each in of.context.ranges]  # fmt: skip
    facts = [rewritten(fact) for fact in of.context.facts]
    indices = None if of.indices is None else tuple([rewritten(index) for index in of.indices])
    origin = None if of.origin is None else _counted_in_steps(of.origin, var, step, number)
    context = Context(tuple(ranges)).where(*facts)
    return evolve(of, indices=indices, context=context, origin=origin)


def _indices_determine(
    access: IndexedAccess, var: sc.ScalarVar, shared: Collection[sc.ScalarVar]
) -> bool:
    """Whether `var` occurs in the indices, and different values of it give different elements.

    The variables in `shared` are equal in both accesses, so terms of them alone are left out.
    """
    assert access.indices is not None
    independent = [each for each in access.context.ranges if each.var not in shared]
    variables = {each.var for each in independent}
    indices = []
    for index in access.indices:
        terms = {
            key: (atoms, factor)
            for key, (atoms, factor) in polynomial(index).items()
            if any(not variables.isdisjoint(free_vars(atom)) for atom in atoms)
        }
        indices.append(from_polynomial(terms))
    # Equal elements have all indices equal, so it is enough that one of them determines `var`,
    # whatever another one (such as the version of a buffer) leaves open.
    groups = (indices, *[[index] for index in indices if indices[1:]])
    return any(_are_injective(group, var, independent) for group in groups)


def _are_injective(
    indices: Sequence[sc.Scalar], var: sc.ScalarVar, independent: Sequence[Range]
) -> bool:
    """Whether equal indices imply an equal value of `var`, which occurs in them."""
    free = frozenset[Term]().union(*[free_vars(index) for index in indices])
    if var not in free:
        return False
    loops = [(each.var, each.stop - each.start) for each in independent if each.var in free]
    unbounded = [sc.index(1)] * len(indices)  # the extents of the indices do not matter here
    return iteration_map(loops, indices, unbounded).injective
