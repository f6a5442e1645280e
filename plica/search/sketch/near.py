"""Near copies: data with room around it is copied row by row, where it is used.

pad[c, i, j] = x[c, i - 1, j - 1] if inside        for tiles of outputs, rows i:
for tiles of outputs, rows i:               -->        pad[c, i : i + 3, j] = …      near
    sum over pad                                       sum over pad

Where intermediate results are computed: at a loop of their readers that is drawn, or nowhere.

location   each intermediate block moves into a loop of its first reader, which one is a decision
scalars    blocks that read nothing, one number each, are put where they are read

Both are for works of several stages.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import Final

from attrs import evolve

from plica.analysis.site import map_of
from plica.ir.loop import Alloc, Buffer, Each, Kernel, Stages, kernel_of, loads
from plica.ir.type import known
from plica.schedule import primitive as pr
from plica.schedule.default import Machine, default_trace
from plica.schedule.default.role import contraction_blocks, made_by, roles
from plica.schedule.do import Body, do, trace_of
from plica.schedule.handle import Handle
from plica.schedule.hoist import hoist
from plica.schedule.primitive.compute_at import ComputeAt, ReverseComputeAt
from plica.schedule.primitive.look_up import GetBlock, GetLoops
from plica.schedule.primitive.loop_kind import Vectorize
from plica.schedule.problem import ScheduleRefused
from plica.schedule.trace import Step, Trace, renumbered
from plica.search.sketch.heuristic import forms as thumb_forms
from plica.search.sketch.template import opened, scenes_of
from plica.search.sketch.variant import tiled
from plica.search.sketch_rule import Query, SketchRule


def forms(of: Query, machine: Machine) -> Iterator[tuple[str, Stages]]:
    """Contractions whose data is copied, with the copy as their own affair."""
    for name, form in thumb_forms(of, machine):
        rest = hoist(form, of.facts.constant).rest
        if len(rest.scratch) == 1 and _copy(kernel_of(rest)) is rest.scratch[0]:
            outside = [output for output in form.outputs if output is not rest.scratch[0]]
            yield name, evolve(form, outputs=tuple(outside))


def _copy(of: Kernel) -> Buffer | None:
    """The copy that a contraction reads its data from, or None."""
    blocks = None if roles(of) is None else contraction_blocks(of, runs=True)
    return None if blocks is None or blocks.data is None else made_by(blocks.data)


def _outside(kernel: Kernel) -> Kernel | None:
    """The kernel with that buffer as a parameter, as rules of thumb know it."""
    body = kernel.body
    if not isinstance(body, Alloc) or _copy(kernel) is not body.buffer:
        return None
    params = (*kernel.params[: kernel.inputs], body.buffer, *kernel.params[kernel.inputs :])
    return evolve(kernel, params=params, body=body.body)


def traces(of: Kernel, machine: Machine) -> Iterator[tuple[str, Trace]]:
    """The default schedule, with the copy inside the loop over rows."""
    whole = _outside(of)
    first = None if whole is None else default_trace(whole, machine)
    if whole is None or first is None:
        return
    blocks = [
        number
        for number, step in enumerate(first.steps)
        if isinstance(step.instruction, GetBlock) and _is_pad(first, whole, number)
    ]
    places = [n for n, s in enumerate(first.steps) if isinstance(s.instruction, ReverseComputeAt)]
    order = tiled(first, whole)
    if len(blocks) != 1 or len(places) != 1 or order is None or len(order.around) < 2:
        return
    # What reads the copy is in its loop by then: the sums of runs are moved into it, too.
    moves = [n for n, s in enumerate(first.steps) if isinstance(s.instruction, ComputeAt)]
    place = max(places[0], *moves, 0) + 1
    trace = _moved(first, blocks[0], place, order.around[-2])
    try:
        scene = scenes_of(trace, of)[-1]
    except ScheduleRefused:
        return
    block = Handle(place, 0, "block")
    finish = first.steps[places[0]].instruction
    assert isinstance(finish, ReverseComputeAt)
    if scene.missing(GetLoops(block)) or scene.missing(GetLoops(finish.block)):
        return  # a later step took one of them away
    every = scene.block(block).loops
    shared = {loop.var for loop in scene.block(finish.block).loops}
    own = [loop for loop in every if loop.var not in shared]
    copied = prod([known(loop.extent) or 1 for loop in own])
    if own and copied * of.params[-1].dtype.bytes <= machine.near:
        last = Handle(len(trace), len(every) - 1, "loop")
        steps = (*trace.steps, Step(GetLoops(block)), Step(Vectorize(last)))
        yield "rows", opened(Trace(steps), of, machine.registers)


def _is_pad(trace: Trace, kernel: Kernel, number: int) -> bool:
    label = scenes_of(trace, kernel)[number + 1].outputs[Handle(number, 0, "block")]
    blocks = contraction_blocks(kernel, runs=True)
    return blocks is not None and blocks.data is not None and blocks.data.label == label


def _moved(trace: Trace, block: int, place: int, loop: Handle) -> Trace:
    """The trace without what it does to a block in the end; that is computed at a loop instead."""
    later = {n: n + 2 * (n >= place) for n in range(len(trace))}
    head = trace.steps[:place]
    tail = [renumbered(step, later) for step in trace.steps[place:block]]
    asked = Step(trace.steps[block].instruction)
    return Trace((*head, asked, Step(ComputeAt(Handle(place, 0, "block"), loop)), *tail))


NEARBY: Final = SketchRule("near", forms, traces)


# --- where intermediate results are computed ---------------------------------------------------


def located_forms(of: Query, machine: Machine) -> Iterator[tuple[str, Stages]]:
    """The work unchanged, if it has several stages of static size."""
    sizes = [size for buffer in (*of.stages.inputs, *of.stages.made) for size in buffer.shape]
    if len(of.stages.stages) > 1 and all(known(size) for size in sizes) and not of.stages.dims:
        yield "plain", of.stages


def located_traces(of: Kernel, machine: Machine) -> Iterator[tuple[str, Trace]]:
    """Every intermediate block moves to a loop of its reader."""
    labels = [str(label) for label in map_of(of).blocks]

    @do
    def located() -> Body:
        for label in reversed(labels[:-1]):
            made = yield pr.block(label)
            try:
                number = yield pr.sample_compute_location(made)
            except ScheduleRefused:
                continue  # an output, or there is no such place
            yield pr.compute_at(made, (yield pr.reader_loop(made, number)))

    trace = trace_of(located, of)
    if trace.decisions():
        yield "drawn", trace


def scalar_forms(of: Query, machine: Machine) -> Iterator[tuple[str, Stages]]:
    """The work unchanged, if some stage reads nothing."""
    if any(
        isinstance(stage, Each) and not list(loads(stage.value)) for stage in of.stages.stages[:-1]
    ):
        yield from located_forms(of, machine)


def scalar_traces(of: Kernel, machine: Machine) -> Iterator[tuple[str, Trace]]:
    """Blocks that read nothing are inlined."""
    labels = [str(label) for label, site in map_of(of).blocks.items() if not list(loads(site.node))]

    @do
    def inlined() -> Body:
        for label in labels:
            try:
                yield pr.compute_inline((yield pr.block(label)))
            except ScheduleRefused:
                continue

    trace = trace_of(inlined, of)
    if any(step.instruction.kind == "compute_inline" for step in trace.steps):
        yield "inlined", trace


LOCATION: Final = SketchRule("location", located_forms, located_traces)
SCALARS: Final = SketchRule("scalars", scalar_forms, scalar_traces)
