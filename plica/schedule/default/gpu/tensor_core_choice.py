"""Which products go to tensor cores, and in which tiles.

Large tiles read less, small ones keep more processors busy: of the tiles that divide the sizes the
first is taken that gives every processor one, else the smallest.

>>> from plica.ir.dtype import f16, f32
>>> from plica.ir.scalar import Cast
>>> from plica.ir.tensor import buffer, compute, reduce
>>> x, w = buffer("x", (256, 64), f16), buffer("w", (64, 256), f16)
>>> dense = compute(
...     (x, w), (256, 256),
...     lambda m, n: reduce("sum", (64,), lambda k: Cast(x[m, k], f32) * Cast(w[k, n], f32)),
... )
>>> form, trace, kernel = tensor_core_product(Work(dense), Gpu())
>>> "cuda.mma_f16_2x4_kn" in trace.to_python()
True
"""

from __future__ import annotations

from typing import Final

from plica.core.collector import paused
from plica.ir.loop import Kernel
from plica.schedule.default.contraction import Work
from plica.schedule.default.gpu.form import ProductForm
from plica.schedule.default.gpu.machine import Gpu
from plica.schedule.default.gpu.tensor_core import Warps, tensor_core
from plica.schedule.default.gpu.tensor_core_form import tensor_core_form
from plica.schedule.do import run
from plica.schedule.problem import ScheduleRefused
from plica.schedule.trace import Trace

WARPS: Final = (
    Warps(2, 4, 4, 8, 2, ahead=3),
    Warps(2, 2, 4, 8, 2, ahead=3),
    Warps(2, 2, 4, 4, 2, ahead=3),
    Warps(2, 2, 2, 4, 2, ahead=3),
)
"""Tiles from large to small."""


def tensor_core_product(of: Work, gpu: Gpu) -> tuple[ProductForm, Trace, Kernel] | None:
    """The form of a product of f16, its trace and the kernel it makes; None for other work."""
    best: tuple[Warps, ProductForm] | None = None
    for warps in WARPS:
        form = tensor_core_form(of, warps)
        if form is None:
            continue
        best = warps, form
        rows, columns, _ = warps.tile
        if form.sizes[1] // rows * (form.sizes[2] // columns) >= gpu.processors:
            break
    if best is None:
        return None
    warps, form = best
    with paused():
        try:
            steps, state, _ = run(tensor_core(warps, form.along, form.labels), form.kernel, 0, {})
        except ScheduleRefused:
            return None
    return form, Trace(steps), state.kernel
