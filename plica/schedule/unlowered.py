"""Running a kernel in the middle of its schedule, before lowering.

>>> import numpy as np
>>> from attrs import evolve
>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.statement import Store, seq
>>> from plica.ir.loop.scalar import index
>>> from plica.ir.loop.tensor import axis, buffer
>>> x, y, i, j = buffer("x", (2,), f32), buffer("y", (2,), f32), axis("i"), axis("j")
>>> held = evolve(buffer("held", (2,), f32), scope="shared")
>>> fill = For(i, index(2), "threadIdx.x", Store(held, (i,), x[i]))
>>> use = For(j, index(2), "threadIdx.x", Store(y, (j,), held[1 - j]))
>>> kernel = Kernel((), (x, y), 1, Alloc(held, seq(fill, use)))
>>> run_unlowered(kernel, (np.array([1, 2], np.float32),))
(array([2., 1.], dtype=float32),)

# Note [Private buffers]
A primitive puts new buffers at the root, where iterations of a parallel loop seem to share them
until lowering gives each its own.  So each buffer is first moved into the innermost such loop that
holds all its uses: if one iteration reads there what another wrote, that is an uninitialised read.
Where threads race for want of barriers, which lowering inserts, or do not see what was put into
their memory outside, where later steps will not leave it, thread loops are run as parallel ones: in
one loop no thread may meet another, and after it all have come to its end.  Those of a reduction
across threads, which lowering makes, run in order then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from plica.analysis.site import Above, rebuilt, with_body
from plica.core.binding import free_vars
from plica.core.diagnostic import EvaluationError
from plica.core.fold import map_bottom_up
from plica.core.term import Term
from plica.ir.interpret.kernel import run_kernel
from plica.ir.interpret.value import Array
from plica.ir.loop.statement import (
    THREADS,
    Alloc,
    Block,
    For,
    Kernel,
    LoopKind,
    Stmt,
    statements,
    substatements,
)
from plica.ir.type.size import Sizes

AT_ONCE: Final = frozenset({"parallel", "vectorized", *THREADS})

AWAITING: Final = ("data-race", "uninitialised-read")
"""What may be said of threads before lowering; see Note [Private buffers]."""


def run_unlowered(
    kernel: Kernel, arrays: Sequence[Any], sizes: Sizes | None = None
) -> tuple[Array, ...]:
    """What a kernel writes once lowering has put its buffers and barriers where they belong."""
    try:
        return run_kernel(private(kernel), arrays, sizes)
    except EvaluationError as error:
        if error.code not in AWAITING or not _has_threads(kernel):
            raise
    return run_kernel(private(in_turns(kernel)), arrays, sizes)


def private(kernel: Kernel) -> Kernel:
    """The kernel with each buffer where lowering will put it; see Note [Private buffers]."""
    held: list[Alloc] = []
    body = kernel.body
    while isinstance(body, Alloc):
        held.append(body)
        body = body.body
    for each in reversed(held):
        body = _sunk(each, body)
    return with_body(kernel, body)


def in_turns(kernel: Kernel) -> Kernel:
    """The kernel with parallel loops for threads, with serial ones where they reduce together."""
    reducing = set[Term]()
    for stmt in statements(kernel.body):
        if isinstance(stmt, Block):
            for kind, value in zip(stmt.kinds, stmt.bindings, strict=True):
                reducing |= free_vars(value) if kind == "reduce" else frozenset()

    def turned(node: Term) -> Term:
        if isinstance(node, For) and node.kind in THREADS:
            how: LoopKind = "serial" if node.var in reducing else "parallel"
            return For(node.var, node.extent, how, node.body, node.annotations)
        return node

    body = map_bottom_up(turned, kernel.body)
    assert isinstance(body, Stmt)
    return with_body(kernel, body)


def _has_threads(kernel: Kernel) -> bool:
    return any(isinstance(each, For) and each.kind in THREADS for each in statements(kernel.body))


def _sunk(alloc: Alloc, root: Stmt) -> Stmt:
    """The statement with a buffer of its own in each iteration of the innermost loop it may."""
    buffer = alloc.buffer
    above: Above = ()
    best: tuple[Above, For] | None = None
    stmt = root
    while True:
        if isinstance(stmt, For) and stmt.kind in AT_ONCE:
            best = (above, stmt)
        if isinstance(stmt, Block) and buffer in _declared(stmt):
            break
        users = [at for at, each in enumerate(substatements(stmt)) if buffer in free_vars(each)]
        if len(users) != 1:
            break
        above = (*above, (stmt, users[0]))
        stmt = substatements(stmt)[users[0]]
    if best is None or any(each in free_vars(buffer) for each in (best[1].var,)):
        return Alloc(buffer, root)
    place, loop = best
    inside = For(loop.var, loop.extent, loop.kind, Alloc(buffer, loop.body), loop.annotations)
    return rebuilt(place, inside)


def _declared(block: Block) -> set[Term]:
    return {each.buffer for each in (*block.reads, *block.writes)}
