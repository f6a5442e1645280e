"""Winograd convolutions: the kernel of one, where some work is one.

The form has the loops it should have already (`winograd_nest`), by a plan for the machine
(`winograd_plan`), so nothing is left for a trace to do.

>>> from plica.ir.op.winograd import conv_winograd
>>> from plica.ir.tensor import buffer
>>> x, w = buffer("x", (1, 32, 8, 8), f32), buffer("w", (36, 32, 32), f32)
>>> of = Work(conv_winograd.compute({"tile": 4, "padding": 1}, x, w))
>>> made = tiled(of, (False, True), Machine(512, 32))
>>> [[size.value for size in each.shape] for each in made.scratch]
[[10, 10, 32], [36, 2, 4, 16], [36, 2, 4, 16]]
"""

from __future__ import annotations

from plica.ir.dtype import f32, f64
from plica.ir.loop import Block, Kernel, statements
from plica.schedule.default.contraction import Work
from plica.schedule.default.form import Formed
from plica.schedule.default.machine import Machine
from plica.schedule.default.winograd_nest import Nest
from plica.schedule.default.winograd_plan import found, planned


def tiled(of: Work, constant: tuple[bool, ...], machine: Machine) -> Formed | None:
    """The kernel of a Winograd convolution, None where the work is none or its weight not known."""
    shape = found(of)
    if shape is None or shape.x.dtype not in (f32, f64):
        return None
    if not constant[of.compute.inputs.index(shape.weight)]:
        return None
    plan = planned(shape, machine)
    return None if plan is None else Nest(of, shape, plan).formed()


def is_tiled(kernel: Kernel) -> bool:
    """Whether a kernel is one of these: it has loops, and no block that could still be moved."""
    return not any(isinstance(each, Block) for each in statements(kernel.body))
