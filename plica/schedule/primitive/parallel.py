"""parallel: run the iterations of a loop in parallel on several cores.

    before                      after  parallel(i)
    for i in range(n): …        for i in parallel(n): …

A buffer that each iteration fills before it reads it, and that nothing else uses, becomes private
to the iteration.

Preconditions:

- `plain-loop`: a serial loop; annotations are allowed.
- `independent`: no iteration accesses an element that another writes, except in private buffers.
"""

from __future__ import annotations

from attrs import frozen

from plica.analysis.site import map_of, replace
from plica.ir.loop.statement import For
from plica.schedule.handle import Handle
from plica.schedule.instruction import Edited, Instruction, Scene, primitive
from plica.schedule.precondition import separable_iterations, serial
from plica.schedule.privatisation import private, with_private
from plica.schedule.problem import Problem


@primitive("parallel")
@frozen(eq=False)
class Parallel(Instruction):
    """A loop whose iterations are to run at once."""

    loop: Handle

    def check(self, scene: Scene) -> Problem | None:
        site = scene.loop(self.loop)
        return serial(site.node) or separable_iterations(scene, site)

    def edit(self, scene: Scene) -> Edited:
        site = scene.loop(self.loop)
        kernel = with_private(scene.kernel, site, private(scene.kernel, site))
        here = map_of(kernel).loops[site.node.var]
        loop = here.node
        new = For(loop.var, loop.extent, "parallel", loop.body, loop.annotations)
        return Edited(replace(kernel, here, new))


def parallel(loop: Handle) -> Instruction:
    """A loop whose iterations are to run at once."""
    return Parallel(loop)
