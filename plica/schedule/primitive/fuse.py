"""fuse: loops directly inside one another become one.

    before                      after  fuse(i, j)
    for i in range(n):          for i_j in range(n * m):
        for j in range(m): …        …  with i = i_j // m, j = i_j % m

Preconditions: `count` (at least two loops), `plain-loop` (serial, no annotations), `chain` (each is
all that stands in the one before), `independent` (no extent depends on an outer of the loops).
"""

from __future__ import annotations

from itertools import pairwise

from attrs import frozen

from plica.core.binding import free_vars, substitute
from plica.core.name import Name
from plica.ir.dtype import i64
from plica.ir.loop import For
from plica.ir.scalar import Scalar, ScalarVar
from plica.schedule.around import simple
from plica.schedule.handle import Handle
from plica.schedule.instruction import Edited, Instruction, Scene, primitive
from plica.schedule.pose import plain_loop
from plica.schedule.problem import Problem
from plica.schedule.site import fresh_names, replace


@primitive("fuse")
@frozen(eq=False)
class Fuse(Instruction):
    """Loops, outermost first; gives the one they become."""

    loops: tuple[Handle, ...]

    def check(self, scene: Scene) -> Problem | None:
        loops = [scene.loop(each).node for each in self.loops]
        if len(loops) < 2:
            return Problem("count", "fuse", "at least two loops", f"{len(loops)}")
        for loop in loops:
            problem = plain_loop(loop)
            if problem is not None:
                return problem
        for outer, inner in pairwise(loops):
            where = f"the loop {inner.var.name}"
            if outer.body is not inner:
                expected = f"it to be all that stands in the loop {outer.var.name}"
                return Problem("chain", where, expected, "something else stands there")
        outside = {loop.var for loop in loops}
        for loop in loops:
            if not free_vars(loop.extent).isdisjoint(outside):
                where, found = f"the loop {loop.var.name}", "its extent depends on one of them"
                return Problem("independent", where, "extents apart from the loops", found)
        return None

    def edit(self, scene: Scene) -> Edited:
        sites = [scene.loop(each) for each in self.loops]
        loops = [site.node for site in sites]
        hint = "_".join(str(loop.var.name) for loop in loops)
        (name,) = fresh_names(scene.kernel, [Name(hint)])
        var = ScalarVar(name, i64)
        extent: Scalar = loops[0].extent
        for loop in loops[1:]:
            extent = extent * loop.extent
        values: dict[ScalarVar, Scalar] = {}
        rest: Scalar = var
        for loop in reversed(loops[1:]):
            values[loop.var] = rest % loop.extent
            rest = rest // loop.extent
        values[loops[0].var] = rest
        body = substitute(loops[-1].body, values)
        new = For(var, simple(extent), "serial", body)  # type: ignore[arg-type]
        return Edited(replace(scene.kernel, sites[0], new), (var,))


def fuse(*loops: Handle) -> Instruction:
    """Loops directly inside one another, outermost first; gives the one they become."""
    return Fuse(loops)
