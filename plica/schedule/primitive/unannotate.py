"""unannotate: remove a key from a loop or a block.

    before                                    after  unannotate(i, "unroll_explicit")
    for i in range(4, unroll_explicit=True)   for i in range(4): …

Preconditions:

- `annotated`: the key is set.
"""

from __future__ import annotations

from attrs import frozen

from plica.schedule.handle import Handle
from plica.schedule.instruction import Edited, Instruction, Scene, primitive
from plica.schedule.primitive.annotate import notes_of, said
from plica.schedule.problem import Problem


@primitive("unannotate")
@frozen(eq=False)
class Unannotate(Instruction):
    """A key under which nothing is to be said any more."""

    target: Handle
    key: str

    def check(self, scene: Scene) -> Problem | None:
        where, notes = notes_of(scene, self.target)
        if self.key not in dict(notes):
            found = ", ".join(key for key, _ in notes) or "nothing"
            return Problem("annotated", where, f"something said of {self.key}", found)
        return None

    def edit(self, scene: Scene) -> Edited:
        return said(scene, self.target, self.key, None)


def unannotate(target: Handle, key: str) -> Instruction:
    """Removes an annotation of a loop or a block."""
    return Unannotate(target, key)
