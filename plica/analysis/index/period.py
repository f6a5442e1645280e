"""Periods: every quasi-affine term repeats, up to a constant slope, along each variable.

A term over + - ×constant, `//` and `%` by constants grows by `slope` whenever a variable grows by
its period, wherever it starts:

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
from math import lcm, prod
from typing import TypeAlias

import numpy as np

from plica.analysis.index.point import Values, atoms, is_structure, structure_parts
from plica.core import CompilerBug, fold_into
from plica.ir.loop.scalar import Add, FloorDiv, FloorMod, Lit, Mul, Scalar, Sub

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
    """Whether these are periods of the terms; what a certificate claims is checked by this."""
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
