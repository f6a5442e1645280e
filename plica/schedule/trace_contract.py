"""The float contract of a trace: how far its steps together may move a float.

Most steps move work and are exact. Those that reorder a reduction are `reassociates`, and zero
padding of a sum may change the sign of a zero (`signless_zero`). A step's contract depends on its
scene: reordering loops without a reduction is `exact`.

>>> from plica.schedule.trace import Trace
>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.stage import placeholder, stage
>>> from plica.ir.loop.stages import kernel_of, stages
>>> x = placeholder("x", (3,), f32)
>>> kernel = kernel_of(stages((x,), (stage("y", (3,), lambda i: x[i] + x[i]),)))
>>> str(trace_contract(Trace(()), kernel))
'exact'
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, pairwise

from plica.ir.contract import Contract, join
from plica.ir.loop.statement import Kernel
from plica.schedule.replay import begin, states
from plica.schedule.trace import Trace


def step_contracts(trace: Trace, kernel: Kernel) -> Iterator[Contract]:
    """The contract of each step at its place; raises `ScheduleRefused` at an illegal one."""
    before = chain((begin(kernel),), states(trace, kernel))
    for step, (state, _) in zip(trace.steps, pairwise(before), strict=True):
        yield step.instruction.keeps(state.scene)


def trace_contract(trace: Trace, kernel: Kernel) -> Contract:
    """The strictest contract that all steps of a trace keep."""
    return join(step_contracts(trace, kernel))
