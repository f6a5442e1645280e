"""General rules: schedules for work of which no rule of thumb knows anything.

untuned    what a build without tuning does, where that is not the first rule of thumb
rows       a reduction along rows with more or fewer sums side by side
sums       terms of a reduction side by side, whatever axis they are on
tiling     tiles at several levels, for anything with a reduction
each       vectors, for anything that computes each element for itself
general    the work as it is by the general template, where a build without tuning does that
loops      the forms of installed libraries by the general template
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from attrs import evolve

from plica.codegen.lower.processor import by_default
from plica.ir.contract import exact
from plica.ir.loop import Each, Kernel, Stages, reductions
from plica.ir.type import known
from plica.schedule.default import Machine, default_trace, formed
from plica.schedule.default.choose import fallback_schedule
from plica.schedule.default.reduction import AT_ONCE, row_form
from plica.schedule.default.row import chain_form
from plica.schedule.default.summed import in_free_order
from plica.schedule.form import UNCHANGED, installed
from plica.schedule.trace import Trace
from plica.search.sketch.elementwise import every_way
from plica.search.sketch.heuristic import collapsed_query
from plica.search.sketch.split_sum import split_sums
from plica.search.sketch.template import opened
from plica.search.sketch.tiling import every_tiling
from plica.search.sketch_rule import Query, SketchRule, hoisted_kernel

SUMS_SIDE_BY_SIDE: Final = (1, 2, 8)  # sums of a row at once, besides the usual number


def untuned_forms(of: Query, machine: Machine) -> Iterator[tuple[str, Stages]]:
    """The form of an untuned build, unless it is that of the first rule of thumb."""
    whole = collapsed_query(of)
    found = by_default(whole.stages, of.facts, machine)
    if found is None or found.form.form == UNCHANGED:
        return
    form, first = found.form, formed(whole.stages, of.facts, machine)
    begun = hoisted_kernel(form.stages, of.facts.constant).kernel
    known = default_trace(begun, machine, form.templates)
    if first is None or first.stages is not form.stages or known is not found.trace:
        yield form.form, form.stages


def untuned_traces(of: Kernel, machine: Machine) -> Iterator[tuple[str, Trace]]:
    """The schedule of a build without tuning."""
    found = default_trace(of, machine) or fallback_schedule(of, machine)[0]
    yield "default", opened(found, of, machine.registers)


def row_forms(of: Query, machine: Machine) -> Iterator[tuple[str, Stages]]:
    """Reductions along rows, cut otherwise."""
    if not of.facts.reassociates:
        return
    loose = of.facts.approximates
    for most in SUMS_SIDE_BY_SIDE:
        assert most != AT_ONCE
        found = row_form(of.stages, machine, most) or chain_form(
            of.stages, machine, most, approximates=loose
        )
        if found is not None:
            yield f"rows{most}", found


def row_traces(of: Kernel, machine: Machine) -> Iterator[tuple[str, Trace]]:
    """The default schedule of such a kernel."""
    if (found := default_trace(of, machine)) is not None:
        yield "default", opened(found, of, machine.registers)


def _is_plain(of: Stages) -> bool:
    """Whether stages are blocks that can be scheduled directly: with axes of static size."""
    sizes = [size for buffer in (*of.inputs, *of.made) for size in buffer.shape]
    return bool(of.result.shape) and all(known(size) for size in sizes) and not of.dims


def _reduces(of: Stages) -> bool:
    return any(reductions(stage.value) for stage in of.stages if isinstance(stage, Each))


def _installed_forms(of: Query, machine: Machine) -> Iterator[tuple[str, Stages]]:
    """The forms of installed libraries for the work."""
    for form in installed():
        if (found := formed(of.stages, of.facts, machine, form.name)) is not None:
            yield form.name, found.stages


def tiling_forms(of: Query, machine: Machine) -> Iterator[tuple[str, Stages]]:
    """The work unchanged, in heuristic layouts, and in layouts of libraries."""
    if not _reduces(of.stages):
        return
    if _is_plain(of.stages):
        yield "plain", in_free_order(of.stages) if of.facts.reassociates else of.stages
    if (found := formed(of.stages, evolve(of.facts, contract=exact), machine)) is not None:
        yield "formed", found.stages
    yield from _installed_forms(of, machine)


def tiling_traces(of: Kernel, machine: Machine) -> Iterator[tuple[str, Trace]]:
    """Tiles at several levels."""
    yield from every_tiling(of, machine)


def sum_forms(of: Query, machine: Machine) -> Iterator[tuple[str, Stages]]:
    """The work unchanged, and with mergeable axes fused, if its sums may be reordered."""
    if not (of.facts.reassociates and _reduces(of.stages) and _is_plain(of.stages)):
        return
    yield "plain", in_free_order(of.stages)
    if (joined := collapsed_query(of).stages) is not of.stages:
        yield "joined", in_free_order(joined)


def each_forms(of: Query, machine: Machine) -> Iterator[tuple[str, Stages]]:
    """Elementwise work unchanged, with fused axes, and in layouts of libraries."""
    if _reduces(of.stages):
        return
    if _is_plain(of.stages):
        yield "plain", of.stages
        if (joined := collapsed_query(of).stages) is not of.stages:
            yield "joined", joined
    yield from _installed_forms(of, machine)


def each_traces(of: Kernel, machine: Machine) -> Iterator[tuple[str, Trace]]:
    """Vectors along rows, along other axes, and over all of them."""
    yield from every_way(of, machine)


def unchanged_forms(of: Query, machine: Machine) -> Iterator[tuple[str, Stages]]:
    """The work unchanged, if an untuned build has no form for it."""
    whole = collapsed_query(of).stages
    found = by_default(whole, of.facts, machine)
    if found is not None and found.form.form == UNCHANGED:
        yield UNCHANGED, whole


def general_traces(of: Kernel, machine: Machine) -> Iterator[tuple[str, Trace]]:
    """The schedule by the general template."""
    yield "default", opened(fallback_schedule(of, machine)[0], of, machine.registers)


UNTUNED: Final = SketchRule("untuned", untuned_forms, untuned_traces)
ROWS: Final = SketchRule("rows", row_forms, row_traces)
TILING: Final = SketchRule("tiling", tiling_forms, tiling_traces)
SUMS: Final = SketchRule("sums", sum_forms, split_sums)
EACH: Final = SketchRule("each", each_forms, each_traces)
GENERAL: Final = SketchRule("general", unchanged_forms, general_traces)
LOOPS: Final = SketchRule("loops", _installed_forms, general_traces)
