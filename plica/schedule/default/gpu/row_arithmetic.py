"""Arithmetic of rows in fewer instructions: powers of 2, and products instead of quotients.

    exp(x)          -->  exp2(x * log2(e))
    x[i, j] / s[i]  -->  (x[i, j] * k[i]) * (1 / (s[i] * k[i]))        k is 1, or 2^64 for small s

A thread has many elements of a row, and an exponential and a quotient are most of the work. A
quotient by a value shared by the row becomes one reciprocal; `k` keeps that of tiny numbers finite.
Both add a few roundings: `FEWER` bounds them. Quotients that are rounded to an integer are kept.

>>> from plica.ir.loop.stage import stage
>>> from plica.ir.loop.stages import stages
>>> from plica.ir.loop.tensor import buffer
>>> from plica.ir.type.dtype import f32
>>> x, s = buffer("x", (3, 5), f32), buffer("s", (3,), f32)
>>> part = stage("y", (3, 5), lambda i, j: x[i, j] / s[i])
>>> isinstance(in_fewer_instructions(stages((x, s), (part,)), FEWER).stages[0].value, sc.Mul)
True
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import e, log2
from typing import Final

from plica.core import Term, free_vars, map_bottom_up
from plica.ir.contract import Contract, approx
from plica.ir.loop import Each, Stage, Stages, loads, scalar as sc
from plica.ir.loop.stages import stages
from plica.ir.type import f32
from plica.schedule.default.rounded_quotient import rounds_quotient

FEWER: Final = approx(1e-5)
"""How far off exponentials of up to 88 are, whose arguments were rounded once more."""

SMALL: Final = 2.0**-64  # numbers below it are scaled before they are divided by


def in_fewer_instructions(of: Stages, contract: Contract) -> Stages:
    """Stages whose exponentials and quotients take fewer instructions, where that is allowed."""
    if not contract >= FEWER:
        return of
    instead = partial(_instead, divides=rounds_quotient(of))
    return stages(of.inputs, [_with_fewer(stage, instead) for stage in of.stages], of.outputs)


def _with_fewer(of: Stage, instead: Callable[[Term], Term]) -> Stage:
    if not isinstance(of, Each):
        return of
    return Each(of.out, of.axes, map_bottom_up(instead, of.value))


def _instead(node: Term, *, divides: bool) -> Term:
    match node:
        case sc.Div() if divides:
            return node
        case sc.Intrinsic("exp", (of,)) if sc.dtype_of(of) is f32:
            return sc.Intrinsic("exp2", (sc.Mul(of, sc.Lit(log2(e), f32)),))
        case sc.Div(left, right) if sc.dtype_of(right) is f32 and _is_shared(left, right):
            small = sc.Lt(sc.Intrinsic("abs", (right,)), sc.Lit(SMALL, f32))
            scale = sc.Select(small, sc.Lit(1 / SMALL, f32), sc.Lit(1.0, f32))
            once = sc.Div(sc.Lit(1.0, f32), sc.Mul(right, scale))
            return sc.Mul(sc.Mul(left, scale), once)
        case _:
            return node


def _is_shared(left: sc.Scalar, right: sc.Scalar) -> bool:
    """Whether several elements are divided by the same."""
    mine, others = ({v for v in free_vars(scalar) if isinstance(v, sc.ScalarVar)}
                    for scalar in (right, left))  # fmt: skip
    return bool(loads(right)) and mine < others
