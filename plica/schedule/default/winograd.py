"""Winograd convolutions: stages that a template schedules, or for open sizes finished loops.

Of a known size a convolution is a bilinear form, and its schedule a trace.  The loops of open sizes
are written by `winograd_open`.

>>> from plica.ir.loop.stage import Each
>>> from plica.ir.loop.stages import stages
>>> from plica.ir.loop.tensor import buffer
>>> from plica.ir.op.winograd import conv_winograd
>>> from plica.ir.type.dtype import f32
>>> x, w = buffer("x", (1, 32, 8, 8), f32), buffer("w", (36, 32, 32), f32)
>>> of = conv_winograd.compute({"tile": 4, "padding": 1}, x, w)
>>> conv = Each(buffer("y", of.shape, f32), of.axes, of.body)
>>> form = winograd_form(stages((x, w), (conv,)), Facts((False, True)), Machine(512, 32))
>>> len(form.stages)
8
"""

from __future__ import annotations

from typing import Final

from plica.ir.loop.stages import Stages
from plica.runtime.late import lazy_imports
from plica.schedule.default.machine import Machine
from plica.schedule.form import Facts

with lazy_imports(__name__):
    from plica.schedule.default.bilinear import bilinear_form, winograd_parts
    from plica.schedule.default.winograd_open import OpenWinogradWriter
    from plica.schedule.default.winograd_plan import planned_open

WEIGHT_AXES: Final = 3
"""Those of a weight that is transformed: products of a tile, channels, outputs."""


def winograd_form(of: Stages, facts: Facts, machine: Machine) -> Stages | None:
    """The stages of a Winograd convolution, None where they are none or its weight not known."""
    if not any(len(each.shape) == WEIGHT_AXES for each in of.inputs):
        return None
    return open_winograd(of, facts, machine) if of.dims else bilinear_form(of, facts, machine)


def open_winograd(of: Stages, facts: Facts, machine: Machine) -> Stages | None:
    """The same of an open size, with the loops it should have."""
    if (parts := winograd_parts(of, facts)) is None:
        return None
    fold, epilogue, work = parts
    plan = planned_open(work, machine)
    if plan is None:
        return None
    return OpenWinogradWriter(of, fold, epilogue, work, *plan).formed()
