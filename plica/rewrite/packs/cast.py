"""Casts: chains of them, and facts about cast values.

Measure: operators: every rule removes one.

A value-preserving cast may be skipped by the next one, with an exception: integers wrap around
where floats saturate, so `i16 -> f32 -> i8` is not `i16 -> i8`.

>>> from plica.ir.type.dtype import f16, f32, f64, i8, i16, u8
>>> keeps(u8, f16), keeps(i16, f16), keeps(f32, f64), skips(i16, f32, i8), skips(i8, f32, i16)
(True, False, True, False, True)
"""

from __future__ import annotations

from typing import Final

from plica.core import Term
from plica.ir.type import DType, bool_
from plica.rewrite.make import tabled as rule
from plica.rewrite.match import PatternMatch
from plica.rewrite.pack import Pack, pack
from plica.rewrite.packs.word import DtypesAre, b, n, op, tensor, x
from plica.rewrite.pattern import holes

cast, negated = op("cast"), op("logical_not")
equal, not_equal, less = map(op, ["equal", "not_equal", "less"])
p, q = holes("p q")


def keeps(source: DType, target: DType) -> bool:
    """Whether every value of a dtype is a value of the other."""
    if source is target or source is bool_:
        return True
    if target is bool_ or (source.is_float and not target.is_float):
        return False
    if source.is_float:
        mine, other = source.row, target.row
        steps = mine.bias + mine.digits <= other.bias + other.digits
        fits = mine.digits <= other.digits and steps and source.greatest <= target.greatest
        nan = mine.special == "none" or other.special != "none"
        zero = mine.special == "minus-zero" or other.special != "minus-zero"
        return fits and nan and zero and mine.has_infinity <= other.has_infinity
    low, high = source.bounds
    if target.is_float:
        return max(-low, high).bit_length() <= target.row.digits + (high < -low)
    return target.bounds[0] <= low and high <= target.bounds[1]


def skips(source: DType, between: DType, target: DType) -> bool:
    """Whether casting by way of a dtype is casting at once."""
    if not keeps(source, between):
        return False
    saturates = between.is_float and not target.is_float and target is not bool_
    return not saturates or source.is_float or keeps(source, target)


def same(one: DType, other: DType) -> bool:
    return one is other


def joined(match: PatternMatch) -> Term | None:
    """One cast for two."""
    if not skips(tensor(match.x).dtype, match.p, match.q):
        return None
    done: Term = cast(match.x, dtype=match.q)
    return done


# fmt: off
# ruff: noqa: E501  # a rule is one line
CAST: Final[Pack] = pack(
    "cast",
    rule("cast-to-own-dtype",      cast(x, dtype=p),                     x, when=DtypesAre(same, ("x", "p"))),
    rule("cast-cast",              cast(cast(x, dtype=p), dtype=q),      joined),
    rule("cast-bool-not-zero",     not_equal(cast(b, dtype=p), 0),       b),
    rule("cast-bool-is-zero",      equal(cast(b, dtype=p), 0),           negated(b)),
    rule("cast-bool-is-one",       equal(cast(b, dtype=p), 1),           b),
    rule("cast-bool-not-one",      not_equal(cast(b, dtype=p), 1),       negated(b)),
    rule("cast-bool-above-zero",   less(0, cast(b, dtype=p)),            b),
    rule("cast-bool-below-one",    less(cast(b, dtype=p), 1),            negated(b)),
    *(rule(f"{name}-of-cast-integer", op(name)(cast(n, dtype=p)),        cast(n, dtype=p)) for name in ("floor", "ceil", "round", "trunc")),
    version="1",
    doc="Casts that change nothing, and chains of casts.",
)
# fmt: on
