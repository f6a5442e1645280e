"""Instructions of another package: one that keeps the meaning, and some that do not."""

from __future__ import annotations

from attrs import frozen

from plica.core.name import Name
from plica.core.term import Term
from plica.ir.loop import Kernel, Store, annotated
from plica.ir.scalar import Scalar, lit
from plica.schedule import Handle, Instruction, Problem, primitive
from plica.schedule.instruction import Edited, Scene
from plica.schedule.site import replace, with_parts


@frozen(eq=False)
class Pair(Term):
    """A term that only this package has."""

    left: Scalar
    right: str


@primitive("foreign.note")
@frozen(eq=False)
class Note(Instruction):
    """A word at the kernel."""

    word: str

    def check(self, scene: Scene) -> Problem | None:
        return None

    def edit(self, scene: Scene) -> Edited:
        old = scene.kernel
        notes = annotated(old.annotations, **{self.word: True})
        return Edited(Kernel(old.dims, old.params, old.inputs, old.body, notes))


@primitive("foreign_keep")
@frozen(eq=False)
class Keep(Instruction):
    """Fields of every sort; nothing is changed."""

    block: Handle
    loops: tuple[Handle, ...]
    value: Pair
    weight: float
    names: tuple[Name, ...]
    raw: bytes = b""
    word: str | None = None

    def check(self, scene: Scene) -> Problem | None:
        return None

    def edit(self, scene: Scene) -> Edited:
        return Edited(scene.kernel, (*(scene.outputs[each] for each in self.loops),))


@primitive("foreign_spoil")
@frozen(eq=False)
class Spoil(Instruction):
    """A wrong instruction: a block that stores 1 more than it should, where it reduces first."""

    block: Handle

    def check(self, scene: Scene) -> Problem | None:
        return None

    def edit(self, scene: Scene) -> Edited:
        site = scene.block(self.block)
        start = site.node.init
        assert isinstance(start, Store)
        wrong = Store(start.buffer, start.indices, start.value + lit(1, start.buffer.dtype))
        return Edited(replace(scene.kernel, site, with_parts(site.node, init=wrong)))


def foreign_spoil(block: Handle) -> Instruction:
    """A wrong instruction."""
    return Spoil(block)
