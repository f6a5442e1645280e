"""Touched boxes: the box of a buffer that stages touch in one iteration of the loops they share.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.statement import Store, block
>>> from plica.ir.loop.tensor import axis, buffer
>>> x, y = buffer("x", (14,), f32), buffer("y", (12,), f32)
>>> i, j, v = (axis(name) for name in "ijv")
>>> body = block("y", (v,), (12,), "s", (i * 4 + j,), Store(y, (v,), x[v] + x[v + 2]))
>>> nest = For(i, index(3), "serial", For(j, index(4), "serial", body))
>>> box = reached(tuple(stages(nest).values()), x, (nest,), EMPTY, written=False)
>>> box.extents[0]
Lit(6, DType('i64'))
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from plica.analysis.access import inside, unbound
from plica.analysis.coverage import reaches
from plica.analysis.dependence import scope_of
from plica.analysis.enclosing import shown, simple
from plica.analysis.index import EMPTY, Context
from plica.analysis.region import Box, hull, neighbours, relaxed, within_extents
from plica.analysis.site import Site, map_of
from plica.core import Term, free_vars, substitute
from plica.ir.loop.scalar import Add, Buffer, FloorDiv, Le, Lit, Scalar, ScalarVar, Sub, index
from plica.ir.loop.statement import Block, For, Kernel
from plica.ir.type import known
from plica.schedule.dataflow import FlowStage, common, stages
from plica.schedule.scope_edit import ValueSpan


def reached(
    users: Sequence[FlowStage], buffer: Buffer, shared: tuple[For, ...], context: Context, *,
    written: bool, over: tuple[For, ...] = (), guarded: bool = False,
) -> Box:  # fmt: skip
    """The part of a buffer that stages read, or write, in one iteration of loops around them.

    With `over` in all iterations of those of the loops; those `guarded` by predicates for no values
    of a variable beyond its extent.
    """
    found: Box | None = None
    for stage in users:
        block = stage.block
        values: dict[Term, Scalar] = dict(zip(block.vars, block.bindings, strict=True))
        inner = tuple([(loop.var, loop.extent) for loop in (*over, *stage.loops[len(shared) :])])
        if not shared:  # all instances: the variables themselves say more than loops with guards
            values, inner = {}, tuple(zip(block.vars, block.extents, strict=True))
        elif guarded:
            values, inner = within_extents(block, inner)
        mine = [e for e in inside(block) if e.buffer is buffer and e.written is written]
        for access in neighbours(mine):
            box = relaxed(access, values, inner, context)
            found = box if found is None else hull(found, box, context)
    assert found is not None, f"nobody touches {buffer.name}"
    return _trimmed(found, context)


def _trimmed(box: Box, context: Context) -> Box:
    """The box cut off at the ends of its buffer, where that is no matter of cases.

    Otherwise the axis is unchanged: a predicate on a loop of constant extent is better than none.
    """
    zero = index(0)
    starts, extents = list(box.starts), list(box.extents)
    for at, (start, extent, size) in enumerate(
        zip(box.starts, box.extents, box.buffer.shape, strict=True)
    ):
        stop = simple(start + extent, context)
        if shown(Le(start, zero), context, quick=True):
            starts[at] = zero
        elif not shown(Le(zero, start), context, quick=True):
            continue
        if shown(Le(size, stop), context, quick=True):
            stop = size
        elif not shown(Le(stop, size), context, quick=True):
            starts[at] = start
            continue
        extents[at] = simple(stop - starts[at], context)
    return Box(box.buffer, tuple(starts), tuple(extents), box.exact)


def whole(block: Block, buffer: Buffer, *, written: bool) -> Box:
    """What all instances of a block read, or write, of a buffer."""
    return reached([FlowStage(block, (), (), ())], buffer, (), EMPTY, written=written)


def is_written(writer: FlowStage, shared: tuple[For, ...], box: Box, context: Context) -> bool:
    """Whether a stage is shown to write each element of a box in one iteration of loops."""
    inner = tuple([(loop.var, loop.extent) for loop in writer.loops[len(shared) :]])
    return reaches(writer.block, inner, box, context)


def stays_inside(block: Block, buffer: Buffer) -> bool:
    """Whether a block's accesses to a buffer are in bounds for all values of its variables.

    Guarded accesses need not be: some instances then skip the buffer.
    """
    return _stays_inside(unbound(block), buffer)


@lru_cache(maxsize=1024)
def _stays_inside(block: Block, buffer: Buffer) -> bool:
    for access in inside(block):
        if access.buffer is not buffer:
            continue
        context = EMPTY
        for var, size in (*zip(block.vars, block.extents, strict=True), *access.inner):
            context = context.loop(var, size)
        for start, extent, size in zip(access.starts, access.extents, buffer.shape, strict=True):
            if start is None:
                return False
            for condition in (Le(index(0), start), Le(start + extent, size)):
                if not shown(condition, context):
                    return False
    return True


def is_filled(kernel: Kernel, site: Site[Block], buffer: Buffer) -> bool:
    """Whether all of a buffer is shown to hold something before the scope of a site begins."""
    if buffer in kernel.params[: kernel.inputs]:
        return True
    zeros = tuple([index(0)] * len(buffer.shape))
    box = Box(buffer, zeros, buffer.shape, False)
    for stmt, _ in site.above:
        if not isinstance(stmt, Block):
            continue
        around = stages(scope_of(kernel, map_of(kernel).blocks[stmt.label]))
        for label, stage in around.items():
            if label == stmt.label:
                break
            apart = buffer in stage.writes and not common(stage, around[stmt.label])
            if apart and is_written(stage, (), box, EMPTY):
                return True
    return False


def spans_of(
    block: Block, places: Sequence[tuple[Scalar, ...]], boxes: Sequence[Box], context: Context
) -> list[ValueSpan | None]:
    """The values of a block's variables for which the elements at `places` may be in the boxes.

    None for a variable of which that says nothing.  Never leaves a value out.
    """
    found: dict[ScalarVar, ValueSpan] | None = None
    for indices, box in zip(places, boxes, strict=True):
        mine: dict[ScalarVar, ValueSpan] = {}
        for at, term in enumerate(indices):
            found_at = solved(term, ValueSpan(box.starts[at], box.extents[at]), context)
            if found_at is not None and found_at[0] in block.vars:
                mine.setdefault(*found_at)
        if found is not None:
            old, new = found, mine
            mine = {  # a value that either place needs
                var: _around(old[var], new[var], box.buffer, context)
                for var in block.vars
                if var in old and var in new
            }
        found = mine
    sizes = dict(zip(block.vars, block.extents, strict=True))
    mine = found or {}
    return [_unless_all(mine.get(var), sizes[var]) for var in block.vars]


def _unless_all(span: ValueSpan | None, size: Scalar) -> ValueSpan | None:
    if span is not None and known(span.start) == 0 and span.extent is size:
        return None
    return span


def _around(a: ValueSpan, b: ValueSpan, buffer: Buffer, context: Context) -> ValueSpan:
    line = Buffer(buffer.name, (index(1),), buffer.dtype)
    one, two = (Box(line, (span.start,), (span.extent,), False) for span in (a, b))
    both = hull(one, two, context)
    return ValueSpan(both.starts[0], both.extents[0])


def solved(term: Scalar, span: ValueSpan, context: Context) -> tuple[ScalarVar, ValueSpan] | None:
    """The variable an index depends on, and its values where the index is in a span."""
    while not isinstance(term, ScalarVar):
        match term:
            case Add(left, Lit() as offset) | Add(Lit() as offset, left):
                term, span = left, ValueSpan(simple(span.start - offset, context), span.extent)
            case Sub(left, Lit() as offset):
                term, span = left, ValueSpan(simple(span.start + offset, context), span.extent)
            case FloorDiv(left, Lit() as by) if int(by.value) > 0:
                start, extent = simple(span.start * by, context), simple(span.extent * by, context)
                term, span = left, ValueSpan(start, extent)
            case _:
                return None
    return term, span


def at_values(term: Scalar, values: dict[ScalarVar, Scalar]) -> Scalar:
    """A term where variables have these values."""
    if free_vars(term).isdisjoint(values):
        return term
    return substitute(term, values)
