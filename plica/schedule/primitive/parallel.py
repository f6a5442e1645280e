"""parallel: the iterations of a loop run at once, on several cores.

    before                      after  parallel(i)
    for i in range(n): …        for i in parallel(n): …

Preconditions: `plain-loop` (serial; annotations may stay), `independent` (no iteration touches an
element that another writes, but in buffers which each iteration fills before it reads them and
nobody else uses: lowering gives each iteration its own).
"""

from __future__ import annotations

from attrs import frozen

from plica.ir.loop import For
from plica.schedule.dependence import conflicts
from plica.schedule.handle import Handle
from plica.schedule.instruction import Edited, Instruction, Scene, primitive
from plica.schedule.order import is_own
from plica.schedule.pose import serial
from plica.schedule.problem import Problem
from plica.schedule.site import replace


@primitive("parallel")
@frozen(eq=False)
class Parallel(Instruction):
    """A loop whose iterations are to run at once."""

    loop: Handle

    def check(self, scene: Scene) -> Problem | None:
        site = scene.loop(self.loop)
        problem = serial(site.node)
        if problem is not None:
            return problem
        for buffer in conflicts(site.node):
            if not is_own(scene, site, buffer):
                expected = "iterations that do not meet in memory"
                found = f"they may meet in {buffer.name}"
                return Problem("independent", f"the loop {site.node.var.name}", expected, found)
        return None

    def edit(self, scene: Scene) -> Edited:
        site = scene.loop(self.loop)
        loop = site.node
        new = For(loop.var, loop.extent, "parallel", loop.body, loop.annotations)
        return Edited(replace(scene.kernel, site, new))


def parallel(loop: Handle) -> Instruction:
    """A loop whose iterations are to run at once."""
    return Parallel(loop)
