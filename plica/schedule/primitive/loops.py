"""loops: return the loops around a block, outermost first, up to the enclosing block.

    i, j, k = yield loops(c)
    i, j, k = yield loops("C")        the block of that name is found first

Preconditions: none.
"""

from __future__ import annotations

from typing import overload

from attrs import frozen

from plica.schedule.do import Body, DoBlock
from plica.schedule.handle import Handle
from plica.schedule.instruction import Edited, Instruction, Scene, primitive
from plica.schedule.primitive.block import block as find_block
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


@overload
def loops(block: Handle) -> Instruction: ...
@overload
def loops(block: str) -> DoBlock: ...
def loops(block: Handle | str) -> Instruction | DoBlock:
    """The loops around a block, outermost first; a block may be meant by its name."""
    return DoBlock(_of_name, (block,)) if isinstance(block, str) else GetLoops(block)


def _of_name(name: str) -> Body:
    found = yield find_block(name)
    around = yield GetLoops(found)
    return around
