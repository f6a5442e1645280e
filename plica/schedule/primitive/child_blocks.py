"""child_blocks: return the blocks directly inside a block or a loop, in text order.

    inner, outer = yield child_blocks(tile)

Preconditions:

- `parent`: a block or a loop.
"""

from __future__ import annotations

from attrs import frozen

from plica.analysis.dependence import children
from plica.ir.loop.statement import Block, For
from plica.schedule.handle import Handle
from plica.schedule.instruction import Edited, Instruction, Scene, primitive
from plica.schedule.problem import Problem


@primitive("child_blocks")
@frozen(eq=False)
class GetChildBlocks(Instruction):
    """The outermost blocks inside a block or a loop; gives them."""

    gives = "several"

    pure = True
    parent: Handle

    def check(self, scene: Scene) -> Problem | None:
        if self.parent.sort != "number":
            return None
        return Problem("parent", "child_blocks", "a block or a loop", "a number")

    def edit(self, scene: Scene) -> Edited:
        of_block = self.parent.sort == "block"
        parent: Block | For
        parent = scene.block(self.parent).node if of_block else scene.loop(self.parent).node
        blocks = [child.block for child in children(parent.body)]
        return Edited(scene.kernel, tuple(block.label for block in blocks))


def child_blocks(parent: Handle) -> Instruction:
    """The outermost blocks inside a block or a loop."""
    return GetChildBlocks(parent)
