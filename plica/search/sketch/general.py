"""General rules: schedules for work of which no rule of thumb knows anything.

rows       a reduction along rows with more or fewer sums side by side
tiling     tiles at several levels, for anything with a reduction
each       vectors, for anything that computes each element for itself
nest       the plain nest of loops, as it is
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from plica.core.fold import post_order
from plica.core.name import Name, fresh
from plica.ir.define import define
from plica.ir.dim import known
from plica.ir.scalar import Buffer, Load, Reduce, ScalarVar, dtype_of
from plica.ir.stage import Each
from plica.schedule.default import Formed, Machine, Work, default_trace, formed
from plica.schedule.default.contraction import bared, stored_in_place
from plica.schedule.default.reduction import AT_ONCE, row_form, with_element
from plica.schedule.default.row import chain_form
from plica.schedule.trace import Trace
from plica.search.rule import Asked, Rule
from plica.search.sketch.each import each
from plica.search.sketch.opened import opened
from plica.search.sketch.tiling import tiling

SIDE_BY_SIDE: Final = (1, 2, 8)
"""How many sums of a row are under way at once, besides what is usual."""


def row_forms(of: Asked, machine: Machine) -> Iterator[tuple[str, Formed]]:
    """Reductions along rows, cut otherwise."""
    if not of.reassociates:
        return
    for most in SIDE_BY_SIDE:
        assert most != AT_ONCE
        if of.chain is not None:
            found = chain_form(of.chain, machine, most, approximates=of.approximates)
        elif of.work is not None:
            found = row_form(bared(of.work), machine, most)
        else:
            found = None
        if found is not None:
            yield f"rows{most}", found


def row_traces(of: Formed, machine: Machine) -> Iterator[tuple[str, Trace]]:
    """The default schedule of such a kernel."""
    found = default_trace(of.kernel, machine)
    if found is not None:
        yield "default", opened(found, of.kernel, machine.registers)


def plain(of: Work) -> Formed | None:
    """The work as blocks that can be scheduled, and nothing else; None where sizes are not known,
    or where a result is stored elsewhere than it is made."""
    of = bared(of)
    compute = of.compute
    if not compute.axes or not all(known(size) for size in compute.shape):
        return None
    taken = {node.name for node in post_order(compute) if isinstance(node, Buffer | ScalarVar)}
    if of.value is None or of.reduced is None:
        out = Buffer(fresh(Name("out"), taken), compute.shape, compute.dtype)
        stages = [Each(out, compute.axes, compute.body)]
    elif stored_in_place(of):
        taken |= {n.name for n in post_order(of.value) if isinstance(n, Buffer | ScalarVar)}
        total = Buffer(fresh(Name("sum"), taken), compute.shape, compute.dtype)
        value = with_element(of.value, of.reduced, Load(total, compute.axes))
        out = Buffer(fresh(Name("out"), taken | {total.name}), compute.shape, dtype_of(value))
        stages = [Each(total, compute.axes, compute.body), Each(out, compute.axes, value)]
    else:
        return None
    return Formed(define(*stages, inputs=compute.inputs, outputs=(out,)), (), ())


def _reduces(of: Work) -> bool:
    return any(isinstance(node, Reduce) for node in post_order(of.compute.body))


def tiling_forms(of: Asked, machine: Machine) -> Iterator[tuple[str, Formed]]:
    """The work as it is, and as rules of thumb lay it out."""
    if of.work is None or not _reduces(of.work):
        return
    whole = plain(of.work)
    if whole is not None:
        yield "plain", whole
    found = formed(of.work, of.constant, machine, bytes_=of.bytes_)
    if found is not None:
        yield "formed", found


def tiling_traces(of: Formed, machine: Machine) -> Iterator[tuple[str, Trace]]:
    """Tiles at several levels."""
    found = tiling(of.kernel, machine)
    if found is not None:
        yield "tiled", found


def each_forms(of: Asked, machine: Machine) -> Iterator[tuple[str, Formed]]:
    """The work as it is, if it computes each element for itself."""
    whole = None if of.work is None or _reduces(of.work) else plain(of.work)
    if whole is not None:
        yield "plain", whole


def each_traces(of: Formed, machine: Machine) -> Iterator[tuple[str, Trace]]:
    """Vectors along rows."""
    found = each(of.kernel, machine)
    if found is not None:
        yield "vectors", found


def nest_forms(of: Asked, machine: Machine) -> Iterator[tuple[str, Formed]]:
    """The plain nest."""
    yield "plain", Formed(of.fused.kernel, (), ())


def nest_traces(of: Formed, machine: Machine) -> Iterator[tuple[str, Trace]]:
    """Nothing is changed."""
    yield "as_is", Trace(())


ROWS: Final = Rule("rows", row_forms, row_traces)
TILING: Final = Rule("tiling", tiling_forms, tiling_traces)
EACH: Final = Rule("each", each_forms, each_traces)
NEST: Final = Rule("nest", nest_forms, nest_traces)
