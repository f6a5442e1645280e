"""Where intermediate results are computed: at a loop of their readers that is drawn, or nowhere.

location   each intermediate block moves into a loop of its first reader, which one is a decision
scalars    blocks that read nothing, one number each, are put where they are read

Both are for works of several stages.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from plica.analysis.site import map_of
from plica.ir.loop import Each, Kernel, Stages, loads
from plica.ir.type import known
from plica.schedule import primitive as pr
from plica.schedule.default import Machine
from plica.schedule.do import Body, do, trace_of
from plica.schedule.problem import ScheduleRefused
from plica.schedule.trace import Trace
from plica.search.sketch_rule import Query, SketchRule


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

    found = trace_of(located, of)
    if found.decisions():
        yield "drawn", found


def scalar_forms(of: Query, machine: Machine) -> Iterator[tuple[str, Stages]]:
    """The work unchanged, if some stage reads nothing."""
    if any(
        isinstance(each, Each) and not list(loads(each.value)) for each in of.stages.stages[:-1]
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

    found = trace_of(inlined, of)
    if any(each.instruction.kind == "compute_inline" for each in found.steps):
        yield "inlined", found


LOCATION: Final = SketchRule("location", located_forms, located_traces)
SCALARS: Final = SketchRule("scalars", scalar_forms, scalar_traces)
