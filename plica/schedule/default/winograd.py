"""Winograd convolutions: the kernel of one, where some work is one.

The form has the loops it should have already (`winograd_nest`), by a plan for the machine
(`winograd_plan`), so nothing is left for a trace to do.

>>> from plica.ir.op.winograd import conv_winograd
>>> from plica.ir.loop.tensor import buffer
>>> x, w = buffer("x", (1, 32, 8, 8), f32), buffer("w", (36, 32, 32), f32)
>>> of = conv_winograd.compute({"tile": 4, "padding": 1}, x, w)
>>> conv = Each(buffer("y", of.shape, f32), of.axes, of.body)
>>> made = tiled(stages((x, w), (conv,)), Facts((False, True)), Machine(512, 32))
>>> [[size.value for size in each.shape] for each in made.scratch]
[[10, 10, 32], [36, 1, 2, 4, 16], [36, 1, 2, 4, 16], [36, 2, 32, 16]]
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from plica.ir.loop.stage import Each
from plica.ir.loop.stages import Stages, pairs, stages
from plica.ir.type.dtype import f32, f64
from plica.runtime.late import lazy_imports
from plica.schedule.default.machine import Machine
from plica.schedule.form import Facts

with lazy_imports(__name__):
    from plica.schedule.default.winograd_nest import WinogradWriter
    from plica.schedule.default.winograd_open import OpenWinogradWriter
    from plica.schedule.default.winograd_plan import (
        AnyWinograd,
        WinogradPlan,
        found,
        found_open,
        planned,
        planned_open,
        plans,
    )

__all__ = ["stages", "tiled", "tiled_ways"]

WEIGHT_AXES: Final = 3
"""Those of a weight that is transformed: products of a tile, channels, outputs."""


def tiled(of: Stages, facts: Facts, machine: Machine) -> Stages | None:
    """The stages of a Winograd convolution, None where they are none or its weight not known."""
    if (parts := _parts(of, facts)) is None:
        return None
    fold, epilogue, any_ = parts
    if (shape := found(fold)) is None:
        way = planned_open(any_, machine)
        return None if way is None else OpenWinogradWriter(of, fold, epilogue, any_, *way).formed()
    plan = planned(shape, machine)
    return None if plan is None else WinogradWriter(of, fold, epilogue, shape, plan).formed()


def tiled_ways(
    of: Stages, facts: Facts, machine: Machine, most: int
) -> Iterator[tuple[str, Stages]]:
    """The same by other plans for one core or a team of them, the best of each block before the
    second best of any: blocks of tiles and tiles of products, which name them."""
    parts = _parts(of, facts)
    if parts is None or (shape := found(parts[0])) is None:
        return
    fold, epilogue, _ = parts
    nth: dict[tuple[int, int, int], int] = {}
    ways: list[tuple[int, WinogradPlan]] = []
    for plan in plans(shape, machine):
        block = (plan.rows, plan.columns, plan.teams)
        nth[block] = nth.get(block, -1) + 1
        ways.append((nth[block], plan))
    for _, plan in sorted(ways, key=lambda each: each[0])[:most]:
        name = f"{plan.rows}x{plan.columns}-{plan.tile.vectors}x{plan.tile.steps}-{plan.teams}"
        yield name, WinogradWriter(of, fold, epilogue, shape, plan).formed()


def _parts(of: Stages, facts: Facts) -> tuple[Each, Each | None, AnyWinograd] | None:
    """The stage that is a Winograd convolution, what is done with its results, and what it is."""
    if not all(isinstance(each, Each) for each in of.stages):
        return None
    if not any(len(each.shape) == WEIGHT_AXES for each in of.inputs):
        return None
    every = pairs(of)
    if len(every) != 1:
        return None
    ((fold, epilogue),) = every
    any_ = found_open(fold)
    if any_ is None or any_.x.dtype not in (f32, f64):
        return None
    return (fold, epilogue, any_) if facts.constant[of.inputs.index(any_.weight)] else None
