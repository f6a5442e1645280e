"""consumers: return the blocks of the same scope that read a block's outputs, in text order.

    (relu,) = yield consumers(conv)     a tuple, of several where there are several

Preconditions: none.
"""

from __future__ import annotations

from attrs import frozen

from plica.analysis.dependence import consumers as found_after, scope_of
from plica.schedule.handle import Handle
from plica.schedule.instruction import Edited, Instruction, Scene, primitive
from plica.schedule.problem import Problem


@primitive("consumers")
@frozen(eq=False)
class GetConsumers(Instruction):
    """The blocks of its scope that read from a block; gives them."""

    gives = "several"

    pure = True
    block: Handle

    def check(self, scene: Scene) -> Problem | None:
        return None

    def edit(self, scene: Scene) -> Edited:
        site = scene.block(self.block)
        blocks = found_after(scope_of(scene.kernel, site), site.node.label)
        return Edited(scene.kernel, tuple(block.label for block in blocks))


def consumers(block: Handle) -> Instruction:
    """The blocks of its scope that read from a block."""
    return GetConsumers(block)
