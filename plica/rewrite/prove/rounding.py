"""Roundings that change nothing: of numbers that were widened, back to where they came from.

    cast(max(cast(x, f32), 0), f16)  =  max(x, 0)        of f16

A wider format has every number of a narrower one, in the same order, so choices among widened
numbers, and their negations, are those of the numbers; solvers of IEEE 754 take a minute for that.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from plica.core import Term, map_bottom_up
from plica.ir.loop.scalar import Cast, Lit, Max, Min, Scalar, Select, Sub, dtype_of
from plica.ir.type import DType
from plica.rewrite.prove.smt_number import FORMATS

DETOUR: Final = "what was widened is rounded to itself"


def direct(term: Scalar) -> Scalar:
    """A scalar without roundings that change nothing."""
    scalar = map_bottom_up(_without_detour, term)
    assert isinstance(scalar, Scalar)
    return scalar


def _without_detour(node: Term) -> Term:
    if not isinstance(node, Cast) or node.dtype.name not in FORMATS:
        return node
    scalar = _narrow(node.value, node.dtype) if dtype_of(node.value).is_float else None
    return node if scalar is None else scalar


def _narrow(term: Scalar, to: DType) -> Scalar | None:
    """A choice among numbers of a format that were widened, in that format; None if it is none.

    The depth is that of a rule.
    """
    match term:
        case Cast(value, wide) if dtype_of(value) is to and _holds(wide, to):
            return value
        case Lit(number) if _is_number_of(float(number), to):
            return Lit(number, to)
        case Max(left, right) | Min(left, right):
            first, second = _narrow(left, to), _narrow(right, to)
            return None if first is None or second is None else type(term)(first, second)
        case Select(condition, then, orelse):
            first, second = _narrow(then, to), _narrow(orelse, to)
            return None if first is None or second is None else Select(condition, first, second)
        case Sub(Lit(number), value) if number == 0 and np.signbit(number):
            negated = _narrow(value, to)
            return None if negated is None else Sub(Lit(-0.0, to), negated)
    return None


def _holds(wide: DType, narrow: DType) -> bool:
    """Whether a format has every number of another."""
    if wide.name not in FORMATS:
        return False
    pairs = zip(FORMATS[wide.name], FORMATS[narrow.name], strict=True)
    return all(more >= less for more, less in pairs)


def _is_number_of(number: float, of: DType) -> bool:
    """Whether a format has a number; nan is left alone."""
    with np.errstate(over="ignore"):
        return float(np.asarray(number, of.numpy)) == number
