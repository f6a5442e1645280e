"""vectorize: turn the iterations of a loop into vector lanes.

    before                      after  vectorize(i)
    for i in range(8): …        for i in vectorized(8): …

An outer loop is vectorized in place: its body runs for all lanes at once, and strided elements are
gathered. Nested vector loops form a tile.

Preconditions:

- `plain-loop`: a serial loop; annotations are allowed.
- `constant-extent`.
- `independent`: no iteration accesses an element that another writes.
"""

from __future__ import annotations

from attrs import frozen

from plica.analysis.site import replace
from plica.ir.loop.statement import For
from plica.ir.type import known
from plica.schedule.handle import Handle
from plica.schedule.instruction import Edited, Instruction, Scene, primitive
from plica.schedule.precondition import independent_iterations, serial
from plica.schedule.problem import Problem


@primitive("vectorize")
@frozen(eq=False)
class Vectorize(Instruction):
    """A loop whose iterations are to be lanes."""

    loop: Handle

    def check(self, scene: Scene) -> Problem | None:
        site = scene.loop(self.loop)
        if (problem := serial(site.node)) is not None:
            return problem
        if known(site.node.extent) is None:
            where = f"the loop {site.node.var.name}"
            hint = "Split it by the number of lanes first."
            return Problem("constant-extent", where, "a constant extent", "a symbolic one", hint)
        return independent_iterations(scene, site)

    def edit(self, scene: Scene) -> Edited:
        site = scene.loop(self.loop)
        loop = site.node
        new = For(loop.var, loop.extent, "vectorized", loop.body, loop.annotations)
        return Edited(replace(scene.kernel, site, new))


def vectorize(loop: Handle) -> Instruction:
    """A loop whose iterations are to be lanes."""
    return Vectorize(loop)
