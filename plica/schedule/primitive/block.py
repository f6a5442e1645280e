"""block: find a block by its name, or by its address.

    c = yield block("C")

A name is resolved when the trace is recorded. The instruction stores the number of the block in
text order and its role: the kinds of its variables, and whether it has an init.

Preconditions:

- `exists`: there is such a block, with that role.
"""

from __future__ import annotations

from attrs import frozen

from plica.core import did_you_mean
from plica.ir.loop.statement import Block
from plica.schedule.do import Find
from plica.schedule.instruction import Edited, Instruction, Scene, primitive
from plica.schedule.problem import Problem


@primitive("block")
@frozen(eq=False)
class GetBlock(Instruction):
    """The block at a place; gives it."""

    gives = "one"

    pure = True
    number: int
    role: str

    def check(self, scene: Scene) -> Problem | None:
        blocks = list(scene.map.blocks.values())
        if not 0 <= self.number < len(blocks):
            expected, found = f"a block number {self.number}", f"{len(blocks)} blocks"
            return Problem("exists", "the kernel", expected, found)
        found = role_of(blocks[self.number].node)
        if found != self.role:
            where = f"the block {blocks[self.number].node.label}"
            return Problem("exists", where, f"a block of the role {self.role!r}", repr(found))
        return None

    def edit(self, scene: Scene) -> Edited:
        return Edited(scene.kernel, (list(scene.map.blocks)[self.number],))


def block(name: str | int, role: str | None = None) -> Find | Instruction:
    """The block of that name, or the one at that place in the order of the text.

    With a place and a role there is nothing to resolve: traces are printed in this form.
    """
    if isinstance(name, int) and role is not None:
        return GetBlock(name, role)

    def resolve(scene: Scene) -> Instruction | Problem:
        blocks = scene.map.blocks
        names = [str(each) for each in blocks]
        number = name if isinstance(name, int) else names.index(name) if name in names else -1
        if not 0 <= number < len(names):
            expected = f"one of {', '.join(names)}" if names else "a kernel with blocks"
            hint = did_you_mean(str(name), names)
            return Problem("exists", "the kernel", expected, repr(name), hint)
        return GetBlock(number, role_of(list(blocks.values())[number].node))

    return Find(resolve, "block")


def role_of(of: Block) -> str:
    """The structure of a block without names and sizes: `ssr+init` for a matrix product."""
    letters = "".join(kind[0] if kind != "opaque" else "q" for kind in of.kinds)
    return f"{letters}+init" if of.init is not None else letters
