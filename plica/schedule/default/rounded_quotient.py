"""Rounded quotients: stages in which a quotient becomes an integer or a truth value.

A product with the reciprocal differs from a quotient in the last bit.  For floats that is within an
approximation; an integer differs by 1 where it moves a quotient across a tie or a bound.  Such
stages keep their divisions.

>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.stages import stages
>>> from plica.ir.loop.tensor import buffer
>>> x, s = buffer("x", (3, 5), f32), buffer("s", (3,), f32)
>>> part = stage("y", (3, 5), lambda i, j: sc.Intrinsic("floor", (x[i, j] / s[i],)))
>>> rounds_quotient(stages((x, s), (part,)))
True
"""

from __future__ import annotations

from typing import Final

from plica.core import Term, post_order
from plica.ir.loop import Each, Stages, scalar as sc
from plica.ir.type import f32

ROUNDING: Final = frozenset({"round", "floor", "ceil", "trunc"})


def rounds_quotient(of: Stages) -> bool:
    """Whether some stage rounds, casts to an integer or compares a quotient of floats."""
    quotients: set[sc.Buffer] = set()

    def is_quotient(node: Term) -> bool:
        if isinstance(node, sc.Load):
            return node.buffer in quotients
        return isinstance(node, sc.Div) and sc.dtype_of(node) is f32

    for stage in of.stages:
        if not isinstance(stage, Each) or not any(map(is_quotient, post_order(stage.value))):
            continue
        for node in filter(_rounds, post_order(stage.value)):
            if any(map(is_quotient, post_order(node))):
                return True
        quotients.add(stage.out)
    return False


def _rounds(node: Term) -> bool:
    match node:
        case sc.Intrinsic(name):
            return name in ROUNDING
        case sc.Cast(value, dtype):
            return not dtype.is_float and sc.dtype_of(value).is_float
        case sc.Lt(left) | sc.Le(left) | sc.Eq(left) | sc.Ne(left):
            return sc.dtype_of(left).is_float
        case _:
            return False
