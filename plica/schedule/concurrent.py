"""Concurrent loops: whether those a kernel has still may run at once after a step.

Steps that move data are thought of as serial: what a block reads is there when it runs.  Where
loops are parallel, vectorized or bound to threads, it must be asked again whether their iterations
meet, and whether a buffer that each thread or block has to itself is used in one launch only.  And
where a buffer is allocated for a part of the kernel, whether nothing outside of it uses it.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.statement import Store, seq
>>> from plica.ir.loop.scalar import index
>>> from plica.ir.loop.tensor import axis, buffer
>>> x, i = buffer("x", (3,), f32), axis("i")
>>> own = Buffer(x.name, x.shape, x.dtype, "shared")
>>> inside = st.For(i, index(3), "threadIdx.x", Store(x, (i,), own[i]))
>>> body = seq(Store(own, (index(0),), x[0]), inside)
>>> _launched_apart(st.Kernel((), (x,), 0, body)).precondition
'handed-over'
"""

from __future__ import annotations

from functools import lru_cache

from plica.analysis.access import accesses
from plica.analysis.dependence import conflicts
from plica.analysis.site import map_of
from plica.core import free_vars
from plica.ir.loop import statement as st
from plica.ir.loop.memory_scope import scope
from plica.ir.loop.scalar import Buffer
from plica.schedule.instruction import Instruction, Scene
from plica.schedule.launch import safe_threads
from plica.schedule.order import is_own
from plica.schedule.problem import Problem

IN_TURN = ("serial", "unrolled")


def unsafe_after(step: Instruction, scene: Scene) -> Problem | None:
    """Why a step, legal for serial loops and buffers of the whole kernel, is not for those here."""
    concurrent = not scene.late and _has_concurrent(scene.kernel)
    if not concurrent and not _has_inner_buffers(scene.kernel):
        return None
    kernel = scene.after(step).kernel
    problem = _out_of_sight(kernel)
    if problem is not None or not concurrent:
        return problem
    return unsafe(Scene(kernel, scene.outputs))


def unsafe(scene: Scene) -> Problem | None:
    """Why the loops of a kernel that run at once may not do so."""
    for var, loop in scene.map.loops.nodes.items():
        if loop.kind in IN_TURN:
            continue
        site = scene.map.loops[var]
        if loop.kind not in ("parallel", "vectorized"):
            if (problem := safe_threads(scene, site)) is not None:
                return problem
            continue
        for buffer in conflicts(loop):
            if not is_own(scene, site, buffer):
                expected = "iterations that do not meet in memory"
                found = f"they may meet in {buffer.name}"
                return Problem("independent", f"the loop {loop.var.name}", expected, found)
    return _launched_apart(scene.kernel)


def _has_concurrent(kernel: st.Kernel) -> bool:
    return any(loop.kind not in IN_TURN for loop in map_of(kernel).loops.nodes.values())


@lru_cache(maxsize=64)
def _has_inner_buffers(kernel: st.Kernel) -> bool:
    """Whether a buffer is allocated for a part of the kernel only."""
    body = kernel.body
    while isinstance(body, st.Alloc):
        body = body.body
    return any(isinstance(each, st.Alloc) for each in st.statements(body))


def _out_of_sight(kernel: st.Kernel) -> Problem | None:
    """A buffer that is used outside of the part of the kernel it is allocated for."""
    lost = sorted(str(each.name) for each in free_vars(kernel) if isinstance(each, Buffer))
    if not lost:
        return None
    expected = "blocks that stay where the buffers they use are allocated"
    return Problem("allocated", f"the buffer {lost[0]}", expected, "a block outside")


@lru_cache(maxsize=64)
def _launched_apart(kernel: st.Kernel) -> Problem | None:
    """A buffer that threads have to themselves, used in a launch and elsewhere too."""
    places: dict[Buffer, set[int]] = {}
    launches = _launches(kernel.body)
    for number, stmt in enumerate(launches):
        for access in accesses(stmt):
            if scope(access.buffer.scope).reach != "all":
                places.setdefault(access.buffer, set()).add(number)
    for buffer, by in places.items():
        if len(by) > 1 and any(isinstance(launches[at], st.For) for at in by):
            expected = f"memory that all threads reach, or one launch that uses {buffer.name}"
            found = f"the scope {buffer.scope}, used by {len(by)} parts of the kernel"
            hint = "Move the block into the launch in one step: read_at, write_at."
            return Problem("handed-over", f"the buffer {buffer.name}", expected, found, hint)
    return None


def _launches(root: st.Stmt) -> list[st.Stmt]:
    """The outermost loops over threads, and the statements outside them that hold none."""
    found: list[st.Stmt] = []
    stack = [root]
    while stack:
        stmt = stack.pop()
        inside = st.substatements(stmt)
        if (isinstance(stmt, st.For) and stmt.kind in st.THREADS) or not inside:
            found.append(stmt)
        else:
            stack.extend(reversed(inside))
    return found
