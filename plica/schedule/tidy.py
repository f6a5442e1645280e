"""Tidying: simplifies block bindings after changes of enclosing loops.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.statement import Store, block
>>> from plica.ir.loop.tensor import axis, buffer
>>> y, f, v = buffer("y", (12,), f32), axis("f"), axis("v")
>>> inside = block("y", (v,), (12,), "s", (f // 4 * 4 + f % 4,), Store(y, (v,), y[v]))
>>> tidied(inside, frozenset({f}), EMPTY.loop(f, 12)).bindings
(ScalarVar(Name(hint='f', index=0), DType('i64')),)

Only terms that speak of the given variables are touched, and only outside the bodies of blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from plica.analysis.enclosing import tidy
from plica.analysis.index import EMPTY, Context, Range, can_prove
from plica.analysis.index.context import conjuncts
from plica.analysis.site import with_inside, with_parts
from plica.core import Term, free_vars
from plica.ir.loop.scalar import Le, Lt, Scalar, ScalarVar, index
from plica.ir.loop.statement import Block, For, Stmt, statements, substatements
from plica.schedule.precondition import all_of

ZERO: Final = index(0)
ONE: Final = index(1)
TWO: Final = index(2)


def tidied(root: Stmt, variables: frozenset[Term], context: Context) -> Stmt:
    """The statement with extents, bindings and predicates that speak of variables simplified."""

    def tidy(stmt: Stmt, known: Context) -> Stmt:
        if isinstance(stmt, For):
            extent = _simple(stmt.extent, variables, known)
            if extent is stmt.extent:
                return stmt
            return For(stmt.var, extent, stmt.kind, stmt.body, stmt.annotations)
        if isinstance(stmt, Block):
            bindings = tuple([_simple(binding, variables, known) for binding in stmt.bindings])
            predicate = stmt.predicate
            if not free_vars(predicate).isdisjoint(variables):
                parts = conjuncts(predicate)
                predicate = all_of(_condition(part, variables, known) for part in parts)
            return with_parts(stmt, bindings=bindings, predicate=predicate)
        return stmt

    ranges = [_loose(each.var, each.start, each.stop) for each in context.ranges]
    return mapped(root, tidy, Context(tuple(ranges), context.facts), variables)


def trimmed(loop: For, context: Context) -> For:
    """The loop without iterations in which, by their predicates, no block inside does anything."""
    found: dict[Scalar, None] | None = None
    stack: list[Stmt] = [loop.body]
    while stack:
        if isinstance(stmt := stack.pop(), Block):
            mine = {
                conjunct.right: None
                for conjunct in conjuncts(stmt.predicate)
                if isinstance(conjunct, Lt) and conjunct.left is loop.var
            }
            found = mine if found is None else {scalar: None for scalar in found if scalar in mine}
            if not found:
                return loop
        elif not substatements(stmt):
            return loop
        else:
            stack.extend(substatements(stmt))
    bound = {stmt.var for stmt in statements(loop) if isinstance(stmt, For)}
    for stop in found or ():
        if free_vars(stop).isdisjoint(bound) and can_prove(Le(stop, loop.extent), context):
            body = _without(loop.body, Lt(loop.var, stop))
            return For(loop.var, stop, loop.kind, body, loop.annotations)
    return loop


def _without(root: Stmt, condition: Scalar) -> Stmt:
    """The statement with a condition removed from its outermost blocks."""

    def change(stmt: Stmt, _: Context) -> Stmt:
        if not isinstance(stmt, Block):
            return stmt
        kept = [conjunct for conjunct in conjuncts(stmt.predicate) if conjunct is not condition]
        return with_parts(stmt, predicate=all_of(kept))

    return mapped(root, change, EMPTY)


def mapped(
    root: Stmt,
    change: Callable[[Stmt, Context], Stmt],
    context: Context,
    concerned: frozenset[Term] | None = None,
) -> Stmt:
    """Each statement outside blocks, and each outermost block, changed from the outside in; those
    alone that speak of the variables `concerned`, where these are given."""
    done: list[Stmt] = []
    stack: list[tuple[Stmt, Context | None]] = [(root, context)]
    while stack:
        stmt, known = stack.pop()
        if known is None:
            inside = substatements(stmt)
            new = done[len(done) - len(inside) :]
            del done[len(done) - len(inside) :]
            for position in range(len(inside) - 1, -1, -1):
                if new[position] is not inside[position]:
                    stmt = with_inside(stmt, position, new[position])
            done.append(stmt)
            continue
        if concerned is not None and free_vars(stmt).isdisjoint(concerned):
            done.append(stmt)
            continue
        if isinstance(stmt := change(stmt, known), Block):
            done.append(stmt)
            continue
        deeper = known
        if isinstance(stmt, For):
            loop = _loose(stmt.var, ZERO, stmt.extent)
            deeper = Context((*known.ranges, loop), known.facts)
        stack.append((stmt, None))
        stack.extend([(substatement, deeper) for substatement in reversed(substatements(stmt))])
    return done[0]


def _loose(var: ScalarVar, start: Scalar, stop: Scalar) -> Range:
    """The range of a loop; a unit loop counts as two iterations, so that its variable stays in
    terms."""
    return Range(var, start, TWO if start is ZERO and stop is ONE else stop)


def _simple(term: Scalar, variables: frozenset[Term], context: Context) -> Scalar:
    return term if free_vars(term).isdisjoint(variables) else tidy(term, context)


def _condition(term: Scalar, variables: frozenset[Term], context: Context) -> Scalar:
    if isinstance(term, Lt | Le):
        left = _simple(term.left, variables, context)
        return type(term)(left, _simple(term.right, variables, context))
    return _simple(term, variables, context)
