"""Which products go to tensor cores, and in which tiles.

Large tiles read less, small ones keep more processors busy: of the tiles that divide the sizes that
one is taken with which the slowest processor has least to do.

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

from math import gcd
from typing import Final

from attrs import evolve

from plica.core.collector import paused
from plica.ir.loop import Kernel
from plica.schedule.default.contraction import Work
from plica.schedule.default.gpu.form import ProductForm
from plica.schedule.default.gpu.machine import Gpu
from plica.schedule.default.gpu.tensor_core import Warps, tensor_core
from plica.schedule.default.gpu.tensor_core_form import NARROW, tensor_core_form
from plica.schedule.do import run
from plica.schedule.problem import ScheduleRefused
from plica.schedule.trace import Trace

GROUPS: Final = (
    Warps(2, 1, 1, 32, 4, ahead=2, together=True, near=8),
    Warps(2, 1, 1, 16, 4, ahead=3, together=True, near=8),
    Warps(1, 1, 1, 16, 4, ahead=4, together=True, near=8),
)
"""Tiles of warps that multiply together."""

WARPS: Final = (
    Warps(2, 4, 4, 8, 2, ahead=3),
    Warps(2, 2, 4, 8, 2, ahead=3),
    Warps(2, 2, 4, 4, 2, ahead=3),
    Warps(2, 2, 2, 4, 2, ahead=3),
)
"""Tiles from large to small."""


DECLARED: Final = tuple(
    [
        warps.multiplies((left, right), dtype).name
        for warps in (*GROUPS, *WARPS)
        for left in (True, False)
        for right in (True, False)
        for dtype in NARROW
    ]
)
"""What traces of theirs name, which so can be read back in a process that has made none."""


def tensor_core_product(of: Work, gpu: Gpu) -> tuple[ProductForm, Trace, Kernel] | None:
    """The form of a product of f16, its trace and the kernel it makes; None for other work."""
    for choices in (GROUPS, WARPS) if gpu.groups else (WARPS,):
        best: tuple[float, Warps, ProductForm] | None = None
        for warps in choices:
            form = tensor_core_form(of, warps)
            if form is None:
                continue
            cost = _cost(form, warps, gpu)
            if best is None or cost < best[0]:
                best = cost, warps, form
        if best is not None:
            found = _scheduled(best[2], best[1])
            if found is not None:
                return found
    return None


FETCH: Final = 96
"""What fetching an element of a row or a column costs, in products."""


def _cost(form: ProductForm, warps: Warps, gpu: Gpu) -> float:
    """What the processor that has most to do does, in products of a term."""
    rows, columns, _ = warps.tile
    tiles = form.sizes[1] // rows * (form.sizes[2] // columns)
    turns = -(-tiles // gpu.processors)
    return turns * rows * columns * (1 + FETCH / rows + FETCH / columns)


def _scheduled(form: ProductForm, warps: Warps) -> tuple[ProductForm, Trace, Kernel] | None:
    down = form.sizes[1] // warps.tile[0]
    fitting = evolve(warps, near=gcd(warps.near, down))
    dtype, count = form.kernel.params[0].dtype, warps.count(form.sizes)
    schedule = tensor_core(fitting, form.along, form.labels, dtype, count)
    with paused():
        try:
            steps, state, _ = run(schedule, form.kernel, 0, {})
        except ScheduleRefused:
            return None
    return form, Trace(steps), state.kernel
