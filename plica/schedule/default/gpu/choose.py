"""Choose: the schedule of a kernel for threads by rules of thumb.

>>> from plica.ir.script import from_text
>>> kernel = from_text(DOUBLED).values[0]
>>> "threadIdx.x" in gpu_trace(kernel, Gpu()).to_python()
True
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from plica.core.collector import paused
from plica.ir.loop import Kernel
from plica.schedule.default.gpu.machine import Gpu
from plica.schedule.default.gpu.shape import inlined, stages
from plica.schedule.default.gpu.spread import spread
from plica.schedule.do import Block, Body, do, run
from plica.schedule.problem import ScheduleRefused
from plica.schedule.replay import begin
from plica.schedule.trace import Trace


def gpu_trace(kernel: Kernel, gpu: Gpu) -> Trace | None:
    """The schedule of a kernel by rules of thumb, None where there is none for it."""
    found = gpu_schedule(kernel, gpu)
    return None if found is None else found[0]


@lru_cache(maxsize=1024)
def gpu_schedule(kernel: Kernel, gpu: Gpu) -> tuple[Trace, Kernel] | None:
    """The trace, and the kernel it makes."""
    every = stages(begin(kernel).kernel)
    if not every:
        return None
    bare = _recorded(inlined(tuple([each.label for each in every[:-1]])), kernel)
    left = None if bare is None else stages(bare[1])
    if not left:
        return None

    @do
    def whole() -> Body:
        yield inlined(tuple([each.label for each in every[:-1]]))
        yield spread(left[-1], left[:-1], gpu)

    return _recorded(whole(), kernel)


def _recorded(schedule: Block, kernel: Kernel) -> tuple[Trace, Kernel] | None:
    """The trace of a schedule; one that is not shown to be legal is none."""
    with paused():
        try:
            steps, state, _ = run(schedule, kernel, 0, {})
        except ScheduleRefused:
            return None
    return Trace(steps), state.kernel


DOUBLED: Final = """
from plica.script import Buffer, block, f32, grid
import plica

@plica.kernel
def doubled(x: Buffer[(64,), f32], y: Buffer[(64,), f32]):
    for i in grid(64):
        with block("out", spatial=(i,)):
            y[i] = x[i] * 2.0
"""
"""A kernel for examples."""
