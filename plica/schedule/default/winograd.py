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

from typing import TYPE_CHECKING, Final

from plica.ir.loop.stage import Each
from plica.ir.loop.stages import Stages, pairs, stages
from plica.ir.type.dtype import f32, f64
from plica.runtime.late import late
from plica.schedule.default.machine import Machine
from plica.schedule.form import Facts

if TYPE_CHECKING:
    from plica.schedule.default.winograd_nest import WinogradWriter
    from plica.schedule.default.winograd_open import OpenWinogradWriter
    from plica.schedule.default.winograd_plan import found, found_open, planned, planned_open
else:
    found = late("plica.schedule.default.winograd_plan:found")
    found_open = late("plica.schedule.default.winograd_plan:found_open")
    planned = late("plica.schedule.default.winograd_plan:planned")
    planned_open = late("plica.schedule.default.winograd_plan:planned_open")
    OpenWinogradWriter = late("plica.schedule.default.winograd_open:OpenWinogradWriter")
    WinogradWriter = late("plica.schedule.default.winograd_nest:WinogradWriter")

__all__ = ["stages", "tiled"]

WEIGHT_AXES: Final = 3
"""Those of a weight that is transformed: products of a tile, channels, outputs."""


def tiled(of: Stages, facts: Facts, machine: Machine) -> Stages | None:
    """The stages of a Winograd convolution, None where they are none or its weight not known."""
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
    if not facts.constant[of.inputs.index(any_.weight)]:
        return None
    if (shape := found(fold)) is None:
        way = planned_open(any_, machine)
        return None if way is None else OpenWinogradWriter(of, fold, epilogue, any_, *way).formed()
    plan = planned(shape, machine)
    return None if plan is None else WinogradWriter(of, fold, epilogue, shape, plan).formed()
