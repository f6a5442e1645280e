"""output_blocks: return the blocks that write the outputs of the kernel, in text order.

    (last,) = yield output_blocks()     a tuple, of several where there are several

Preconditions: none.
"""

from __future__ import annotations

from attrs import frozen

from plica.analysis.dependence import outputs
from plica.schedule.instruction import Edited, Instruction, Scene, primitive
from plica.schedule.problem import Problem


@primitive("output_blocks")
@frozen(eq=False)
class GetOutputBlocks(Instruction):
    """The outermost blocks that write a parameter of the kernel; gives them."""

    gives = "several"

    pure = True

    def check(self, scene: Scene) -> Problem | None:
        return None

    def edit(self, scene: Scene) -> Edited:
        blocks = outputs(scene.kernel)
        return Edited(scene.kernel, tuple(block.label for block in blocks))


def output_blocks() -> Instruction:
    """The outermost blocks that write a parameter of the kernel."""
    return GetOutputBlocks()
