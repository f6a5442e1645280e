"""Order: which orders of iterations keep the order of everything that meets in memory.

Two iterations of a nest conflict if one writes an element that the other accesses. If the value of
a loop is a function of the element, the same for every access, then conflicting iterations agree in
that loop; other loops are *open* for the buffer. A permutation that keeps the order of a buffer's
open loops preserves the order of accesses to its elements.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.statement import Store
>>> from plica.ir.loop.tensor import axis, buffer
>>> from plica.analysis.dependence import conflicts
>>> x, y = buffer("x", (6, 7), f32), buffer("y", (12,), f32)
>>> i, j = axis("i"), axis("j")
>>> nest = For(i, index(6), "serial", For(j, index(7), "serial", Store(y, (i + j,), x[i, j])))
>>> [str(var.name) for var in open_loops(nest, (i, j))[y]]
['i', 'j']
>>> conflicts(nest.body)   # one loop alone, the other standing still
()
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Final

from plica.analysis.access import Access, accesses
from plica.analysis.coverage import is_covered
from plica.analysis.dependence import children, conflicts, unblocked_statement
from plica.analysis.enclosing import simple
from plica.analysis.index.iteration import iteration_map
from plica.analysis.reduction import reducer
from plica.analysis.site import Site, rebuilt, with_body
from plica.core import Name, free_vars, substitute
from plica.ir.loop import Alloc, Block, Buffer, For, Kernel, Scalar, ScalarVar, Stmt, index
from plica.ir.loop.statement import allocated
from plica.ir.type import dim_var, known
from plica.schedule.block_class import reduction_body
from plica.schedule.instruction import Scene
from plica.schedule.precondition import bindings_of, rectangular

ZERO: Final = index(0)


@lru_cache(maxsize=1024)
def ways(
    root: Stmt, span: tuple[ScalarVar, ...], buffers: frozenset[Buffer]
) -> Mapping[Buffer, tuple[Scalar | None, ...]]:
    """How each loop of `span` is determined by an element of some buffers, or None if it is not, or
    not uniformly for all accesses.

    Its places are `the element`, `the element_1`, ….
    """
    found: dict[Buffer, tuple[Scalar | None, ...]] = {}
    for access in accesses(root):
        if access.buffer in buffers:
            mine = follows(access, span)
            old = found.get(access.buffer, mine)
            found[access.buffer] = tuple(
                [a if a is b else None for a, b in zip(old, mine, strict=True)]
            )
    return found


@lru_cache(maxsize=1024)
def open_loops(root: For, span: tuple[ScalarVar, ...]) -> Mapping[Buffer, tuple[ScalarVar, ...]]:
    """For each buffer that a nest writes, the loops in which iterations that meet may differ."""
    written = frozenset([access.buffer for access in accesses(root) if access.written])
    return {
        buffer: tuple([var for var, way in zip(span, solved, strict=True) if way is None])
        for buffer, solved in ways(root, span, written).items()
    }


def follows(access: Access, span: tuple[ScalarVar, ...]) -> tuple[Scalar | None, ...]:
    """Each loop of `span` in terms of the accessed element, or None if it is not determined."""
    sizes = dict(access.inner)
    values: list[Scalar] = []
    places: list[Scalar] = []
    for number, (start, extent) in enumerate(zip(access.starts, access.extents, strict=True)):
        if start is None:
            continue
        values.append(dim_var(Name("the element", number)))
        if known(extent) != 1:
            offset = ScalarVar(Name("an offset", number), span[0].dtype)
            sizes[offset] = extent
            start = start + offset
        places.append(start)
    free = frozenset[object]().union(*[free_vars(place) for place in places])
    loops = [(var, size) for var, size in sizes.items() if var in free]
    if any(not free_vars(size).isdisjoint(sizes) for _, size in loops):
        return tuple([ZERO if known(sizes[var]) == 1 else None for var in span])
    solved = iteration_map(loops, places, values).recovered(tuple(values))
    return tuple([ZERO if known(sizes[var]) == 1 else solved.get(var) for var in span])


def reduce_loops(site: Site[Block]) -> tuple[For, ...]:
    """The loops of its scope that feed a variable of a block that is not spatial."""
    block = site.node
    pairs = zip(block.kinds, block.bindings, strict=True)
    others = [free_vars(scalar) for kind, scalar in pairs if kind != "spatial"]
    free = frozenset[object]().union(*others)
    return tuple([loop for loop in site.loops if loop.var in free])


def reduces_floats(scene: Scene, site: Site[For]) -> bool:
    """Whether a loop feeds a variable, not spatial, of a block inside that writes floats."""
    return any(
        site.node in reduce_loops(inner) and writes_floats(inner.node)
        for inner in scene.map.blocks.values()
    )


def writes_floats(of: Stmt) -> bool:
    """Whether a statement writes a float."""
    return any(access.written and access.buffer.dtype.is_float for access in accesses(of))


def begins_at_zero(site: Site[Block]) -> bool:
    """Whether the init of a block is shown to run before its updates, in any order of the loops.

    Its reduce variables are determined one by one by their own loops, and 0 where these are.
    """
    block = site.node
    if rectangular(site) is not None or not bindings_of(site).injective:
        return False
    mine = {loop.var: ZERO for loop in reduce_loops(site)}
    for kind, binding in zip(block.kinds, block.bindings, strict=True):
        if kind == "spatial":
            if not free_vars(binding).isdisjoint(mine):
                return False
        elif known(simple(substitute(binding, mine))) != 0:
            return False
    return True


def is_own(scene: Scene, site: Site[For], buffer: Buffer) -> bool:
    """Whether an iteration of a loop never sees what others left in a buffer.

    It is not accessed outside the loop, and reads in an iteration are of elements written in the
    same one, by the first block that accesses the buffer there.
    """
    loop = site.node
    if unblocked_statement(loop.body) is not None or not is_only_inside(site, buffer):
        return False
    users = [child for child in children(loop.body) if buffer in (*child.reads, *child.writes)]
    first = scene.map.blocks[users[0].block.label]
    if buffer not in users[0].writes:
        return False
    if buffer in users[0].reads and not _restarts(first, loop):
        return False
    readers = [scene.map.blocks[user.block.label] for user in users[1:] if buffer in user.reads]
    mine = {each.var: each for each in first.loops}
    for reader in readers:  # in the innermost loop around both: a later turn of it writes too late
        shared = [mine[outer.var] for outer in reader.loops if outer.var in mine]
        if not is_covered(first, reader, shared[-1]):
            return False
    return True


def private(scene: Scene, site: Site[For]) -> tuple[Buffer, ...]:
    """The buffers through which iterations of a loop meet, and need not: each can have its own."""
    return tuple([buffer for buffer in conflicts(site.node) if is_own(scene, site, buffer)])


def with_private(kernel: Kernel, site: Site[For], buffers: Collection[Buffer]) -> Kernel:
    """The kernel with buffers allocated in each iteration of a loop.

    t = alloc(Buffer[…])                        for i in range(n):
    for i in range(n):                    -->       t = alloc(Buffer[…])
        with block("t", …): t[…] = …                with block("t", …): t[…] = …
        with block("y", …): y[…] = t[…] …           with block("y", …): y[…] = t[…] …
    """
    loop = site.node
    body = allocated(loop.body, reversed([*buffers]))
    new = For(loop.var, loop.extent, loop.kind, body, loop.annotations)
    above = [
        each for each in site.above
        if not isinstance(each[0], Alloc) or each[0].buffer not in buffers
    ]  # fmt: skip
    return with_body(kernel, rebuilt(tuple(above), new))


def is_only_inside(site: Site[For], buffer: Buffer) -> bool:
    """Whether a buffer used in a loop is not accessed outside of it."""
    home = next((s for s, _ in site.above if isinstance(s, Alloc) and s.buffer is buffer), None)
    return home is not None and _touches(home.body, buffer) == _touches(site.node, buffer)


def updates_in_any_order(site: Site[Block], buffer: Buffer) -> bool:
    """Whether a block only updates a buffer, with the same result in whatever order it runs."""
    block = site.node
    if block.init is not None:
        return reduction_body(block) is None and begins_at_zero(site)
    mine = [access.written for access in accesses(block) if access.buffer is buffer]
    return reducer(block) is not None and 2 * sum(mine) == len(mine)


def _restarts(site: Site[Block], loop: For) -> bool:
    """Whether a reduction starts anew in each iteration of a loop, and completes in it."""
    if site.node.init is None or reduction_body(site.node):
        return False
    if not _runs_through(site) and not begins_at_zero(site):
        return False
    variables = [each.var for each in site.loops]
    inside = variables[variables.index(loop.var) + 1 :]
    return {reduce_loop.var for reduce_loop in reduce_loops(site)} <= set(inside)


def _runs_through(site: Site[Block]) -> bool:
    """Whether the terms of an element are accumulated consecutively.

    Then it does not matter whether other iterations make the same element again.
    """
    block, loops = site.node, site.loops
    own = reduce_loops(site)
    terms = [
        term for term, kind in zip(block.bindings, block.kinds, strict=True) if kind != "spatial"
    ]
    rest = [
        term for term, kind in zip(block.bindings, block.kinds, strict=True) if kind == "spatial"
    ]
    mine = {loop.var for loop in own}
    return (
        own == loops[len(loops) - len(own) :]
        and sorted([term for term in terms if known(term) != 0], key=id) == sorted(mine, key=id)
        and all(loop.kind in ("serial", "unrolled") for loop in own)
        and all(mine.isdisjoint(free_vars(scalar)) for scalar in (*rest, block.predicate))
    )


@lru_cache(maxsize=4096)
def _touches(root: Stmt, buffer: Buffer) -> int:
    return sum(access.buffer is buffer for access in accesses(root))
