"""Private buffers: those of which every iteration of a loop can have its own.

    before                                      after  with_private(kernel, loop)
    t = alloc(Buffer[…])                        for i in range(n):
    for i in range(n):                              t = alloc(Buffer[…])
        with block("t", …): t[…] = …                with block("t", …): t[…] = …
        with block("y", …): y[…] = t[…] …           with block("y", …): y[…] = t[…] …

A buffer is private if nothing outside the loop accesses it and an iteration reads only what it has
written before. Then iterations without other conflicts may run in parallel.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.statement import Store, block, seq
>>> from plica.ir.loop.tensor import axis, buffer
>>> x, y, t = buffer("x", (3,), f32), buffer("y", (3,), f32), buffer("t", (1,), f32)
>>> i, v, w = axis("i"), axis("v"), axis("w")
>>> one = block("t", (v,), (3,), "s", (i,), Store(t, (v * 0,), x[v]))
>>> two = block("y", (w,), (3,), "s", (i,), Store(y, (w,), t[w * 0]))
>>> kernel = Kernel((), (x, y), 1, Alloc(t, For(i, x.shape[0], "serial", seq(one, two))))
>>> [str(each.name) for each in private(kernel, map_of(kernel).loops[i])]
['t']
"""

from __future__ import annotations

from collections.abc import Iterable

from plica.analysis.coverage import is_covered
from plica.analysis.dependence import Child, children, conflicts, unblocked_statement
from plica.analysis.site import Site, map_of, rebuilt, with_body
from plica.core import free_vars
from plica.ir.loop.scalar import Buffer
from plica.ir.loop.statement import Alloc, Block, For, Kernel, allocated, statements, substatements
from plica.schedule.block_class import reduction_body


def private(kernel: Kernel, site: Site[For]) -> tuple[Buffer, ...]:
    """The buffers through which iterations of a loop meet, and need not."""
    return tuple([buffer for buffer in conflicts(site.node) if _is_private(kernel, site, buffer)])


def with_private(kernel: Kernel, site: Site[For], buffers: Iterable[Buffer]) -> Kernel:
    """The kernel with buffers allocated in each iteration of the loop."""
    own = list(buffers)
    loop = site.node
    body = allocated(loop.body, reversed(own))
    new = For(loop.var, loop.extent, loop.kind, body, loop.annotations)
    above = [each for each in site.above if not _makes(each[0], own)]
    return with_body(kernel, rebuilt(tuple(above), new))


def _makes(stmt: object, buffers: list[Buffer]) -> bool:
    return isinstance(stmt, Alloc) and stmt.buffer in buffers


def _is_private(kernel: Kernel, site: Site[For], buffer: Buffer) -> bool:
    made = [at for at, (stmt, _) in enumerate(site.above) if _makes(stmt, [buffer])]
    if not made or unblocked_statement(site.node.body) is not None:
        return False
    for stmt, position in site.above[made[0] + 1 :]:
        inside = substatements(stmt)
        others = [statement for at, statement in enumerate(inside) if at != position]
        if isinstance(stmt, Block):
            others += [*stmt.reads, *stmt.writes]  # type: ignore[list-item]  # terms as well
        if any(buffer in free_vars(statement) for statement in others):
            return False
    users = [
        each for each in children(site.node.body) if buffer in each.reads or buffer in each.writes
    ]
    return all(
        _reads_own(kernel, site.node, buffer, users[:at], user)
        for at, user in enumerate(users)
        if buffer in user.reads
    )


def _reads_own(
    kernel: Kernel, loop: For, buffer: Buffer, before: list[Child], reader: Child
) -> bool:
    """Whether a block reads from a buffer only what was written before in the same iteration."""
    if not before and _accumulates(kernel, loop, reader.block):
        return True
    blocks = map_of(kernel).blocks
    here = blocks[reader.block.label]
    mine = [each.var for each in here.loops]
    for writer in before:
        there = blocks[writer.block.label]
        shared = [each for each in there.loops if each.var in mine]
        if buffer in writer.writes and is_covered(there, here, shared[-1]):
            return True
    return False


def _accumulates(kernel: Kernel, loop: For, block: Block) -> bool:
    """Whether a reduction begins and ends in one iteration of a loop."""
    if reduction_body(block) is not None:
        return False
    inside = _loops_inside(loop).union(kernel.dims)
    pairs = zip(block.kinds, block.bindings, strict=True)
    return all(free_vars(value) <= inside for kind, value in pairs if kind == "reduce")


def _loops_inside(loop: For) -> frozenset[object]:
    inside = statements(loop.body, lambda stmt: not isinstance(stmt, Block))
    return frozenset(stmt.var for stmt in inside if isinstance(stmt, For))
