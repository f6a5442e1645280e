"""Cover: whether what a block reads in an iteration was written in the same iteration.

The writer's stores, over the loops inside the iteration, must together reach every element of the
box that is read (`plica.analysis.coverage`); where the writer has a predicate, it must hold for the
instance that writes an element inside the buffer.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.statement import For, Kernel, Store, block, seq
>>> from plica.ir.loop.tensor import axis, buffer
>>> x, y, z = (buffer(name, (3,), f32) for name in "xyz")
>>> i, v, w = axis("i"), axis("v"), axis("w")
>>> one = block("y", (v,), (3,), "s", (i,), Store(y, (v,), x[v]))
>>> two = block("z", (w,), (3,), "s", (i,), Store(z, (w,), y[w]))
>>> kernel = Kernel((), (x, y, z), 1, For(i, x.shape[0], "serial", seq(one, two)))
>>> sites = map_of(kernel).blocks
>>> is_covered(sites[one.label], sites[two.label], kernel.body)
True
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from plica.analysis.access import Access, Inner, inside
from plica.analysis.coverage import reached, substituted
from plica.analysis.enclosing import context_of
from plica.analysis.index import Context
from plica.analysis.index.count import ONE, ZERO
from plica.analysis.region import Box, boxes_under
from plica.analysis.site import Site, map_of
from plica.analysis.write import Write
from plica.core import Name, Term, free_vars
from plica.ir.loop.scalar import Le, Lt, Scalar, ScalarVar
from plica.ir.loop.statement import TRUE, Block, For
from plica.ir.type import dim_var, i64, known

__all__ = ["is_covered", "map_of", "reaches"]


def is_covered(writer: Site[Block], reader: Site[Block], shared: For) -> bool:
    """Whether, in each iteration of a loop around both, the reader reads what the writer wrote."""
    at = next(at for at, (stmt, _) in enumerate(reader.above) if stmt is shared)
    context = context_of(reader.above[: at + 1])
    around = {stmt.var for stmt, _ in reader.above[: at + 1] if isinstance(stmt, For)}
    guard = reader.node.predicate
    if guard is not TRUE and all(v in around for v in free_vars(guard) if isinstance(v, ScalarVar)):
        context = context.where(guard)  # it reads only where that holds
    reads, _ = boxes_under(reader, shared.var, context, guarded=True)
    variables = [loop.var for loop in writer.loops]
    first = variables.index(shared.var) + 1
    inner = tuple([(loop.var, loop.extent) for loop in writer.loops[first:]])
    written = {each.buffer for each in inside(writer.node) if each.written}
    return all(reaches(writer.node, inner, box, context) for box in reads if box.buffer in written)


@lru_cache(maxsize=1024)
def reaches(block: Block, inner: Inner, box: Box, context: Context) -> bool:
    """Whether a block is shown to write each element of a box, over all points of loops."""
    values: dict[Term, Scalar] = dict(zip(block.vars, block.bindings, strict=True))
    writes = [
        _write(each, values, inner, block.predicate)
        for each in inside(block)
        if each.written and each.buffer is box.buffer and each.certain and None not in each.starts
    ]
    if not writes:
        return False
    element = tuple([dim_var(Name("the element", number)) for number in range(len(box.starts))])
    said: list[Scalar] = []
    for begin, extent, size, at in zip(
        box.starts, box.extents, box.buffer.shape, element, strict=True
    ):
        stop = _stop(begin, extent)
        said += [Le(ZERO, at), Lt(at, size)]
        said += [] if begin is ZERO else [Le(begin, at)]
        said += [] if stop is size else [Lt(at, stop)]
    extents = [size for each in writes for _, size in each.loops]
    there = context.where(*_positive_dims(extents, context), *said)
    return reached(writes, element, there)


def _write(store: Access, values: dict[Term, Scalar], inner: Inner, predicate: Scalar) -> Write:
    """A store of a block in terms of loops."""
    loops = [*inner, *[(var, substituted(size, values)) for var, size in store.inner]]
    places: list[Scalar] = []
    for number, (start, extent) in enumerate(zip(store.starts, store.extents, strict=True)):
        assert start is not None
        place = substituted(start, values)
        if known(extent) != 1:
            offset = ScalarVar(Name("an offset", number), i64)
            loops.append((offset, substituted(extent, values)))
            place = place + offset
        places.append(place)
    return Write(tuple(places), tuple(loops), () if predicate is TRUE else (predicate,))


def _stop(start: Scalar, extent: Scalar) -> Scalar:
    """Where a side of a box ends."""
    return extent if start is ZERO else start + extent


def _positive_dims(extents: Iterable[Scalar], context: Context) -> list[Scalar]:
    """That dims are positive, or nothing is computed anyway."""
    ranged = {each.var for each in context.ranges}
    free = frozenset[Term]().union(*[free_vars(each) for each in extents])
    dims = [each for each in free if isinstance(each, ScalarVar) and each not in ranged]
    return [Le(ONE, var) for var in sorted(dims, key=lambda var: var.name)]
