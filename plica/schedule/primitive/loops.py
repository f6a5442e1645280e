"""loops: the loops around a block, outermost first, up to the block around it.

    i, j, k = yield loops(c)

No precondition.
"""

from __future__ import annotations

from attrs import frozen

from plica.schedule.handle import Handle
from plica.schedule.instruction import Edited, Instruction, Scene, primitive
from plica.schedule.problem import Problem


@primitive("loops")
@frozen(eq=False)
class GetLoops(Instruction):
    """The loops around a block; gives them."""

    gives = "several"

    pure = True
    block: Handle

    def check(self, scene: Scene) -> Problem | None:
        return None

    def edit(self, scene: Scene) -> Edited:
        around = scene.block(self.block).loops
        return Edited(scene.kernel, tuple(loop.var for loop in around))


def loops(block: Handle) -> Instruction:
    """The loops around a block, outermost first."""
    return GetLoops(block)
