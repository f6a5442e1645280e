"""Look-ups: steps that give handles of what stands in a kernel, and change nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, overload

from attrs import frozen

from plica.analysis import dependence
from plica.core import did_you_mean
from plica.ir.loop.statement import Block, For
from plica.schedule.do import Body, DoBlock, Find
from plica.schedule.handle import Handle, Output
from plica.schedule.instruction import Edited, Gives, Instruction, Number, Scene, primitive
from plica.schedule.problem import Problem


class LookUp(Instruction):
    """A step that gives what it finds, and changes nothing."""

    gives: ClassVar[Gives] = "several"
    pure = True

    def check(self, scene: Scene) -> Problem | None:
        return None

    def found(self, scene: Scene) -> Iterable[Output]:
        """What it gives, where `check` finds no problem."""
        raise AssertionError(f"{type(self).__name__} finds nothing.")

    def edit(self, scene: Scene) -> Edited:
        return Edited(scene.kernel, tuple(self.found(scene)))


@primitive("block")
@frozen(eq=False)
class GetBlock(LookUp):
    """Find a block by its name, or by its address.

        c = yield block("C")

    A name is resolved when the trace is recorded. The instruction stores the number of the block in
    text order and its role: the kinds of its variables, and whether it has an init.

    Preconditions:

    - `exists`: there is such a block, with that role.
    """

    gives = "one"

    number: int
    role: str

    def check(self, scene: Scene) -> Problem | None:
        blocks = list(scene.map.blocks.values())
        if not 0 <= self.number < len(blocks):
            expected, found = f"a block number {self.number}", f"{len(blocks)} blocks"
            return Problem("exists", "the kernel", expected, found)
        site = blocks[self.number]
        if (found := role_of(site.node)) != self.role:
            return Problem("exists", site, f"a block of the role {self.role!r}", repr(found))
        return None

    def found(self, scene: Scene) -> Iterable[Output]:
        return [list(scene.map.blocks)[self.number]]


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


@primitive("loops")
@frozen(eq=False)
class GetLoops(LookUp):
    """Return the loops around a block, outermost first, up to the enclosing block.

        i, j, k = yield loops(c)
        i, j, k = yield loops("C")        the block of that name is found first

    Preconditions: none.
    """

    block: Handle

    def found(self, scene: Scene) -> Iterable[Output]:
        return [loop.var for loop in scene.block(self.block).loops]


@overload
def loops(block: Handle) -> Instruction: ...
@overload
def loops(block: str) -> DoBlock: ...
def loops(block: Handle | str) -> Instruction | DoBlock:
    """The loops around a block, outermost first; a block may be meant by its name."""
    return DoBlock(_loops_of_name, (block,)) if isinstance(block, str) else GetLoops(block)


def _loops_of_name(name: str) -> Body:
    return (yield GetLoops((yield block(name))))


@primitive("child_blocks")
@frozen(eq=False)
class GetChildBlocks(LookUp):
    """Return the blocks directly inside a block or a loop, in text order.

        inner, outer = yield child_blocks(tile)

    Preconditions:

    - `parent`: a block or a loop.
    """

    parent: Handle

    def check(self, scene: Scene) -> Problem | None:
        if self.parent.sort != "number":
            return None
        return Problem("parent", "child_blocks", "a block or a loop", "a number")

    def found(self, scene: Scene) -> Iterable[Output]:
        of_block = self.parent.sort == "block"
        parent = scene.block(self.parent) if of_block else scene.loop(self.parent)
        return [child.block.label for child in dependence.children(parent.node.body)]


@primitive("consumers")
@frozen(eq=False)
class GetConsumers(LookUp):
    """Return the blocks of the same scope that read a block's outputs, in text order.

        (relu,) = yield consumers(conv)     a tuple, of several where there are several

    Preconditions: none.
    """

    block: Handle

    def found(self, scene: Scene) -> Iterable[Output]:
        return [reader.label for reader in _readers(scene, self.block)]


def _readers(scene: Scene, of: Handle) -> tuple[Block, ...]:
    site = scene.block(of)
    return dependence.consumers(dependence.scope_of(scene.kernel, site), site.node.label)


@primitive("producers")
@frozen(eq=False)
class GetProducers(LookUp):
    """Return the blocks of the same scope that write a block's inputs, in text order.

        (pad,) = yield producers(conv)      a tuple, of several where there are several

    Preconditions: none.
    """

    block: Handle

    def found(self, scene: Scene) -> Iterable[Output]:
        site = scene.block(self.block)
        scope = dependence.scope_of(scene.kernel, site)
        return [writer.label for writer in dependence.producers(scope, site.node.label)]


@primitive("output_blocks")
@frozen(eq=False)
class GetOutputBlocks(LookUp):
    """Return the blocks that write the outputs of the kernel, in text order.

        (last,) = yield output_blocks()     a tuple, of several where there are several

    Preconditions: none.
    """

    def found(self, scene: Scene) -> Iterable[Output]:
        return [writer.label for writer in dependence.outputs(scene.kernel)]


@primitive("reader_loop")
@frozen(eq=False)
class ReaderLoop(LookUp):
    """Return the loop of a given number around the first consumer of a block.

        n = yield sample_compute_location(b)
        i = yield reader_loop(b, n)
        yield compute_at(b, i)

    Loops are counted from the outermost one.

    Preconditions:

    - `has-consumers`: a block of the scope reads it.
    - `loop-number`: the consumer has a loop of that number.
    """

    gives = "one"
    pure = False

    block: Handle
    number: Number

    def check(self, scene: Scene) -> Problem | None:
        if isinstance(around := loops_of_reader(scene, self.block), Problem):
            return around
        number = scene.number(self.number)
        if not 0 <= number < len(around):
            expected = f"a loop number {number} around its reader"
            return Problem("loop-number", scene.block(self.block), expected, f"{len(around)} loops")
        return None

    def found(self, scene: Scene) -> Iterable[Output]:
        around = loops_of_reader(scene, self.block)
        assert not isinstance(around, Problem)
        return [around[scene.number(self.number)].var]


def loops_of_reader(scene: Scene, block: Handle) -> tuple[For, ...] | Problem:
    """The loops around the first reader of a block's output, outermost first."""
    if not (readers := _readers(scene, block)):
        expected = "a block of its scope that reads what it writes"
        return Problem("has-consumers", scene.block(block), expected, "none")
    return scene.map.blocks[readers[0].label].loops


child_blocks = GetChildBlocks
consumers = GetConsumers
producers = GetProducers
output_blocks = GetOutputBlocks
reader_loop = ReaderLoop
