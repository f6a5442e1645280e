"""add_unit_loop: add a loop of one iteration around a loop or a block.

    before                      after  add_unit_loop(c)
    with block("C"): …          for u in range(1):
                                    with block("C"): …

Preconditions: none.
"""

from __future__ import annotations

from attrs import frozen

from plica.analysis.site import fresh_names, rebuilt, with_body
from plica.core import Name
from plica.ir.loop import For, Lit, ScalarVar
from plica.ir.type import i64
from plica.schedule.handle import Handle
from plica.schedule.instruction import Edited, Instruction, Scene, primitive
from plica.schedule.problem import Problem


@primitive("add_unit_loop")
@frozen(eq=False)
class AddUnitLoop(Instruction):
    """A loop or a block; gives the new loop around it."""

    gives = "one"

    target: Handle

    def check(self, scene: Scene) -> Problem | None:
        return None

    def edit(self, scene: Scene) -> Edited:
        site = scene.loop(self.target) if self.target.sort == "loop" else scene.block(self.target)
        (name,) = fresh_names(scene.kernel, [Name("u")])
        var = ScalarVar(name, i64)
        around = For(var, Lit(1, i64), "serial", site.node)
        return Edited(with_body(scene.kernel, rebuilt(site.above, around)), (var,))


add_unit_loop = AddUnitLoop
