"""Launches: whether concurrent threads are equivalent to a serial loop.

A launch is an outermost loop over threads, with all inside.  Blocks of threads are never ordered;
the threads of one block are ordered by barriers, which lowering puts where memory of the scope
`shared` is written by some and read by others.  So what threads hand to one another must live
there, and what each needs alone must live where it has its own.

A block with a reduce variable bound to a thread is a cross-thread reduction, which lowering turns
into shuffles or a tree in shared memory.

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.statement import Kernel, Store
>>> from plica.ir.loop.scalar import index
>>> from plica.ir.loop.tensor import axis, buffer
>>> y, i = buffer("y", (4,), f32), axis("i")
>>> for place in (i, i // 2):
...     loop = For(i, index(4), "threadIdx.x", Store(y, (place,), y[i]))
...     scene = Scene(Kernel((), (y,), 0, loop), {})
...     problem = safe_threads(scene, scene.map.loops[i])
...     print(None if problem is None else problem.precondition)
None
independent

Concurrent loops: whether those a kernel has still may run at once after a step.

Data movement steps assume serial execution: a block's inputs are ready when it runs. For parallel,
vectorized or thread-bound loops, it must be checked whether their iterations conflict, whether a
buffer private to a thread or block is used in one launch only, and whether a locally allocated
buffer is unused outside of its scope.

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

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

from plica.analysis.access import Access, accesses
from plica.analysis.dependence import Child, children, conflicts, determines_iteration, indexed
from plica.analysis.site import Site, map_of
from plica.core import Name, free_vars, substitute
from plica.ir.loop import statement as st
from plica.ir.loop.memory_scope import scope
from plica.ir.loop.scalar import Buffer, ScalarVar
from plica.ir.loop.statement import THREADS, Block, For, Stmt, outermost, statements, substatements
from plica.ir.type import i64, same_dim
from plica.runtime.late import lazy_imports
from plica.schedule.block_class import complete_body, reduction_body
from plica.schedule.instruction import Instruction, Scene
from plica.schedule.order import begins_at_zero, is_only_inside, is_own, reduce_loops
from plica.schedule.problem import Problem

with lazy_imports(__name__):
    from plica.analysis.disjoint_access import IndexedAccess, are_disjoint


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
                return Problem("independent", loop, expected, f"they may meet in {buffer.name}")
    return _launched_apart(scene.kernel)


def _has_concurrent(kernel: st.Kernel) -> bool:
    return any(loop.kind not in IN_TURN for loop in map_of(kernel).loops.nodes.values())


@lru_cache(maxsize=64)
def _has_inner_buffers(kernel: st.Kernel) -> bool:
    """Whether a buffer is allocated for a part of the kernel only."""
    body = kernel.body
    while isinstance(body, st.Alloc):
        body = body.body
    return any(isinstance(statement, st.Alloc) for statement in st.statements(body))


def _out_of_sight(kernel: st.Kernel) -> Problem | None:
    """A buffer that is used outside of the part of the kernel it is allocated for."""
    lost = sorted(str(var.name) for var in free_vars(kernel) if isinstance(var, Buffer))
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
            return Problem("handed-over", buffer, expected, found, hint)
    return None


def _launches(root: st.Stmt) -> list[st.Stmt]:
    """The outermost loops over threads, and the statements outside them that hold none."""
    statements: list[st.Stmt] = []
    stack = [root]
    while stack:
        stmt = stack.pop()
        inside = st.substatements(stmt)
        if (isinstance(stmt, st.For) and stmt.kind in st.THREADS) or not inside:
            statements.append(stmt)
        else:
            stack.extend(reversed(inside))
    return statements


def safe_threads(scene: Scene, site: Site[For], only: Buffer | None = None) -> Problem | None:
    """Whether a loop that is bound to threads in this scene does what it did as a serial one.

    With `only`, checks that buffer alone.
    """
    loop = site.node
    again = next(
        (s for s, _ in reversed(site.above) if isinstance(s, For) and s.kind == loop.kind), None
    )
    if again is not None and loop.kind != "virtual":
        if (problem := _shares_out(scene, site, again)) is not None:
            return problem
    else:
        for buffer in conflicts(loop):
            if only not in (None, buffer) or determines_iteration(site, buffer):
                continue
            if not _apart(scene, site, buffer):
                expected = "iterations that do not meet, or buffers that each thread has to itself"
                found = f"they may meet in {buffer.name}, in the scope {buffer.scope}"
                return Problem("independent", loop, expected, found)
    for inner in _loops_inside(loop.body):
        if inner.kind == loop.kind and loop.kind != "virtual":
            problem = _shares_out(scene, scene.map.loops[inner.var], loop)
            if problem is not None:
                return problem
    root = next((s for s, _ in site.above if isinstance(s, For) and s.kind in THREADS), loop)
    if again is None and (problem := _ends(site, scene.map.loops[root.var], only)) is not None:
        return problem
    return _handed_over(root, only) or _carried(scene, root, only)


def meets(loop: For, buffer: Buffer) -> bool:
    """Whether the iterations of a loop are threads that have a buffer in common."""
    return loop.kind.startswith("threadIdx") and scope(buffer.scope).reach == "block"


def thread_loops(scene: Scene) -> tuple[Site[For], ...]:
    """The loops over threads, in the order of the text."""
    return tuple([site for site in scene.map.loops.values() if site.node.kind in THREADS])


def _ends(site: Site[For], root: Site[For], only: Buffer | None) -> Problem | None:
    """Thread-private data ends with the threads: nobody else uses it."""
    loop = site.node
    if loop.kind == "virtual":
        return None
    for access in accesses(loop):
        buffer = access.buffer
        reach = scope(buffer.scope).reach
        if only not in (None, buffer) or reach == "all":
            continue
        within = root if reach == "block" and loop.kind.startswith("threadIdx") else site
        if not is_only_inside(within, buffer):
            expected = f"nobody outside it to use {buffer.name}, which ends with its threads"
            hint = "Move what fills it into the loop first."
            return Problem("handed-over", within, expected, f"the scope {buffer.scope}", hint)
    return None


def _apart(scene: Scene, site: Site[For], buffer: Buffer) -> bool:
    loop = site.node
    reach = scope(buffer.scope).reach
    if loop.kind == "virtual":  # lowering gives each its own
        return is_own(scene, site, buffer)
    if loop.kind.startswith("blockIdx"):
        return reach != "all" and is_own(scene, site, buffer)
    users = [child for child in children(loop.body) if buffer in (*child.reads, *child.writes)]
    if len(users) == 1 and _across(scene, site, users[0], buffer):
        return True
    if reach == "thread":
        return is_own(scene, site, buffer)
    if reach != "block" or not is_own(scene, site, buffer):
        return False
    return _repeats(loop, users[0]) and all(
        repeated(loop, part) or not _writes(part, buffer) for part in shares(loop)
    )


def _across(scene: Scene, site: Site[For], user: Child, buffer: Buffer) -> bool:
    """Whether a buffer is the result of a reduction across the threads, and of nothing else."""
    block = scene.map.blocks[user.block.label]
    if reduction_body(user.block) is not None or not begins_at_zero(block):
        return False
    if site.node not in reduce_loops(block):
        return False
    if scope(buffer.scope).reach == "block":  # barriers are put before those who read it
        return True
    root = next((s for s, _ in site.above if isinstance(s, For) and s.kind in THREADS), site.node)
    users = [child for child in children(root) if buffer in (*child.reads, *child.writes)]
    return len(users) == 1


def _repeats(loop: For, user: Child) -> bool:
    """Whether a block writes the same in every iteration of a loop around it."""
    written = {access.buffer for access in accesses(loop.body) if access.written}
    return complete_body(user.block) is None and written.isdisjoint(user.reads)


def shares(loop: For) -> Iterable[Stmt]:
    """The parts of a thread loop's body that each thread executes separately.

    A part is maximal if all threads would do the same; work distributed by an inner loop over the
    same threads is excluded.
    """
    stack: list[Stmt] = [loop.body]
    while stack:
        stmt = stack.pop()
        if isinstance(stmt, For) and stmt.kind == loop.kind:
            continue
        inside = () if isinstance(stmt, Block) or repeated(loop, stmt) else substatements(stmt)
        if not inside:
            yield stmt
        stack.extend(reversed(inside))


@lru_cache(maxsize=1024)
def repeated(loop: For, part: Stmt) -> bool:
    """Whether all threads of a loop would fill the same elements of memory that they share.

    Then one of them does it for all.
    """
    written = [access.buffer for access in accesses(part) if access.written]
    return (
        bool(written)
        and all(meets(loop, buffer) for buffer in written)
        and loop.var not in free_vars(part)
        and not any(inner.kind == loop.kind for inner in _loops_inside(part))
    )


def _writes(part: Stmt, buffer: Buffer) -> bool:
    return any(access.written and access.buffer is buffer for access in accesses(part))


def _shares_out(scene: Scene, site: Site[For], around: For) -> Problem | None:
    """A nested loop over the same threads: each does a part of the common work."""
    loop = site.node
    if not same_dim(loop.extent, around.extent):
        expected = f"the extent of {around.var.name}, which is bound to {loop.kind} around it"
        return Problem("cooperative", loop, expected, "another")
    if around.var in free_vars(loop):
        found = f"it depends on {around.var.name}"
        return Problem("cooperative", loop, "the same work for each thread", found)
    outer = scene.map.loops[around.var]
    met = {*conflicts(loop)}
    for access in accesses(loop):
        buffer = access.buffer
        if not access.written:
            continue
        if scope(buffer.scope).reach != "block" or buffer in met:
            expected = "to write memory that the threads of a block share, each its own elements"
            return Problem("cooperative", loop, expected, f"it writes {buffer.name}")
        if not is_own(scene, outer, buffer):
            expected = f"a buffer that {around.var.name} fills before it reads it"
            return Problem("cooperative", loop, expected, f"{buffer.name}")
    return None


@lru_cache(maxsize=256)
def _handed_over(root: For, only: Buffer | None) -> Problem | None:
    """Data that threads of one loop pass to threads of another without a possible barrier
    between."""
    for tag in THREADS:
        units = _units(root, tag)
        if len(units) < 2:
            continue
        touched: dict[Buffer, set[int]] = {}
        written: set[Buffer] = set()
        for number, unit in enumerate(units):
            for each in unit:
                touched.setdefault(each.buffer, set()).add(number)
                if each.written:
                    written.add(each.buffer)
        for buffer, by in touched.items():
            if len(by) < 2 or buffer not in written or only not in (None, buffer):
                continue
            if tag.startswith("threadIdx") and scope(buffer.scope).reach == "block":
                continue
            if _in_parts(root, tag, buffer):
                continue
            expected = f"memory that is shared along {tag}, since several loops use it"
            found = f"{buffer.name} in the scope {buffer.scope}"
            return Problem("handed-over", root, expected, found)
    return None


def _carried(scene: Scene, root: For, only: Buffer | None) -> Problem | None:
    """Data that threads leave for other threads in a later iteration of a serial loop of a launch,
    where no barrier stands between."""
    for site in thread_loops(scene):
        path = [*(stmt for stmt, _ in site.above), site.node]
        if not site.node.kind.startswith("threadIdx") or root not in path:
            continue
        launch = path[path.index(root) + 1 : -1]
        turns = [each for each in launch if isinstance(each, For) and each.kind in IN_TURN]
        for buffer in dict.fromkeys([conflict for turn in turns for conflict in conflicts(turn)]):
            if only not in (None, buffer) or scope(buffer.scope).reach == "block":
                continue
            if not _stays(scene, site, turns, buffer):
                expected = f"memory that is shared along {site.node.kind}: {buffer.name} is not"
                found = f"{buffer.name} in the scope {buffer.scope}, used in several iterations"
                return Problem("handed-over", site, expected, found)
    return None


def _stays(scene: Scene, site: Site[For], turns: Sequence[For], buffer: Buffer) -> bool:
    """Whether each element of a buffer is one thread's, in all turns of the loops around it."""
    users = [child for child in children(site.node.body) if buffer in (*child.reads, *child.writes)]
    if not users or determines_iteration(site, buffer):
        return True
    if len(users) == 1 and _across(scene, site, users[0], buffer):
        return True
    return scope(buffer.scope).reach == "thread" and all(
        is_own(scene, scene.map.loops[loop.var], buffer)
        for loop in turns
        if buffer in conflicts(loop)
    )


