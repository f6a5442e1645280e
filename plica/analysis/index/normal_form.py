"""Predicates in conjunctive normal form, and predicates narrowed to fewer variables.

    conjunctive(p)          clauses: each a tuple of literals, one of which holds; all clauses hold
    narrowed(p, ranges)     what implies p for every value of some variables, without them

>>> from plica.ir.loop.tensor import axis
>>> from plica.ir.loop.scalar import Lt, Or, And, index
>>> i, j = axis("i"), axis("j")
>>> a, b, c = Lt(i, index(4)), Lt(j, index(4)), Lt(j, i)
>>> [len(each) for each in conjunctive(Or(And(a, b), c))]
[2, 2]
>>> narrowed(Lt(i + j, index(10)), {j: (0, 3)}) is Lt(i + 3, index(10))
True
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Final, TypeAlias

from plica.analysis.index.context import negated
from plica.analysis.index.simplify import simplify
from plica.core import free_vars, substitute
from plica.ir.loop import scalar as sc
from plica.ir.loop.statement import TRUE
from plica.ir.type import polynomial

Clause: TypeAlias = tuple[sc.Scalar, ...]

MAX_CLAUSES: Final = 4096
FALSE: Final = sc.Lit(False, TRUE.dtype)


def conjunctive(predicate: sc.Scalar) -> tuple[Clause, ...] | None:
    """The clauses of a predicate; no clauses is true, an empty clause false.  None where there are
    more than `MAX_CLAUSES`."""
    memo: dict[sc.Scalar, tuple[Clause, ...]] = {}
    root = negated(negated(predicate))  # `not` of nothing but literals
    stack = [root]
    while stack:
        node = stack[-1]
        parts = (node.left, node.right) if isinstance(node, sc.And | sc.Or) else ()
        missing = [part for part in parts if part not in memo]
        if missing:
            stack += missing
            continue
        stack.pop()
        if isinstance(node, sc.And):
            made = (*memo[node.left], *memo[node.right])
        elif isinstance(node, sc.Or):
            made = tuple([
                tuple(dict.fromkeys((*one, *other)))
                for one, other in product(memo[node.left], memo[node.right])
            ])  # fmt: skip
        else:
            made = () if node is TRUE else ((),) if node is FALSE else ((node,),)
        memo[node] = tuple(dict.fromkeys(made))
        if len(memo[node]) > MAX_CLAUSES:
            return None
    return memo[root]


def narrowed(
    predicate: sc.Scalar, ranges: Mapping[sc.ScalarVar, tuple[int, int]]
) -> sc.Scalar | None:
    """A predicate without the given variables that implies this one for all their values, from
    the first to the last of each range; None where a literal is not linear in them."""
    clauses = conjunctive(predicate)
    if clauses is None:
        return None
    scalar: sc.Scalar = TRUE
    for clause in clauses:
        literals = [_strongest(term, ranges) for term in clause]
        if None in literals:
            return None
        held: sc.Scalar = FALSE
        for literal in literals:
            assert literal is not None
            held = literal if held is FALSE else sc.Or(held, literal)
        scalar = held if scalar is TRUE else sc.And(scalar, held)
    return scalar


def _strongest(of: sc.Scalar, ranges: Mapping[sc.ScalarVar, tuple[int, int]]) -> sc.Scalar | None:
    """A comparison at the values that make it hardest; None where these are not known."""
    if free_vars(of).isdisjoint(ranges):
        return of
    if not isinstance(of, sc.Lt | sc.Le):
        return None
    slope = polynomial(of.left - of.right).values()  # hardest where this is greatest
    values: dict[sc.ScalarVar, sc.Scalar] = {}
    for var, (first, last) in ranges.items():
        terms = [(a, factor) for a, factor in slope if any(var in free_vars(term) for term in a)]
        if any(atoms != (var,) for atoms, _ in terms):
            return None
        rising = any(factor > 0 for _, factor in terms)
        values[var] = sc.index(last if rising else first)
    sides = [simplify(substitute(scalar, values)) for scalar in (of.left, of.right)]
    return type(of)(*sides)
