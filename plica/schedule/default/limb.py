"""Limbs: floats as whole numbers relative to the greatest of their group, and these as bytes.

    peak[g], unit[g] = the greatest |x| of the group, peak[g] / most
    fixed[g, j]      = round(x[g, j] / unit[g])
    digits[g, d, j]  = the d-th byte of fixed[g, j]                        0 the highest

Products of digits by whole numbers are exact; shifted to their places and scaled by the unit, their
sum is that of the floats.  The unit depends on the greatest of a group only, so that an outlier
costs bits in its own group only.  Data that is not finite gives a result that is not.

>>> from plica.ir.loop.tensor import axis, buffer
>>> x, (g, j) = buffer("x", (4, 32), f32), (axis("g"), axis("j"))
>>> made = StageList(Names(x))
>>> unit, fixed = integers(made, x[g, j], 1000, [(g, 4)], [(j, 32)])
>>> [str(each.out.name) for each in made.stages], fixed.indices == (g, j)
(['peak', 'unit', 'fixed'], True)
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Final, TypeAlias

from plica.ir.loop import Each, Names, scalar as sc
from plica.ir.type import f32, i8, i32
from plica.schedule.default.machine import BYTE

LEAST: Final = 2.0**-126  # the minimum scale of an integer: the smallest float with full precision

Axes: TypeAlias = Sequence[tuple[sc.ScalarVar, "sc.Scalar | int"]]
"""Axes of a stage with their sizes, the outermost first."""


class StageList:
    """Stages that are made one after another; `memory` holds those not computed where they are
    read."""

    def __init__(self, names: Names) -> None:
        self.names = names
        self.stages: list[Each] = []
        self.memory: list[sc.Buffer] = []

    def made(self, name: str, axes: Axes, value: sc.Scalar, *, near: bool = False) -> sc.Load:
        """The element of a new stage at its own axes; in memory, unless it is computed `near` where
        it is read."""
        shape = tuple([sc.index(size) for _, size in axes])
        out = sc.Buffer(self.names.name(name), shape, sc.dtype_of(value))
        places = tuple([axis for axis, _ in axes])
        self.stages.append(Each(out, places, value))
        if not near:
            self.memory.append(out)
        return sc.Load(out, places)


def summed(over: Axes, value: sc.Scalar, combiner: sc.Combiner = "sum") -> sc.Reduce:
    """A reduction over some axes."""
    axes, sizes = zip(*over, strict=True)
    return sc.Reduce(combiner, axes, tuple(map(sc.index, sizes)), value)


def integers(  # noqa: PLR0917  # floats, and where their stages are
    made: StageList, x: sc.Scalar, most: int, at: Axes, terms: Axes, inside: Axes = (),
    *, near: bool = False,
) -> tuple[sc.Load, sc.Load]:  # fmt: skip
    """The unit of each group, and the whole number of each float, at most `most` units.

    Groups are `at` some axes, and have some `terms`, with both in the order in which numbers lie
    `inside`.  With `near` all but units is computed where it is read, by a reciprocal.
    """
    peak = made.made("peak", at, summed(terms, sc.Intrinsic("abs", (x,)), "max"), near=near)
    share = sc.Mul(peak, sc.Lit(1.0 / most, f32))
    unit = made.made("unit", at, sc.Max(share, sc.Lit(LEAST, f32)))
    if near:
        factor = made.made("factor", at, sc.Div(sc.Lit(1.0, f32), unit), near=True)
    quotient = sc.Mul(x, factor) if near else sc.Div(x, unit)
    whole = sc.Cast(sc.Intrinsic("round", (quotient,)), i32)
    return unit, made.made("fixed", inside or (*at, *terms), whole, near=near)


def digit_of(of: sc.Scalar, which: sc.Scalar, digits: int) -> sc.Scalar:
    """A byte of an integer, 0 the highest: digits are signed and absorb carries."""
    half, owed, scalar = 1 << (BYTE - 1), 0, of
    for place in range(digits):  # from the lowest
        if place:
            moved = sc.ShiftRight(of + sc.Lit(owed, i32), sc.Lit(BYTE * place, i32))
            scalar = sc.Select(sc.Eq(which, sc.index(digits - 1 - place)), moved, scalar)
        owed += half << (BYTE * place)
    kept = sc.Lit(i32.bits - BYTE, i32)
    return sc.Cast(sc.ShiftRight(sc.ShiftLeft(scalar, kept), kept), i8)


def in_places(digits: Sequence[sc.Scalar]) -> sc.Scalar:
    """The number that digits stand for, the highest first."""
    shifts = [BYTE * place for place in reversed(range(len(digits)))]
    both = zip(digits, shifts, strict=True)
    return reduce(sc.Add, [sc.ShiftLeft(n, sc.Lit(by, i32)) if by else n for n, by in both])
