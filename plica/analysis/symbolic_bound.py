"""Symbolic bounds: the minimum or maximum of an index term, in terms of outer variables.

>>> from plica.ir.loop.tensor import axis
>>> from plica.analysis.index import EMPTY
>>> i, j, n = axis("i"), axis("j"), axis("n")
>>> last = reach(i * 8 - j + n, {j}, EMPTY.loop(i, n).loop(j, 4), upper=False)
>>> from_polynomial(last) is from_polynomial(polynomial(i * 8 + n - 3))
True
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache, reduce

from plica.analysis.enclosing import simple
from plica.analysis.index import Context, bounds
from plica.analysis.statement import reads_memory
from plica.core import free_vars
from plica.ir.loop.scalar import Add, Lit, Scalar, ScalarVar, index
from plica.ir.loop.vector import has_vectors
from plica.ir.type import Polynomial, from_polynomial, polynomial

__all__ = ["from_polynomial", "polynomial", "reach"]


def reach(
    term: Scalar, inner: Collection[ScalarVar], context: Context, upper: bool
) -> Polynomial | None:
    """The greatest value of a term, or the least, without the variables inside; None if unseen.

    It is a bound where variables occur together, and exact where each occurs once.
    """
    hidden = frozenset(inner)
    if has_vectors(term):
        return None
    extents = _extents(context)
    whole = 0
    rest: list[Scalar] = []
    for atoms, factor in polynomial(term).values():
        if not atoms:
            whole += factor
            continue
        var = atoms[0]
        if all(hidden.isdisjoint(free_vars(atom)) for atom in atoms):
            part = _product(factor, atoms)
            if reads_memory(part):
                return None  # what is in memory may change
            rest.append(part)
            continue
        if len(atoms) == 1 and isinstance(var, ScalarVar) and var in extents:
            start, stop = extents[var]
            if hidden.isdisjoint(free_vars(start)) and hidden.isdisjoint(free_vars(stop)):
                ends = _last(stop) if upper == (factor > 0) else start
                if isinstance(ends, Lit):
                    whole += int(ends.value) * factor
                else:
                    rest.append(ends * factor)
                continue
        span = bounds(_product(factor, atoms), context)
        number = span.high if upper else span.low
        if number is None:
            return None
        whole += number
    if not rest:
        return polynomial(index(whole))
    total = reduce(Add, rest, index(whole))
    return polynomial(simple(total, context.without(hidden)))


@lru_cache(maxsize=1024)
def _extents(context: Context) -> dict[ScalarVar, tuple[Scalar, Scalar]]:
    return {each.var: (each.start, each.stop) for each in context.ranges}


def _product(factor: int, atoms: Sequence[Scalar]) -> Scalar:
    scalar: Scalar = index(factor)
    for atom in atoms:
        scalar = scalar * atom
    return scalar


def _last(stop: Scalar) -> Scalar:
    return index(int(stop.value) - 1) if isinstance(stop, Lit) else stop - 1
