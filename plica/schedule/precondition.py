"""Preconditions: questions about loops and blocks that many primitives ask before they edit.

Each answers None, or the precondition that is broken, so that a check is a chain of them:

    return complete(scene, site) or affine(scene, site) or stage_pipeline(scene, site)

    word               what it asks for
    plain-loop         a serial loop without annotations
    rectangular        loops whose extents do not depend on one another, and nothing else around
    injective          bindings such that no instance of the block runs twice
    affine             injective bindings, and every instance of the block runs
    spatial-only       spatial variables, nothing else
    sole-writer        no other block of the scope writes the same buffer
    no-barrier         no barrier inside a block
    no-self-read       the block does not read what it writes
    distinct-writes    instances that differ in spatial variables write different elements
    reduce-kinds       spatial and reduce variables, at least one of them reduce
    same-element       what is updated does not depend on reduce variables
    reducer            updates by one operation whose order does not matter
    scan-kinds         spatial and scan variables, at least one of them scan
    scanner            one update of what a scan goes on from, and stores of that elsewhere
    starts             the init stores each element that is updated, before the first update
    stage-pipeline     only loops and blocks; who writes a buffer comes before who reads it
    covered            what a block reads in a shared loop was written in the same iteration
    intermediate       a buffer made inside the kernel
    independent        iterations that do not meet in memory
    spatial-loop       a loop that feeds only spatial variables
    same-scope         two blocks in one scope
    scope              a memory scope that somebody declared
    allocated          blocks inside the allocations of the buffers they use

>>> from plica.ir.type.dtype import f32
>>> from plica.ir.loop.statement import Kernel, Store, block
>>> from plica.ir.loop.tensor import axis, buffer
>>> x, y, i, v = buffer("x", (4,), f32), buffer("y", (4,), f32), axis("i"), axis("v")
>>> inside = block("y", (v,), (4,), "s", (i // 2,), Store(y, (v,), x[v]))
>>> scene = Scene(Kernel((), (x, y), 1, For(i, x.shape[0], "serial", inside)), {})
>>> site = scene.map.blocks[inside.label]
>>> complete(scene, site) is None, affine(scene, site).precondition
(True, 'affine')

Guards: a condition on every block inside a statement.

Loops outside blocks hold only loops, blocks and allocations, so a condition on what they do is a
predicate of the blocks inside them.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from plica.analysis.coverage import is_covered
from plica.analysis.dependence import children, conflicts, scope_of, unblocked_statement
from plica.analysis.index.iteration import IterationMap, iteration_map
from plica.analysis.site import Site, with_parts
from plica.core import free_vars
from plica.ir.loop import Buffer, ScalarVar
from plica.ir.loop.memory_scope import is_scope, scopes
from plica.ir.loop.scalar import And, Scalar
from plica.ir.loop.statement import TRUE, Alloc, Block, For, Seq, Stmt
from plica.schedule.block_class import complete_body, reduction_body
from plica.schedule.instruction import Scene
from plica.schedule.problem import Problem
from plica.schedule.scope_edit import reworked


def guarded(root: Stmt, condition: Scalar) -> Stmt:
    """The statement with an additional condition on each of its outermost blocks."""

    def change(block: Block) -> Block:
        return with_parts(block, predicate=all_of((block.predicate, condition)))

    return reworked(root, change)


def all_of(conditions: Iterable[Scalar]) -> Scalar:
    """All conditions at once, without those that always hold."""
    whole: Scalar = TRUE
    for condition in conditions:
        if condition is not TRUE:
            whole = condition if whole is TRUE else And(whole, condition)
    return whole


def unguardable(loop: For) -> Problem | None:
    """A statement in a loop, outside blocks, that cannot carry a condition."""
    if (stmt := unblocked_statement(loop.body)) is None:
        return None
    found = f"a {type(stmt).__name__} outside any block"
    return Problem("blocks-only", loop, "only loops and blocks inside", found)


def plain_loop(loop: For) -> Problem | None:
    """A loop that runs its iterations in order, of which nothing else was said."""
    if loop.kind != "serial":
        return Problem("plain-loop", loop, "a serial loop", f"a loop of the kind {loop.kind}")
    if loop.annotations:
        said = ", ".join(key for key, _ in loop.annotations)
        return Problem("plain-loop", loop, "a loop without annotations", said)
    return None


def serial(loop: For) -> Problem | None:
    """A loop that runs its iterations in order, whatever was said of it."""
    if loop.kind == "serial":
        return None
    return Problem("plain-loop", loop, "a serial loop", f"a loop of the kind {loop.kind}")


def rectangular(site: Site[Block]) -> Problem | None:
    """A block in loops whose extents do not depend on one another, and in nothing else."""
    variables: set[ScalarVar] = set()
    for stmt in _around(site):
        if isinstance(stmt, For):
            if not free_vars(stmt.extent).isdisjoint(variables):
                found = f"the extent of {stmt.var.name} depends on a loop around it"
                return Problem("rectangular", site, "loops with extents of their own", found)
            variables.add(stmt.var)
        elif not isinstance(stmt, Seq | Alloc):
            found = f"a {type(stmt).__name__}"
            return Problem("rectangular", site, "nothing but loops around it", found)
    return None


def bindings_of(site: Site[Block]) -> IterationMap:
    """How the variables of a block follow from the loops of its scope."""
    block = site.node
    loops = [(loop.var, loop.extent) for loop in site.loops]
    return iteration_map(loops, block.bindings, block.extents, block.predicate)


def injective(scene: Scene, site: Site[Block]) -> Problem | None:
    """A block of which no instance runs twice."""
    if (problem := rectangular(site)) is not None:
        return problem
    if bindings_of(site).injective:
        return None
    found = "bindings that are not shown to be such"
    return Problem("injective", site, "bindings by which no instance runs twice", found)


def affine(scene: Scene, site: Site[Block]) -> Problem | None:
    """A block of which each instance runs exactly once."""
    if (problem := rectangular(site)) is not None:
        return problem
    if bindings_of(site).bijective:
        return None
    expected = "bindings by which each instance runs exactly once"
    return Problem("affine", site, expected, "bindings that are not shown to be such")


def only_loops(scene: Scene, site: Site[Block]) -> Problem | None:
    """A scope in which only loops, blocks and allocations stand."""
    if (statement := unblocked_statement(scope_of(scene.kernel, site))) is None:
        return None
    expected = "only loops and blocks in the scope"
    there = f"a {type(statement).__name__} outside any block"
    return Problem("stage-pipeline", site, expected, there)


def sole_writer(scene: Scene, site: Site[Block]) -> Problem | None:
    """A block whose buffers no other one of its scope writes."""
    if (problem := only_loops(scene, site)) is not None:
        return problem
    every = children(scope_of(scene.kernel, site))
    mine = next(child for child in every if child.block is site.node)
    for other in every:
        if other is not mine and not set(other.writes).isdisjoint(mine.writes):
            found = f"{other.block.label} writes it too"
            return Problem("sole-writer", site, "the only writer of its buffer", found)
    return None


def complete(scene: Scene, site: Site[Block]) -> Problem | None:
    """A block whose instances may run in any order, and the only writer of its outputs."""
    return sole_writer(scene, site) or complete_body(site.node)


def reduction(scene: Scene, site: Site[Block]) -> Problem | None:
    """A block that combines over reduce variables into elements it alone begins and updates."""
    return sole_writer(scene, site) or reduction_body(site.node)


def complete_or_reduction(scene: Scene, site: Site[Block]) -> Problem | None:
    """Either; the problem is that of the one it looks like."""
    reduces = site.node.init is not None or "reduce" in site.node.kinds
    return reduction(scene, site) if reduces else complete(scene, site)


def stage_pipeline(scene: Scene, site: Site[Block]) -> Problem | None:
    """A scope in which each buffer's writers precede its readers, in the same iterations."""
    if (problem := only_loops(scene, site)) is not None:
        return problem
    scope = scope_of(scene.kernel, site)
    if (problem := _in_stages(scope)) is not None:
        return problem
    for child in children(scope):
        if (problem := covered(scene, scene.map.blocks[child.block.label])) is not None:
            return problem
    return None


