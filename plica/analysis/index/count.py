"""Counts: arithmetic on dims and products of dims, which count elements and iterations.

>>> from plica.ir.type.dim import dim_var
>>> n = dim_var("n")
>>> times(index(2), n, index(3)) is times(index(6), n), at_least(ceiling(n, index(4)) * 4, n)
(True, True)

A dim is at least 0.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from plica.analysis.index.context import EMPTY
from plica.analysis.index.prove import can_prove
from plica.core import Term, free_vars
from plica.ir.loop.scalar import Le, Lt, Scalar, ScalarVar, index
from plica.ir.type import known, normal_dim, polynomial, product, same_dim

ZERO: Final = index(0)
ONE: Final = index(1)


def positive_dims(extents: Iterable[Scalar], conditions: Iterable[Scalar]) -> frozenset[Term]:
    """The dims that are at least 1 where loops of these extents run and these conditions hold.

    A product that counts iterations, or is more than something that is not negative, is not 0.
    """
    products = list(extents)
    for condition in conditions:
        pair = comparison(condition)
        if pair is not None and is_natural(normal_dim(pair[0])):
            products.append(normal_dim(pair[1]))
    found: set[Term] = set()
    for scalar in products:
        terms = list(polynomial(scalar).values())
        if len(terms) == 1 and terms[0][1] > 0:
            found.update(atom for atom in terms[0][0] if isinstance(atom, ScalarVar))
    return frozenset(found)


def is_natural(term: Scalar) -> bool:
    """Whether it is at least 0: a number, or a sum of products of dims, which count things."""
    if (number := known(term)) is not None:
        return number >= 0
    for atoms, coefficient in polynomial(term).values():
        if coefficient < 0:
            return False
        for atom in atoms:
            if not isinstance(atom, ScalarVar) and not at_least(atom, ZERO):
                return False
    return True


def times(*factors: Scalar) -> Scalar:
    """The product of dims."""
    total, symbols = 1, []
    for factor in factors:
        if (number := known(factor)) is None:
            symbols.append(factor)
        else:
            total *= number
    if not symbols or total == 0:
        return index(total)
    if total == 1 and len(symbols) == 1:
        return symbols[0]
    return product([index(total), *symbols] if total != 1 else symbols)


def plus(a: Scalar, b: Scalar) -> Scalar:
    """The sum of dims."""
    x, y = known(a), known(b)
    if x is not None and y is not None:
        return index(x + y)
    if x == 0 or y == 0:
        return b if x == 0 else a
    return normal_dim(a + b)


def ceiling(of: Scalar, by: Scalar) -> Scalar:
    """`of / by`, rounded up."""
    x, y = known(of), known(by)
    if x is not None and y is not None:
        return index(-(-x // y))
    return normal_dim((of + by - 1) // by)


@lru_cache(maxsize=4096)
def at_least(a: Scalar, b: Scalar) -> bool:
    """Whether `a >= b` is known, for dims that are at least 0."""
    x, y = known(a), known(b)
    if x is not None and y is not None:
        return x >= y
    if same_dim(a, b):
        return True
    names = sorted(
        [v for v in free_vars(a) | free_vars(b) if isinstance(v, ScalarVar)],
        key=lambda var: (var.name.hint, var.name.index),
    )
    context = EMPTY.where(*[Le(ZERO, var) for var in names])
    return can_prove(Le(b, a), context)


def comparison(of: Scalar) -> tuple[Scalar, Scalar] | None:
    """A condition as `a < b`, or None."""
    match of:
        case Lt(left, right):
            return left, right
        case Le(left, right):
            return left, normal_dim(right + 1)
        case _:
            return None
