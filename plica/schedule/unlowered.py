"""Running a kernel in the middle of its schedule, before lowering.

>>> import numpy as np
>>> from attrs import evolve
>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.statement import Store, seq
>>> from plica.ir.loop.scalar import index
>>> from plica.ir.loop.tensor import axis, buffer
>>> x, y, i, j = buffer("x", (2,), f32), buffer("y", (2,), f32), axis("i"), axis("j")
>>> held = evolve(buffer("held", (2,), f32), scope="shared")
>>> fill = st.For(i, index(2), "threadIdx.x", Store(held, (i,), x[i]))
>>> use = st.For(j, index(2), "threadIdx.x", Store(y, (j,), held[1 - j]))
>>> kernel = st.Kernel((), (x, y), 1, st.Alloc(held, seq(fill, use)))
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
from plica.core import EvaluationError, Term, free_vars, map_bottom_up
from plica.ir.interpret.kernel import run_kernel
from plica.ir.interpret.value import Array
from plica.ir.loop import statement as st
from plica.ir.type import Sizes

AT_ONCE: Final = frozenset({"parallel", "vectorized", *st.THREADS})

AWAITING: Final = ("data-race", "uninitialised-read")
"""What may be said of threads before lowering; see Note [Private buffers]."""


def run_unlowered(
    kernel: st.Kernel, arrays: Sequence[Any], sizes: Sizes | None = None
) -> tuple[Array, ...]:
    """The outputs of a kernel after placing buffers and barriers as lowering will."""
    try:
        return run_kernel(private(kernel), arrays, sizes)
    except EvaluationError as error:
        if error.code not in AWAITING or not _has_threads(kernel):
            raise
    return run_kernel(private(serial_threads(kernel)), arrays, sizes)


def private(kernel: st.Kernel) -> st.Kernel:
    """The kernel with each buffer placed as lowering will; see Note [Private buffers]."""
    held: list[st.Alloc] = []
    body = kernel.body
    while isinstance(body, st.Alloc):
        held.append(body)
        body = body.body
    for alloc in reversed(held):
        body = _sunk(alloc, body)
    return with_body(kernel, body)


def serial_threads(kernel: st.Kernel) -> st.Kernel:
    """The kernel with parallel loops for threads, with serial ones where they reduce together."""
    reducing = set[Term]()
    for stmt in st.statements(kernel.body):
        if isinstance(stmt, st.Block):
            for kind, value in zip(stmt.kinds, stmt.bindings, strict=True):
                reducing |= free_vars(value) if kind in st.ACCUMULATING else frozenset()

    def turned(node: Term) -> Term:
        if isinstance(node, st.For) and node.kind in st.THREADS:
            how: st.LoopKind = "serial" if node.var in reducing else "parallel"
            return st.For(node.var, node.extent, how, node.body, node.annotations)
        return node

    body = map_bottom_up(turned, kernel.body)
    return with_body(kernel, body)


def _has_threads(kernel: st.Kernel) -> bool:
    return any(
        isinstance(each, st.For) and each.kind in st.THREADS for each in st.statements(kernel.body)
    )


def _sunk(alloc: st.Alloc, root: st.Stmt) -> st.Stmt:
    """The statement with a buffer allocated in the innermost possible loop."""
    buffer = alloc.buffer
    above: Above = ()
    best: tuple[Above, st.For] | None = None
    stmt = root
    while True:
        if isinstance(stmt, st.For) and stmt.kind in AT_ONCE:
            best = (above, stmt)
        if isinstance(stmt, st.Block) and buffer in _declared(stmt):
            break
        users = [at for at, each in enumerate(st.substatements(stmt)) if buffer in free_vars(each)]
        if len(users) != 1:
            break
        above = (*above, (stmt, users[0]))
        stmt = st.substatements(stmt)[users[0]]
    if best is None or any(var in free_vars(buffer) for var in (best[1].var,)):
        return st.Alloc(buffer, root)
    place, loop = best
    inside = st.For(loop.var, loop.extent, loop.kind, st.Alloc(buffer, loop.body), loop.annotations)
    return rebuilt(place, inside)


def _declared(block: st.Block) -> set[Term]:
    return {region.buffer for region in (*block.reads, *block.writes)}
