"""producers: return the blocks of the same scope that write a block's inputs, in text order.

    (pad,) = yield producers(conv)      a tuple, of several where there are several

Preconditions: none.
"""

from __future__ import annotations

from attrs import frozen

from plica.analysis.dependence import producers as found_before, scope_of
from plica.schedule.handle import Handle
from plica.schedule.instruction import Edited, Instruction, Scene, primitive
from plica.schedule.problem import Problem


@primitive("producers")
@frozen(eq=False)
class GetProducers(Instruction):
    """The blocks of its scope that a block reads from; gives them."""

    gives = "several"

    pure = True
    block: Handle

    def check(self, scene: Scene) -> Problem | None:
        return None

    def edit(self, scene: Scene) -> Edited:
        site = scene.block(self.block)
        blocks = found_before(scope_of(scene.kernel, site), site.node.label)
        return Edited(scene.kernel, tuple(block.label for block in blocks))


def producers(block: Handle) -> Instruction:
    """The blocks of its scope that a block reads from."""
    return GetProducers(block)