@lru_cache(maxsize=1024)
def _in_stages(scope: Stmt) -> Problem | None:
    read_by: dict[Buffer, Block] = {}
    for child in children(scope):
        for buffer in child.writes:
            if (reader := read_by.get(buffer)) is not None:
                found = f"{reader.label} reads it before"
                expected = f"{buffer.name} to be written before it is read"
                return Problem("stage-pipeline", child.block, expected, found)
        for buffer in child.reads:
            if buffer not in child.writes:
                read_by.setdefault(buffer, child.block)
    return None


def covered(scene: Scene, site: Site[Block]) -> Problem | None:
    """A block that reads, in each iteration of a shared loop, only what was written in it."""
    scope = scope_of(scene.kernel, site)
    mine = {loop.var for loop in site.loops}
    for child in children(scope):
        if child.block is site.node:
            break
        other = scene.map.blocks[child.block.label]
        shared = [loop for loop in other.loops if loop.var in mine]
        if shared and not is_covered(other, site, shared[-1]):
            expected = f"what {child.block.label} wrote in the same iteration"
            found = "elements that are not shown to be among these"
            return Problem("covered", site, expected, found)
    return None


def intermediate(scene: Scene, buffer: Buffer) -> Problem | None:
    """A buffer that is local to the kernel."""
    if buffer not in scene.kernel.params:
        return None
    return Problem("intermediate", buffer, "a buffer made inside the kernel", "a parameter")


def known_scope(scope: str, where: str) -> Problem | None:
    """A declared memory scope."""
    if is_scope(scope):
        return None
    names = ", ".join(memory_scope.name for memory_scope in scopes())
    return Problem("scope", where, f"one of the memory scopes {names}", repr(scope))


def independent_iterations(scene: Scene, site: Site[For]) -> Problem | None:
    """A loop whose iterations may run in any order, or at once."""
    if not (met := conflicts(site.node)):
        return None
    names = ", ".join(str(buffer.name) for buffer in met)
    expected = "iterations that do not meet in memory"
    return Problem("independent", site, expected, f"they are not shown to be apart in {names}")


def only_spatial_under(scene: Scene, site: Site[For]) -> Problem | None:
    """A loop that feeds only spatial variables of the blocks inside it."""
    loop = site.node
    for child in children(loop.body):
        block = child.block
        for var, kind, value in zip(block.vars, block.kinds, block.bindings, strict=True):
            if kind != "spatial" and loop.var in free_vars(value):
                found = f"{var.name} of {block.label} is {kind}"
                return Problem("spatial-loop", loop, "a loop of spatial variables only", found)
    return None


def same_scope(scene: Scene, a: Site[Block], b: Site[Block]) -> Problem | None:
    """Two blocks whose nearest block around is the same."""
    if a.scope is b.scope:
        return None
    where = f"the blocks {a.node.label} and {b.node.label}"
    return Problem("same-scope", where, "blocks in one scope", "they are in two")


def _around(site: Site[Block]) -> list[Stmt]:
    """The enclosing statements of a block inside its scope, outermost first."""
    statements: list[Stmt] = []
    for stmt, _ in reversed(site.above):
        if isinstance(stmt, Block):
            break
        statements.append(stmt)
    return statements[::-1]
