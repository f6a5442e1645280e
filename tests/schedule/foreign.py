"""Instructions of another package: some that keep the meaning, and one that does not.

They are declared only inside `declared()`: whoever asks for all kinds must not find them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from attrs import frozen

from plica.analysis.site import replace, with_parts
from plica.core.name import Name
from plica.core.term import Term
from plica.ir.loop.scalar import Scalar, lit
from plica.ir.loop.statement import Kernel, Store, annotated
from plica.schedule import Handle, Instruction, Problem, instruction, kinds
from plica.schedule.instruction import Edited, Scene, primitive


@frozen(eq=False)
class Pair(Term):
    """A term that only this package has."""

    left: Scalar
    right: str


@frozen(eq=False)
class Note(Instruction):
    """A word at the kernel."""

    kind = "foreign.note"
    word: str

    def check(self, scene: Scene) -> Problem | None:
        return None

    def edit(self, scene: Scene) -> Edited:
        old = scene.kernel
        notes = annotated(old.annotations, **{self.word: True})
        return Edited(Kernel(old.dims, old.params, old.inputs, old.body, notes))


@frozen(eq=False)
class Keep(Instruction):
    """Fields of every sort; nothing is changed."""

    kind = "foreign_keep"
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


@frozen(eq=False)
class Spoil(Instruction):
    """A wrong instruction: a block that stores 1 more than it should, where it reduces first."""

    kind = "foreign_spoil"
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


@contextmanager
def apart() -> Iterator[None]:
    """Inside, what is declared is forgotten afterwards."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(instruction, "_kinds", dict(kinds()))
        yield


@contextmanager
def declared() -> Iterator[None]:
    """Inside, the instructions of this package are declared."""
    with apart():
        for each in (Note, Keep, Spoil):
            primitive(each.kind)(each)
        yield
