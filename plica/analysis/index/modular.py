"""Modular sets: the numbers `coefficient * k + base` that an index term can be.

>>> from plica.analysis.index.bounds import knowledge
>>> from plica.analysis.index.context import EMPTY
>>> from plica.ir.type.dim import dim_var
>>> i = dim_var("i")
>>> residue((i * 8 + 5) // 4, knowledge(EMPTY))
Residue(coefficient=2, base=1)

Sound: every value the term takes in the context is of this form.

Periods: every quasi-affine term repeats, up to a constant slope, along each variable.

A term over + - ×constant, `//` and `%` by constants grows by `slope` whenever a variable grows by
its period, from any start:

    E(x + L·e) = E(x) + s     for all x

>>> from plica.ir.type.dim import dim_var
>>> x, y = dim_var("x"), dim_var("y")
>>> list(periods((x // 4 + y % 6,)).values())
[4, 6]

So comparing two terms on one box of periods, and their slopes, compares them everywhere.

The slope per unit of a variable is a fraction: that of a sum is the sum, that of `t // c` is
`slope(t) / c`, that of `t % c` is 0.  By induction, `L` is a period of `t // c` and `t % c` where
it is one of `t` and `slope(t) * L` is a multiple of `c`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import partial
from math import gcd, lcm, prod
from typing import Final, TypeAlias

import numpy as np

from plica.analysis.index.knowledge import KINDS, Knowledge, Residue, mentions_data, parts
from plica.analysis.index.point import Values, atoms, is_structure, structure_parts
from plica.analysis.index.polynomial import Key, Polynomial, Product
from plica.core import CompilerBug, fold_into
from plica.ir.loop.scalar import Add, FloorDiv, FloorMod, Lit, Mul, Scalar, Sub, dtype_of
from plica.ir.type import i64

Slopes: TypeAlias = dict[Scalar, Fraction]  # per unit of each variable; 0 is left out
Periods: TypeAlias = dict[Scalar, int]


def periods(terms: Iterable[Scalar]) -> Periods:
    """The least period of each variable that serves all terms."""
    wanted = tuple(terms)
    found: Periods = dict.fromkeys(atoms(*wanted), 1)
    slopes = slopes_of(wanted)
    for node in slopes:
        if isinstance(node, FloorDiv | FloorMod) and (divisor := _number(node.right)):
            for variable, slope in slopes[node.left].items():
                step = (slope / divisor).denominator
                found[variable] = lcm(found[variable], step)
    return found


def repeats(terms: Iterable[Scalar], with_periods: Mapping[Scalar, int]) -> bool:
    """Whether these are periods of the terms; used to check certificates."""
    slopes = slopes_of(tuple(terms))
    return all(
        (slope * with_periods[variable] / divisor).denominator == 1
        for node in slopes
        if isinstance(node, FloorDiv | FloorMod) and (divisor := _number(node.right))
        for variable, slope in slopes[node.left].items()
    )


def slopes_of(terms: tuple[Scalar, ...]) -> dict[Scalar, Slopes]:
    """The slopes of every part of quasi-affine terms, children first."""
    found: dict[Scalar, Slopes] = {}
    for term in terms:
        fold_into(found, term, structure_parts, lambda node: _slopes(node, found))
    return found


def _slopes(node: Scalar, known: Mapping[Scalar, Slopes]) -> Slopes:
    match node:
        case Lit():
            return {}
        case Add(a, b):
            return _plus(known[a], known[b], 1)
        case Sub(a, b):
            return _plus(known[a], known[b], -1)
        case Mul(Lit(factor), b):
            return {v: s * int(factor) for v, s in known[b].items() if factor}
        case Mul(a, Lit(factor)):
            return {v: s * int(factor) for v, s in known[a].items() if factor}
        case FloorDiv(a, Lit(divisor)):
            return {v: s / int(divisor) for v, s in known[a].items()} if divisor else {}
        case FloorMod(_, Lit()):
            return {}
        case _ if not is_structure(node):
            return {node: Fraction(1)}
        case _:
            raise CompilerBug(f"{node!r} is not quasi-affine.")


def _plus(a: Slopes, b: Slopes, sign: int) -> Slopes:
    total = dict(a)
    for variable, slope in b.items():
        if new := total.get(variable, Fraction(0)) + sign * slope:
            total[variable] = new
        else:
            total.pop(variable, None)
    return total


def box(of: Mapping[Scalar, int]) -> dict[Scalar, Values]:
    """Every point of the box of periods, one array for each variable."""
    sizes = list(of.values())
    total = prod(sizes)
    found: dict[Scalar, Values] = {}
    inner = total
    for variable, size in of.items():
        inner //= size
        column = np.repeat(np.arange(size, dtype=np.int64), inner)
        found[variable] = np.tile(column, total // (inner * size))
    return found


def _number(of: Scalar) -> int:
    if not isinstance(of, Lit):
        raise CompilerBug(f"{of!r} is no constant divisor.")
    return int(of.value)


ANY: Final = Residue(1, 0)


def residue(term: Scalar, known: Knowledge) -> Residue:
    """The modular set of an index term, with the tables of a context at hand."""
    memo = known.residue_of
    if (found := memo.get(term)) is not None:
        return found
    return fold_into(memo, term, partial(parts, known=known), partial(_of_node, known=known))


def residue_of_polynomial(of: Polynomial, known: Knowledge) -> Residue:
    """The modular set of a polynomial."""
    step, base = 0, of.constant
    for key, coefficient in of.terms.items():
        theirs = _of_key(key, known)
        step = gcd(step, theirs.coefficient * coefficient)
        base += theirs.base * coefficient
    found = _reduced(step, base)
    if known.residues and (said := known.residues.get(of.form)) is not None:
        found = _meet(found, _reduced(said.coefficient, said.base + of.constant))
    return found


def _of_key(key: Key, known: Knowledge) -> Residue:
    if not isinstance(key, Product):
        return residue(key, known)
    found = Residue(0, 1)
    for atom in key.atoms:
        found = _times(found, residue(atom, known))
    return found


def _times(a: Residue, b: Residue) -> Residue:
    """(m*k + p) * (n*l + q): every part but `p*q` is a multiple of the divisor of the others."""
    step = gcd(a.coefficient * b.coefficient, a.coefficient * b.base, b.coefficient * a.base)
    return _reduced(step, a.base * b.base)


def _of_node(node: Scalar, known: Knowledge) -> Residue:
    memo = known.residue_of
    if isinstance(node, Lit) and node.dtype is i64:
        return Residue(0, int(node.value))
    kind = KINDS.get(node.__class__)
    inside = [] if kind == "sum" else [memo[part] for part in parts(node, known)]
    found = ANY
    if kind == "sum" and dtype_of(node) is i64:
        found = _of_sum(node, known)
    elif isinstance(node, FloorDiv | FloorMod):
        if inside and isinstance(node.right, Lit):
            divide = _quotient if isinstance(node, FloorDiv) else _remainder
            found = divide(inside[0], int(node.right.value))
    elif inside:
        left, right = inside
        step = gcd(left.coefficient, right.coefficient, left.base - right.base)
        found = _reduced(step, left.base)
    if known.residues and (said := known.residues.get(frozenset({(node, 1)}))) is not None:
        found = _meet(found, said)
    return found


def _of_sum(node: Scalar, known: Knowledge) -> Residue:
    of = known.polynomial(node)
    if node in of.terms:  # a product too big to multiply out
        memo = known.residue_of
        found = _times(memo[node.left], memo[node.right])  # type: ignore[attr-defined]  # the class was just seen
    else:
        found = residue_of_polynomial(of, known)
    if mentions_data(node):  # it may wrap
        return _reduced(gcd(found.coefficient, 1 << 64), found.base)
    return found


def _quotient(of: Residue, divisor: int) -> Residue:
    if divisor == 0:
        return Residue(0, 0)
    if of.coefficient % divisor == 0:
        return _reduced(of.coefficient // divisor, of.base // divisor)
    return ANY


def _remainder(of: Residue, divisor: int) -> Residue:
    if divisor == 0:
        return Residue(0, 0)
    if of.coefficient % divisor == 0:
        return Residue(0, of.base % divisor)
    return _reduced(gcd(of.coefficient, divisor), of.base)


def _reduced(step: int, base: int) -> Residue:
    step = abs(step)
    return Residue(step, base % step if step else base)


def _meet(a: Residue, b: Residue) -> Residue:
    """The intersection of two residue classes: the finer one if it is contained in the other, else
    by the Chinese remainder theorem."""
    if a.coefficient == 0 or b.coefficient == 0:
        return a if a.coefficient == 0 else b
    common = gcd(a.coefficient, b.coefficient)
    if (a.base - b.base) % common:
        return a  # a contradiction: the context allows no point, and anything is true
    step = a.coefficient // common * b.coefficient
    inverse = pow(a.coefficient // common, -1, b.coefficient // common)
    shift = (b.base - a.base) // common * inverse % (b.coefficient // common)
    return _reduced(step, a.base + a.coefficient * shift)
