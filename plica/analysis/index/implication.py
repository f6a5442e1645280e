"""Implication: incomplete but sound checks of a condition, cheap enough for every rule's guard.

>>> from plica.ir.type.dim import dim_var
>>> from plica.ir.loop.scalar import Lt
>>> from plica.analysis.index.context import EMPTY
>>> from plica.analysis.index.bounds import knowledge
>>> i, j, n, m = map(dim_var, "ijnm")
>>> nest = knowledge(EMPTY.loop(i, n).loop(j, m))
>>> is_implied(Lt(i * m + j, n * m), nest), is_implied(Lt(i, n - 1), nest)
(True, False)

They use intervals, residues, one known inequality, and the ends of loop ranges.  False means only
that nothing was shown; `prove` is complete on a larger class and slower.
"""

from __future__ import annotations

from plica.analysis.index.bounds import of_polynomial, wraps
from plica.analysis.index.context import negated
from plica.analysis.index.knowledge import Knowledge
from plica.analysis.index.modular import residue_of_polynomial
from plica.analysis.index.polynomial import Key, Polynomial, Product
from plica.ir.loop.scalar import And, Eq, Le, Lit, Lt, Ne, Not, Or, Scalar, dtype_of
from plica.ir.type import i64


def is_implied(condition: Scalar, known: Knowledge) -> bool:
    """Whether the known facts imply the condition."""
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
                if not is_any_implied(left, right, known):
                    return False
            case Not(value) if (other := negated(value)) is not node:
                stack.append(other)
            case _:
                if not _holds(node, known):
                    return False
    return True


def is_any_implied(left: Scalar, right: Scalar, known: Knowledge) -> bool:
    """Whether one operand of a disjunction is shown to hold."""
    stack = [right, left]
    while stack:
        if isinstance(node := stack.pop(), Or):
            stack += [node.right, node.left]
        elif not isinstance(node, And) and _holds(node, known):
            return True
    return False


def is_non_negative(of: Polynomial, known: Knowledge) -> bool:
    """Whether a polynomial is shown to be at least 0."""
    low = of_polynomial(of, known).low
    if low is not None and low >= 0:
        return True
    if not known.rows and not known.ranges:
        return False
    if _exceeds_known(of, known):
        return True
    for variable, start, last in known.ranges:
        of = _at_range_end(of, variable, start, last, known)
    low = of_polynomial(of, known).low
    return (low is not None and low >= 0) or _exceeds_known(of, known)


def is_nonzero(of: Polynomial, known: Knowledge) -> bool:
    """Whether a polynomial is shown to differ from 0."""
    if 0 not in of_polynomial(of, known) or 0 not in residue_of_polynomial(of, known):
        return True
    return is_non_negative(of.shifted(-1), known) or is_non_negative(
        of.scaled(-1).shifted(-1), known
    )


def _holds(node: Scalar, known: Knowledge) -> bool:
    match node:
        case Lit(value):
            return bool(value)
        case Lt(left, right) if dtype_of(left) is i64:
            return is_non_negative(_difference(right, left, known).shifted(-1), known)
        case Le(left, right) if dtype_of(left) is i64:
            return is_non_negative(_difference(right, left, known), known)
        case Eq(left, right) if dtype_of(left) is i64:
            of = _difference(left, right, known)
            if not of.terms:
                return of.constant == 0
            return is_non_negative(of, known) and is_non_negative(of.scaled(-1), known)
        case Ne(left, right) if dtype_of(left) is i64:
            return is_nonzero(_difference(left, right, known), known)
        case _:
            return False


def _difference(a: Scalar, b: Scalar, known: Knowledge) -> Polynomial:
    return known.polynomial(a).plus(known.polynomial(b), -1)


def _exceeds_known(of: Polynomial, known: Knowledge) -> bool:
    """Whether `of` is shown to be at least a known non-negative polynomial."""
    for row in known.rows:
        if row.terms.keys().isdisjoint(of.terms):
            continue
        low = of_polynomial(of.plus(row, -1), known).low
        if low is not None and low >= 0:
            return True
    return False


def _at_range_end(
    of: Polynomial, variable: Scalar, start: Polynomial, last: Polynomial, known: Knowledge
) -> Polynomial:
    """A lower bound of `of` without `variable`, which is replaced by the end of its range."""
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