MAX_ACCESSES: Final = 6  # of this many accesses of one buffer all pairs are looked into


def _in_parts(root: For, tag: str, buffer: Buffer) -> bool:
    """Whether threads of different numbers never touch one element of a buffer in a launch, shown
    for each pair of accesses, all loops but that over the threads being anywhere."""
    loops = {loop.var for loop in (root, *_loops_inside(root.body)) if loop.kind == tag}
    mine = dict.fromkeys([access for access in accesses(root) if access.buffer is buffer])
    if len(mine) > MAX_ACCESSES:
        return False
    thread = ScalarVar(Name("the thread"), i64)
    places: list[IndexedAccess] = []
    for access in mine:
        number = [var for var, _ in access.inner if var in loops]
        if len(number) != 1:  # done by all of them, or by a loop inside of another
            return False
        place = indexed(access, ())
        told = {number[0]: thread}
        indices = place.indices and tuple([substitute(at, told) for at in place.indices])
        context = substitute(place.context, told)
        places.append(IndexedAccess(buffer, indices, context, access.written))
    return all(
        are_disjoint(one, two, thread, ())
        for at, one in enumerate(places)
        for two in places[at:]
        if one.written or two.written
    )


def _loops_inside(root: Stmt) -> Iterable[For]:
    return (stmt for stmt in statements(root) if isinstance(stmt, For))


def _units(root: For, tag: str) -> list[list[Access]]:
    """The accesses of each outermost loop over `tag` in a launch, and of the code outside."""
    units: list[list[Access]] = []
    alone: list[Access] = []

    def is_unit(stmt: Stmt) -> bool:
        return isinstance(stmt, For) and stmt.kind == tag

    def is_part(stmt: Stmt) -> bool:
        return is_unit(stmt) or (
            isinstance(stmt, Block) and not any(map(is_unit, statements(stmt)))
        )

    for stmt in outermost(root, is_part):
        if is_unit(stmt):
            units.append(list(accesses(stmt)))
        else:
            alone += accesses(stmt)
    return [*units, alone] if units and alone else units
