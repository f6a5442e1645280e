"""enter_postproc: from here on nothing is sampled.

It changes nothing; a search looks for it, to know where its decisions end.  Precondition: `once`
cannot be seen in a kernel, so a trace is checked for it when it is read.
"""

from __future__ import annotations

from attrs import frozen

from plica.schedule.instruction import Edited, Instruction, Scene, primitive
from plica.schedule.problem import Problem


@primitive("enter_postproc")
@frozen(eq=False)
class EnterPostproc(Instruction):
    """The end of sampling."""

    def check(self, scene: Scene) -> Problem | None:
        return None

    def edit(self, scene: Scene) -> Edited:
        return Edited(scene.kernel)


def enter_postproc() -> Instruction:
    """The end of sampling."""
    return EnterPostproc()
