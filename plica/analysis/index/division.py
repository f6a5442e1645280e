"""Division: an iteration map in two, for the outer loops and for the inner ones.

Each binding becomes `outer × extent + inner` with `0 <= inner < extent`, where `inner` depends on
the inner loops only and `outer` on the others. One block over all loops can then become a block
over the outer loops that contains a block over the inner ones.

>>> from plica.ir.type.dim import dim_var
>>> from plica.ir.loop.scalar import index
>>> from plica.analysis.index.iteration import iteration_map
>>> i, j = dim_var("i"), dim_var("j")
>>> tiles = iteration_map(((i, index(3)), (j, index(4))), (i * 4 + j,), (index(12),))
>>> (parts,) = divided(tiles, {j}).parts
>>> parts.outer is i, parts.inner is j, parts.outer_extent, parts.inner_extent
(True, True, Lit(3, DType('i64')), Lit(4, DType('i64')))
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from attrs import frozen

from plica.analysis.index.context import TRUE, conjuncts
from plica.analysis.index.count import ZERO, ceiling, times
from plica.analysis.index.digit import Digit, DigitSum, compact
from plica.analysis.index.iteration import IterationMap
from plica.core import free_vars
from plica.ir.loop.scalar import And, Scalar, ScalarVar
from plica.ir.type import quotient


@frozen(eq=False)
class BindingPart:
    """A binding in two: `outer * inner_extent + inner`."""

    outer: Scalar
    inner: Scalar
    outer_extent: Scalar
    inner_extent: Scalar


@frozen(eq=False)
class Division:
    """The bindings in two, and the conditions on the outer and on the inner loops."""

    parts: tuple[BindingPart, ...]
    outer_predicate: Scalar
    inner_predicate: Scalar


def divided(of: IterationMap, inner: AbstractSet[ScalarVar]) -> Division | None:
    """Splits the map in two; None if a binding or a condition mixes outer and inner loops, or a
    binding decreases."""
    if any(of.falling):
        return None
    parts = []
    for each, extent in zip(of.sums, of.extents, strict=True):
        part = None if each is None else _part(of, each, extent, inner)
        if part is None:
            return None
        parts.append(part)
    apart: tuple[list[Scalar], list[Scalar]] = ([], [])
    variables = {var for var, _ in of.loops}
    for condition in conjuncts(of.predicate):
        used = free_vars(condition) & variables
        if used & inner and used - inner:
            return None
        apart[bool(used & inner)].append(condition)
    return Division(tuple(parts), _all(apart[0]), _all(apart[1]))


def _part(
    of: IterationMap, whole: DigitSum, extent: Scalar, inner: AbstractSet[ScalarVar]
) -> BindingPart | None:
    mine: list[tuple[Scalar, Digit]] = []
    rest: list[tuple[Scalar, Digit]] = []
    variables = {var for var, _ in of.loops}
    for scale, digit in whole.parts:
        used = free_vars(digit.source) & variables
        if used <= inner:
            mine.append((scale, digit))
        elif used & inner:
            return None
        else:
            rest.append((scale, digit))
    if (chain := compact(DigitSum(tuple(mine), ZERO))) is None:
        return None
    size = times(*[digit.extent for _, digit in chain])
    base = quotient(whole.base, size)
    scaled: list[tuple[Scalar, Digit]] = []
    for scale, digit in rest:
        if (new := quotient(scale, size)) is None:
            return None
        scaled.append((new, digit))
    if base is None:
        return None
    outside = quotient(extent, size) or ceiling(extent, size)
    outer = of.term(DigitSum(tuple(scaled), base))
    return BindingPart(outer, of.term(DigitSum(tuple(mine), ZERO)), outside, size)


def _all(conditions: list[Scalar]) -> Scalar:
    found: Scalar = TRUE
    for each in conditions:
        found = each if found is TRUE else And(found, each)
    return found
