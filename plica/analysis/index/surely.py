"""Surely: quick proofs, cheap enough for the guard of every rule.

>>> from plica.ir.type.dim import dim_var
>>> from plica.ir.loop.scalar import Lt
>>> from plica.analysis.index.context import EMPTY
>>> from plica.analysis.index.bounds import knowledge
>>> i, j, n, m = map(dim_var, "ijnm")
>>> nest = knowledge(EMPTY.loop(i, n).loop(j, m))
>>> surely(Lt(i * m + j, n * m), nest), surely(Lt(i, n - 1), nest)
(True, False)

By intervals, by residues, by one known inequality, and by putting the end of its range for a loop
variable.  What it says is true; where it says nothing, `prove` may still know.
"""

from __future__ import annotations

from plica.analysis.index.bounds import of_polynomial, wraps
from plica.analysis.index.context import negated
from plica.analysis.index.knowledge import Knowledge
from plica.analysis.index.modular import residue_of_polynomial
from plica.analysis.index.polynomial import Key, Polynomial, Product
from plica.ir.loop.scalar import And, Eq, Le, Lit, Lt, Ne, Not, Or, Scalar, dtype_of
from plica.ir.type import i64


def surely(condition: Scalar, known: Knowledge) -> bool:
    """Whether the condition is seen to hold wherever the context does."""
    if known.impossible:
        return True
    if wraps(condition, known):
        return False
    stack = [condition]
    while stack:  # all of these
        node = stack.pop()
        match node:
            case And(left, right):
                stack += [left, right]
            case Or(left, right):
                if not surely_one(left, right, known):
                    return False
            case Not(value) if (other := negated(value)) is not node:
                stack.append(other)
            case _:
                if not _holds(node, known):
                    return False
    return True


def surely_one(left: Scalar, right: Scalar, known: Knowledge) -> bool:
    """Whether one of several alternatives is seen to hold."""
    stack = [right, left]
    while stack:
        if isinstance(node := stack.pop(), Or):
            stack += [node.right, node.left]
        elif not isinstance(node, And) and _holds(node, known):
            return True
    return False


def not_negative(of: Polynomial, known: Knowledge) -> bool:
    """Whether a polynomial is seen to be at least 0."""
    low = of_polynomial(of, known).low
    if low is not None and low >= 0:
        return True
    if not known.rows and not known.ranges:
        return False
    if _by_a_row(of, known):
        return True
    for variable, start, last in known.ranges:
        of = _at_the_end(of, variable, start, last, known)
    low = of_polynomial(of, known).low
    return (low is not None and low >= 0) or _by_a_row(of, known)


def not_zero(of: Polynomial, known: Knowledge) -> bool:
    """Whether a polynomial is seen to differ from 0."""
    if 0 not in of_polynomial(of, known) or 0 not in residue_of_polynomial(of, known):
        return True
    return not_negative(of.shifted(-1), known) or not_negative(of.scaled(-1).shifted(-1), known)


def _holds(node: Scalar, known: Knowledge) -> bool:
    match node:
        case Lit(value):
            return bool(value)
        case Lt(left, right) if dtype_of(left) is i64:
            return not_negative(_difference(right, left, known).shifted(-1), known)
        case Le(left, right) if dtype_of(left) is i64:
            return not_negative(_difference(right, left, known), known)
        case Eq(left, right) if dtype_of(left) is i64:
            of = _difference(left, right, known)
            if not of.terms:
                return of.constant == 0
            return not_negative(of, known) and not_negative(of.scaled(-1), known)
        case Ne(left, right) if dtype_of(left) is i64:
            return not_zero(_difference(left, right, known), known)
        case _:
            return False


def _difference(a: Scalar, b: Scalar, known: Knowledge) -> Polynomial:
    return known.polynomial(a).plus(known.polynomial(b), -1)


def _by_a_row(of: Polynomial, known: Knowledge) -> bool:
    """`of = row + something` where the something is not negative."""
    for row in known.rows:
        if row.terms.keys().isdisjoint(of.terms):
            continue
        low = of_polynomial(of.plus(row, -1), known).low
        if low is not None and low >= 0:
            return True
    return False


def _at_the_end(
    of: Polynomial, variable: Scalar, start: Polynomial, last: Polynomial, known: Knowledge
) -> Polynomial:
    """Something not greater: where `variable` stands as a factor, the end of its range."""
    factor: dict[Key, int] = {}
    constant = 0
    rest = dict(of.terms)
    for key, coefficient in of.terms.items():
        if key is variable:
            constant += coefficient
        elif isinstance(key, Product) and key.atoms.count(variable) == 1:
            others = tuple(atom for atom in key.atoms if atom is not variable)
            factor[others[0] if len(others) == 1 else Product(others)] = coefficient
        else:
            continue
        del rest[key]
    slope = Polynomial(constant, factor)
    if not factor and not constant:
        return of
    low, high = of_polynomial(slope, known)
    if low is not None and low >= 0:
        end = start
    elif high is not None and high <= 0:
        end = last
    else:
        return of
    return Polynomial(of.constant, rest).plus(slope.times(end))
