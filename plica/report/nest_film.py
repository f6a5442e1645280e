"""Nest films: the loops of a kernel at every step, with their costs.

    stages     what the fused operators compute, a line a tensor
    form       the form that was chosen for it, as blocks and loops
    schedule   the kernel after every step of its trace
    lower      the kernel after every lowering pass that changed it

>>> from plica.ir.loop.tensor import buffer, compute
>>> from plica.ir.loop.stages import kernel_of, stages_of
>>> from plica.ir.type.dtype import f32
>>> from plica.schedule import block, do, loops, split, trace_of
>>> x = buffer("x", (8,), f32)
>>> double = kernel_of(stages_of(compute((x,), (8,), lambda i: x[i] * 2.0)))
>>> @do
... def halves():
...     i, = yield loops((yield block(0)))
...     yield split(i, (None, 4))
>>> [each.title for each in of_trace(trace_of(halves, double), double)][-1]
'split loop 1.0 (None, 4)'
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from attrs import evolve, frozen

from plica.analysis.statement import LoweringRefused
from plica.codegen.lower.passes import LOWERING, lower as lower_kernel
from plica.codegen.native import NativeKernel, shape_of
from plica.codegen.operation_count import operations
from plica.ir.loop.statement import Kernel
from plica.ir.passes import Pipeline
from plica.ir.text.show.kernel import show_kernel
from plica.report.line_table import LineTable
from plica.schedule.default import Machine
from plica.schedule.diff import described
from plica.schedule.replay import begin, states
from plica.schedule.trace import Trace
from plica.search.feature import Packs, features
from plica.search.model import Analytical

Level: TypeAlias = Literal["stages", "form", "schedule", "lower"]

Clock: TypeAlias = Callable[[Callable[[], object]], float]  # returns the seconds of a call

NAME: Final = "kernel"
SEED: Final = 0


@frozen(eq=False)
class NestFrame:
    """A state of a kernel: the step that led to it, its text, and what it costs.

    `cycles` is the analytical model's estimate, `seconds` the measured time.
    """

    level: Level
    title: str
    text: str
    kernel: Kernel | None = None
    why: str = ""
    cycles: float | None = None
    seconds: float | None = None
    refused: str = ""


def of_trace(trace: Trace, kernel: Kernel) -> Iterator[NestFrame]:
    """The initial kernel of a schedule, and the kernel after each of its steps."""
    first = begin(kernel).kernel
    yield NestFrame("schedule", "before the schedule", show_kernel(first, NAME), first)
    last, text = first, show_kernel(first, NAME)
    for step, state in zip(trace.steps, states(trace, kernel), strict=True):
        if state.kernel is not last:
            last, text = state.kernel, show_kernel(state.kernel, NAME)
        yield NestFrame("schedule", described(step), text, state.kernel)


def of_lowering(kernel: Kernel, passes: Pipeline = LOWERING["cpu"]) -> Iterator[NestFrame]:
    """The kernel after each lowering pass that changed it; where one refuses it ends."""
    for pass_ in passes:
        try:
            made = pass_.run(kernel)
        except LoweringRefused as refusal:
            yield NestFrame("lower", pass_.name, show_kernel(kernel, NAME), kernel, pass_.why,
                            refused=refusal.reason)  # fmt: skip
            return
        if made is not kernel:
            yield NestFrame("lower", pass_.name, show_kernel(made, NAME), made, pass_.why)
        kernel = made


def with_costs(frames: Iterable[NestFrame], machine: Machine) -> list[NestFrame]:
    """Frames with the cycles that the analytical model expects, up to lowering."""
    known: dict[Kernel, float] = {}
    nest_frames: list[NestFrame] = []
    for frame in frames:
        if frame.kernel is None or frame.level == "lower":
            nest_frames.append(frame)
            continue
        if frame.kernel not in known:
            known[frame.kernel] = cycles_of(frame.kernel, machine)
        nest_frames.append(evolve(frame, cycles=known[frame.kernel]))
    return nest_frames


def cycles_of(kernel: Kernel, machine: Machine) -> float:
    """The estimated cycles of a kernel."""
    return float(Analytical().cycles(Packs.of([features(kernel, machine)]))[0])


def with_times(frames: Sequence[NestFrame], clock: Clock, fused: bool) -> list[NestFrame]:
    """Frames with the measured seconds of their kernels, or why they cannot run."""
    known: dict[Kernel, float | str] = {}
    nest_frames: list[NestFrame] = []
    for frame in frames:
        if frame.kernel is None or frame.level == "lower":
            nest_frames.append(frame)
            continue
        if frame.kernel not in known:
            known[frame.kernel] = timed(frame.kernel, clock, fused)
        took = known[frame.kernel]
        nest_frames.append(
            evolve(frame, refused=took) if isinstance(took, str) else evolve(frame, seconds=took)
        )
    return nest_frames


def timed(kernel: Kernel, clock: Clock, fused: bool) -> float | str:
    """The seconds of a kernel on one thread, or why it cannot be lowered."""
    try:
        lowered = lower_kernel(kernel)
    except LoweringRefused as refusal:
        return refusal.reason
    native = NativeKernel(lowered, fused)
    random = np.random.default_rng(SEED)
    arrays = [
        random.standard_normal(shape_of(param)).astype(param.dtype.numpy)
        for param in lowered.params[: lowered.inputs]
    ]
    return clock(lambda: native(arrays))


def to_data(frames: Sequence[NestFrame], table: LineTable) -> list[list[Any]]:
    """Frames as JSON data: level, title, why, cycles, seconds, refusal, delta of the text."""
    found: list[list[Any]] = []
    old = ""
    for frame in frames:
        delta = [] if frame.text == old else table.delta(old, frame.text)
        found.append(
            [frame.level, frame.title, frame.why, frame.cycles, frame.seconds, frame.refused, delta]
        )
        old = frame.text
    return found


def work_of(kernel: Kernel) -> tuple[int, int]:
    """The operations on floats of a kernel, and the bytes of its inputs and outputs."""
    touched = 0
    for param in kernel.params:
        size = param.dtype.bytes
        for extent in shape_of(param):
            size *= extent
        touched += size
    return operations(kernel), touched
