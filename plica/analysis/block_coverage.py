"""Cover: whether what a block reads in an iteration was written in the same iteration.

The writer's stores, seen as a map from the loops inside the iteration to elements, must reach every
element of the box that is read; where the writer has a predicate, it must hold for the instance
that writes an element inside the buffer.

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

from functools import lru_cache
from itertools import chain

from plica.analysis.access import Access, Inner, inside
from plica.analysis.enclosing import context_of, shown, simple
from plica.analysis.index import Context
from plica.analysis.index.count import ONE, ZERO
from plica.analysis.index.iteration import iteration_map
from plica.analysis.region import Box, boxes_under, relaxed
from plica.analysis.site import Site, map_of
from plica.core.binding import free_vars, substitute
from plica.core.name import Name
from plica.core.term import Term
from plica.ir.loop.scalar import Le, Lt, Scalar, ScalarVar
from plica.ir.loop.statement import TRUE, Block, For
from plica.ir.type.dim import dim_var, known
from plica.ir.type.dtype import i64

__all__ = ["is_covered", "map_of", "reaches"]


def is_covered(writer: Site[Block], reader: Site[Block], shared: For) -> bool:
    """Whether, in each iteration of a loop around both, the reader reads what the writer wrote."""
    at = next(at for at, (stmt, _) in enumerate(reader.above) if stmt is shared)
    context = context_of(reader.above[: at + 1])
    around = {stmt.var for stmt, _ in reader.above[: at + 1] if isinstance(stmt, For)}
    guard = reader.node.predicate
    if guard is not TRUE and all(v in around for v in free_vars(guard) if isinstance(v, ScalarVar)):
        context = context.where(guard)  # it reads only where that holds
    reads, _ = boxes_under(reader, shared.var, context)
    variables = [loop.var for loop in writer.loops]
    first = variables.index(shared.var) + 1
    inner = tuple([(loop.var, loop.extent) for loop in writer.loops[first:]])
    written = {each.buffer for each in inside(writer.node) if each.written}
    return all(reaches(writer.node, inner, box, context) for box in reads if box.buffer in written)


def reaches(block: Block, inner: Inner, box: Box, context: Context) -> bool:
    """Whether a block is shown to write each element of a box, over all points of loops."""
    stores = [each for each in inside(block) if each.written and each.buffer is box.buffer]
    return any(_written(block, each, inner, box, context) for each in stores)


@lru_cache(maxsize=1024)
def _written(block: Block, store: Access, inner: Inner, read: Box, context: Context) -> bool:
    """Whether a store of a block reaches each element of a box."""
    if not store.certain or None in store.starts:
        return False
    values: dict[Term, Scalar] = dict(zip(block.vars, block.bindings, strict=True))
    reached = relaxed(store, values, inner, context)
    loops = [*inner, *store.inner]
    bindings: list[Scalar] = []
    element: list[Scalar] = []
    for number, (start, extent) in enumerate(zip(store.starts, store.extents, strict=True)):
        place = substitute(start, values) if start is not None else ZERO
        if known(extent) != 1:
            offset = ScalarVar(Name("an offset", number), i64)
            loops.append((offset, extent))
            place = place + offset
        bindings.append(simple(place - reached.starts[number], context))
        element.append(dim_var(Name("the element", number)))
    free = frozenset[Term]().union(*[free_vars(each) for each in bindings])
    idle = [each for each in loops if each[0] not in free]  # they say how often, not where
    if not all(_runs(size, context) for _, size in idle):
        return False
    telling = [each for each in loops if each[0] in free]
    stores = iteration_map(telling, bindings, reached.extents)
    if not stores.surjective:
        return False
    said: list[tuple[Scalar, ...]] = []  # what is known of each axis
    for at, size in enumerate(read.buffer.shape):
        begin = read.starts[at]
        said.append((
            Le(begin, element[at]), Lt(element[at], _stop(begin, read.extents[at])),
            Le(ZERO, element[at]), Lt(element[at], size),
        ))  # fmt: skip
    for at, each in enumerate(element):
        begin, stop = reached.starts[at], _stop(reached.starts[at], reached.extents[at])
        missing = [one for one in (Le(begin, each), Lt(each, stop)) if one not in said[at]]
        along = context.where(*said[at]) if missing else context  # one axis is mostly enough
        for wanted in missing:
            if not shown(wanted, along) and not shown(wanted, context.where(*chain(*said))):
                return False
    if block.predicate is TRUE:
        return True
    offsets = [each - begin for each, begin in zip(element, reached.starts, strict=True)]
    told = stores.recovered(tuple(offsets))
    point: dict[Term, Scalar] = {var: told[var] for var, _ in telling if var in told}
    point.update({var: ZERO for var, _ in idle})  # one of their iterations is enough
    condition = substitute(block.predicate, point)
    there = context.where(*chain(*said))
    for var, size in loops:  # what the element does not tell may be anything
        if var not in point:
            there = there.loop(var, size)
    return shown(simple(condition, there), there)


def _stop(start: Scalar, extent: Scalar) -> Scalar:
    """Where a side of a box ends."""
    return extent if start is ZERO else start + extent


def _runs(extent: Scalar, context: Context) -> bool:
    """Whether a loop has an iteration; dims are positive, or nothing is computed anyway."""
    ranged = {each.var for each in context.ranges}
    dims = [v for v in free_vars(extent) if isinstance(v, ScalarVar) and v not in ranged]
    positive = [Le(ONE, var) for var in sorted(dims, key=lambda var: var.name)]
    return shown(Le(ONE, extent), context.where(*positive))
