"""reader_loop: return the loop of a given number around the first consumer of a block.

    n = yield sample_compute_location(b)
    i = yield reader_loop(b, n)
    yield compute_at(b, i)

Loops are counted from the outermost one.

Preconditions:

- `has-consumers`: a block of the scope reads it.
- `loop-number`: the consumer has a loop of that number.
"""

from __future__ import annotations

from attrs import frozen

from plica.analysis.dependence import consumers, scope_of
from plica.ir.loop.statement import For
from plica.schedule.handle import Handle
from plica.schedule.instruction import Edited, Instruction, Number, Scene, primitive
from plica.schedule.problem import Problem


@primitive("reader_loop")
@frozen(eq=False)
class ReaderLoop(Instruction):
    """A block, and the number of a loop around its first reader, from outside; gives the loop."""

    gives = "one"

    block: Handle
    number: Number

    def check(self, scene: Scene) -> Problem | None:
        if isinstance(around := loops_of_reader(scene, self.block), Problem):
            return around
        number = scene.number(self.number)
        if not 0 <= number < len(around):
            where = f"the block {scene.block(self.block).node.label}"
            expected = f"a loop number {number} around its reader"
            return Problem("loop-number", where, expected, f"{len(around)} loops")
        return None

    def edit(self, scene: Scene) -> Edited:
        around = loops_of_reader(scene, self.block)
        assert not isinstance(around, Problem)
        return Edited(scene.kernel, (around[scene.number(self.number)].var,))


def loops_of_reader(scene: Scene, block: Handle) -> tuple[For, ...] | Problem:
    """The loops around the first reader of a block's output, outermost first."""
    site = scene.block(block)
    label = site.node.label
    if not (readers := consumers(scope_of(scene.kernel, site), label)):
        expected = "a block of its scope that reads what it writes"
        return Problem("has-consumers", f"the block {label}", expected, "none")
    return scene.map.blocks[readers[0].label].loops


def reader_loop(block: Handle, number: Number) -> Instruction:
    """A loop around the first reader of a block, by number; gives it."""
    return ReaderLoop(block, number)
