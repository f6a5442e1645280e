"""reorder_block_iter_var: permute the variables of a block.

    before                              after  reorder_block_iter_var(c, (1, 0))
    with block("C", vi=…, vj=…): …      with block("C", vj=…, vi=…): …

Preconditions:

- `permutation`: the number of each variable once.
"""

from __future__ import annotations

from attrs import frozen

from plica.analysis.site import replace, with_parts
from plica.schedule.handle import Handle
from plica.schedule.instruction import Edited, Instruction, Scene, primitive
from plica.schedule.problem import Problem


@primitive("reorder_block_iter_var")
@frozen(eq=False)
class ReorderBlockIterVar(Instruction):
    """A block, and the numbers of its variables in their new order."""

    block: Handle
    order: tuple[int, ...]

    def check(self, scene: Scene) -> Problem | None:
        block = scene.block(self.block).node
        if sorted(self.order) != list(range(len(block.vars))):
            expected = f"each of 0 to {len(block.vars) - 1} once"
            return Problem("permutation", block, expected, str(self.order))
        return None

    def edit(self, scene: Scene) -> Edited:
        site = scene.block(self.block)
        block = site.node
        fields = {
            name: tuple([getattr(block, name)[at] for at in self.order])
            for name in ("vars", "extents", "kinds", "bindings")
        }
        return Edited(replace(scene.kernel, site, with_parts(block, **fields)))


def reorder_block_iter_var(block: Handle, order: tuple[int, ...]) -> Instruction:
    """The variables of a block in another order."""
    return ReorderBlockIterVar(block, tuple(order))
