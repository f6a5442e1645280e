"""unroll: unroll a loop in the code generator.

    before                      after  unroll(i)
    for i in range(4): …        for i in unrolled(4): …

Preconditions:

- `plain-loop`: a serial loop; annotations are allowed.
- `constant-extent`.
"""

from __future__ import annotations

from attrs import frozen

from plica.analysis.site import replace
from plica.ir.loop.statement import For
from plica.ir.type import known
from plica.schedule.handle import Handle
from plica.schedule.instruction import Edited, Instruction, Scene, primitive
from plica.schedule.problem import Problem


@primitive("unroll")
@frozen(eq=False)
class Unroll(Instruction):
    """A loop to be unrolled."""

    loop: Handle

    def check(self, scene: Scene) -> Problem | None:
        loop = scene.loop(self.loop).node
        where = f"the loop {loop.var.name}"
        if loop.kind != "serial":
            return Problem("plain-loop", where, "a serial loop", f"a loop of the kind {loop.kind}")
        if known(loop.extent) is None:
            return Problem("constant-extent", where, "a constant extent", "a symbolic one")
        return None

    def edit(self, scene: Scene) -> Edited:
        site = scene.loop(self.loop)
        loop = site.node
        new = For(loop.var, loop.extent, "unrolled", loop.body, loop.annotations)
        return Edited(replace(scene.kernel, site, new))


def unroll(loop: Handle) -> Instruction:
    """A loop to be unrolled."""
    return Unroll(loop)
