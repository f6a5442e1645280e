"""General rules: schedules for work of which no rule of thumb knows anything.

untuned    what a build without tuning does, where that is not the first rule of thumb
rows       a reduction along rows with more or fewer sums side by side
sums       terms of a reduction side by side, whatever axis they are on
tiling     tiles at several levels, for anything with a reduction
each       vectors, for anything that computes each element for itself
general    the work as it is by the general template, where a build without tuning does that
loops      the forms of installed libraries by the general template

>>> from plica.ir.text.script import from_text
>>> from plica.schedule.default import Machine
>>> from plica.search.space import DOUBLED
>>> trace = elementwise(from_text(DOUBLED).values[0], Machine(256, 16))
>>> trace.decisions()
{2: (1, 8)}
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import prod
from typing import Final

from attrs import evolve

from plica.analysis.site import map_of
from plica.codegen.lower.processor import by_default
from plica.ir.contract import exact
from plica.ir.loop import Each, Kernel, Stages, reductions
from plica.ir.loop.statement import Store
from plica.ir.type import known
from plica.schedule import primitive as pr
from plica.schedule.default import Machine, default_trace, formed
from plica.schedule.default.choose import fallback_schedule
from plica.schedule.default.reduction import AT_ONCE, row_form
from plica.schedule.default.row import chain_form
from plica.schedule.default.share import shared
from plica.schedule.default.summed import in_free_order
from plica.schedule.do import Body, decided, do, trace_if_legal
from plica.schedule.form import UNCHANGED, installed
from plica.schedule.handle import Handle
from plica.schedule.instruction import Decision
from plica.schedule.trace import Trace
from plica.search.sketch.heuristic import collapsed_query, other_traces
from plica.search.sketch.split_sum import split_sums
from plica.search.sketch.template import opened
from plica.search.sketch.tiling import every_tiling
from plica.search.sketch_rule import Query, SketchRule, hoisted_kernel

SUMS_SIDE_BY_SIDE: Final = (1, 2, 8)  # sums of a row at once, besides the usual number


def untuned_forms(of: Query, machine: Machine) -> Iterator[tuple[str, Stages]]:
    """The form of an untuned build, unless it is that of the first rule of thumb."""
    whole = collapsed_query(of)
    candidate = by_default(whole.stages, of.facts, machine)
    if candidate is None or candidate.form.form == UNCHANGED:
        return
    form, first = candidate.form, formed(whole.stages, of.facts, machine)
    begun = hoisted_kernel(form.stages, of.facts.constant).kernel
    known = default_trace(begun, machine, form.templates)
    if first is None or first.stages is not form.stages or known is not candidate.trace:
        yield form.form, form.stages


def untuned_traces(of: Kernel, machine: Machine) -> Iterator[tuple[str, Trace]]:
    """The schedule of a build without tuning."""
    trace = default_trace(of, machine) or fallback_schedule(of, machine)[0]
    yield "default", opened(trace, of, machine.registers)


def row_forms(of: Query, machine: Machine) -> Iterator[tuple[str, Stages]]:
    """Reductions along rows, cut otherwise."""
    if not of.facts.reassociates:
        return
    loose = of.facts.approximates
    for most in SUMS_SIDE_BY_SIDE:
        assert most != AT_ONCE
        stages = row_form(of.stages, machine, most) or chain_form(
            of.stages, machine, most, approximates=loose
        )
        if stages is not None:
            yield f"rows{most}", stages


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


def unchanged_forms(of: Query, machine: Machine) -> Iterator[tuple[str, Stages]]:
    """The work unchanged, if an untuned build has no form for it."""
    whole = collapsed_query(of).stages
    candidate = by_default(whole, of.facts, machine)
    if candidate is not None and candidate.form.form == UNCHANGED:
        yield UNCHANGED, whole


def general_traces(of: Kernel, machine: Machine) -> Iterator[tuple[str, Trace]]:
    """The schedule by the general template."""
    yield "default", opened(fallback_schedule(of, machine)[0], of, machine.registers)


UNROLLED_VECTORS: Final = (1, 2, 4, 8)  # how many vectors are written out
JOINED: Final = -1  # lanes over all axes as if they were one
SHARED: Final = 1 << 15  # fewer elements than that are not worth waking other cores


def every_way(kernel: Kernel, machine: Machine) -> Iterator[tuple[str, Trace]]:
    """The schedules, by where lanes go: along rows, over all axes, along each other axis."""
    if (trace := elementwise(kernel, machine)) is not None:
        yield "vectors", trace
    if (sizes := _sizes(kernel)) is None:
        return
    if (trace := elementwise(kernel, machine, JOINED)) is not None:
        yield "joined", trace
    for axis, size in enumerate(sizes[:-1]):
        if size > 1 and (trace := elementwise(kernel, machine, axis)) is not None:
            yield f"along{axis}", trace


@lru_cache(maxsize=256)
def elementwise(kernel: Kernel, machine: Machine, along: int | None = None) -> Trace | None:
    """The schedule with lanes along an axis, by default the last; None for other kernels."""
    if (sizes := _sizes(kernel)) is None:
        return None
    (site,) = map_of(kernel).blocks.values()
    of, body = site.node, site.node.body
    assert isinstance(body, Store)
    joins = along == JOINED
    if joins and len(sizes) < 2:
        return None
    axis = len(sizes) - 1 if along is None else along
    row = prod(sizes) if joins else sizes[axis]
    pairs = _pairs(row, machine.lanes(body.buffer.dtype))
    shares = machine.cores > 1 and prod(sizes) >= SHARED

    @do
    def schedule() -> Body:
        block = yield pr.block(str(of.label))
        every: tuple[Handle, ...] = yield pr.loops(block)
        outer: list[Handle] = []
        if joins:
            last = yield pr.fuse(*every)
        else:
            outer, last = [one for at, one in enumerate(every) if at != axis], every[axis]
        written, lanes = yield decided(pr.sample_tuple(pairs), *pairs[0])
        pieces, several, lane = yield pr.split(last, (None, written, lanes))
        if outer and last is not every[-1]:
            yield pr.reorder(*outer, pieces, several, lane)
        yield pr.unroll(several)
        yield pr.vectorize(lane)
        if shares:
            yield from shared(outer or [pieces])

    return trace_if_legal(schedule(), kernel)


def _sizes(kernel: Kernel) -> list[int] | None:
    """The extents of the loops of a kernel that computes each element for itself."""
    blocks = list(map_of(kernel).blocks.values())
    if len(blocks) != 1 or not blocks[0].loops:
        return None
    (site,) = blocks
    sizes = [known(loop.extent) or 0 for loop in site.loops]
    plain = site.node.init is None and isinstance(site.node.body, Store)
    return sizes if plain and all(sizes) else None


def _pairs(row: int, lanes: int) -> tuple[Decision, ...]:
    """Vectors and their lanes, the usual ones first."""
    wide = [lanes, *[each for each in (lanes // 2, lanes * 2, lanes * 4) if each > 1]]
    found = [(u, v) for v in wide for u in UNROLLED_VECTORS if row % (u * v) == 0]
    return tuple(found or [(1, v) for v in wide if v < 2 * row] or [(1, 1)])


UNTUNED: Final = SketchRule("untuned", untuned_forms, untuned_traces)
ROWS: Final = SketchRule("rows", row_forms, other_traces)
TILING: Final = SketchRule("tiling", tiling_forms, every_tiling)
SUMS: Final = SketchRule("sums", sum_forms, split_sums)
EACH: Final = SketchRule("each", each_forms, every_way)
GENERAL: Final = SketchRule("general", unchanged_forms, general_traces)
LOOPS: Final = SketchRule("loops", _installed_forms, general_traces)
