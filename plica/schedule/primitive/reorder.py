"""reorder: permute perfectly nested loops.

    before                      after  reorder(k, i)
    for i in range(n):          for k in range(p):
        for j in range(m):          for j in range(m):
            for k in range(p): …        for i in range(n): …

The given loops exchange their positions in the given order; loops between them stay.

Preconditions:

- `count`: at least one loop.
- `once`: each loop once.
- `chain`: each loop is the only statement of the one around it.
- `extents`: no extent depends on a loop that moves inside it.
- `independent`: conflicting iterations keep their order, or belong to one reduction, or to one
  complete block that stores the same value again. Iterations of a parallel loop never conflict.
"""

from __future__ import annotations

from collections.abc import Sequence

from attrs import frozen

from plica.analysis.dependence import children, unblocked_statement
from plica.analysis.site import Site, replace
from plica.core.binding import free_vars
from plica.ir.contract import Contract, exact, reassociates
from plica.ir.loop import Block, Buffer, For, ScalarVar, Stmt
from plica.schedule.block_class import complete_body
from plica.schedule.handle import Handle
from plica.schedule.instruction import Edited, Instruction, Scene, primitive
from plica.schedule.order import is_own, open_loops, updates_in_any_order
from plica.schedule.problem import Problem


@primitive("reorder")
@frozen(eq=False)
class Reorder(Instruction):
    """Loops in the order they are to stand, outermost first."""

    contract = reassociates

    loops: tuple[Handle, ...]

    def check(self, scene: Scene) -> Problem | None:
        if not (sites := [scene.loop(handle) for handle in self.loops]):
            return Problem("count", "reorder", "at least one loop", "none")
        if len({site.node for site in sites}) != len(sites):
            return Problem("once", "reorder", "each loop once", "a loop named twice")
        if isinstance(span := spanned(sites), Problem):
            return span
        order = permuted(span, [site.node for site in sites])
        inside: set[ScalarVar] = set()
        for loop in reversed(order):
            inside.add(loop.var)
            if not free_vars(loop.extent).isdisjoint(inside):
                found = "it depends on a loop that would stand inside"
                return Problem("extents", loop, "an extent known outside", found)
        return None if order == span else self.meets(scene, span, order)

    def meets(self, scene: Scene, span: list[For], order: list[For]) -> Problem | None:
        """The problem of iterations that meet and change their order."""
        innermost = scene.map.loops[span[-1].var]
        place = {loop.var: at for at, loop in enumerate(order)}
        unordered = {loop.var for loop in span if loop.kind not in ("serial", "unrolled")}
        for buffer, left in open_loops(span[0], tuple([loop.var for loop in span])).items():
            kept = sorted(left, key=place.__getitem__) == list(left)
            if kept and unordered.isdisjoint(left):
                continue
            if is_own(scene, innermost, buffer):
                continue
            if unordered.isdisjoint(left) and in_any_order(scene, innermost, buffer):
                continue
            names = ", ".join(str(var.name) for var in left)
            where = f"the loops {names}"
            expected = "iterations that do not meet in memory"
            return Problem("independent", where, expected, f"they may meet in {buffer.name}")
        return None

    def keeps(self, scene: Scene) -> Contract:
        """Floats change where a reduction combines them in another order."""
        sites = [scene.loop(handle) for handle in self.loops]
        span = spanned(sites)
        assert not isinstance(span, Problem)
        order = permuted(span, [site.node for site in sites])
        place = {loop.var: at for at, loop in enumerate(order)}
        for buffer, left in open_loops(span[0], tuple([loop.var for loop in span])).items():
            if buffer.dtype.is_float and sorted(left, key=place.__getitem__) != list(left):
                return self.contract
        return exact

    def edit(self, scene: Scene) -> Edited:
        sites = [scene.loop(handle) for handle in self.loops]
        span = spanned(sites)
        assert not isinstance(span, Problem)
        body: Stmt = span[-1].body
        for loop in reversed(permuted(span, [site.node for site in sites])):
            body = For(loop.var, loop.extent, loop.kind, body, loop.annotations)
        return Edited(replace(scene.kernel, scene.map.loops[span[0].var], body))


def spanned(sites: Sequence[Site[For]]) -> list[For] | Problem:
    """The loops from the outermost of some to the innermost, which must be a chain."""
    outer = min(sites, key=lambda site: len(site.above)).node
    left = {site.node for site in sites}
    span = [outer]
    left.discard(outer)
    while left:
        inner = span[-1].body
        if not isinstance(inner, For):
            names = ", ".join(str(site.node.var.name) for site in sites if site.node in left)
            expected = f"to stand in {outer.var.name}, with nothing but loops between"
            return Problem("chain", f"the loops {names}", expected, "something else stands there")
        span.append(inner)
        left.discard(inner)
    return span


def permuted(span: list[For], given: Sequence[For]) -> list[For]:
    """The loops of a span, those given in the order given."""
    moving = iter(given)
    return [next(moving) if loop in given else loop for loop in span]


def in_any_order(scene: Scene, site: Site[For], buffer: Buffer) -> bool:
    """Whether no order matters for a buffer in a loop: one reduction updates it, or each element is
    stored by instances of one block that are the same."""
    inside = site.node.body
    users = [child for child in children(inside) if buffer in (*child.reads, *child.writes)]
    if len(users) != 1 or unblocked_statement(inside) is not None:
        return False
    block = scene.map.blocks[users[0].block.label]
    return updates_in_any_order(block, buffer) or _stores_the_same(block, inside)


def _stores_the_same(site: Site[Block], around: Stmt) -> bool:
    """Whether an instance of a block stores the same whenever it runs in a statement."""
    written = {write for child in children(around) for write in child.writes}
    reads = {read for child in children(site.node) for read in child.reads}
    loops = {loop.var for loop in site.loops}
    return (
        complete_body(site.node) is None
        and reads.isdisjoint(written)
        and free_vars(site.node.body).isdisjoint(loops)
    )


def reorder(*loops: Handle) -> Instruction:
    """Loops directly inside one another, in the order they are to stand."""
    return Reorder(loops)
