"""enter_postproc: from here on nothing is sampled.

It changes nothing; a search looks for it, to know where its decisions end, and what comes after it
can be cut off (`plica.schedule.without_postproc`).

Preconditions: `once` (it comes once in a trace); afterwards steps that sample are refused
(`sampling`).
"""

from __future__ import annotations

from attrs import frozen

from plica.schedule.instruction import Edited, Instruction, Scene, primitive
from plica.schedule.problem import Problem


@primitive("enter_postproc")
@frozen(eq=False)
class EnterPostproc(Instruction):
    """The end of sampling."""

    ends_sampling = True

    def check(self, scene: Scene) -> Problem | None:
        if scene.ended:
            return Problem("once", self.kind, "that it comes once in a trace", "a second one")
        return None

    def edit(self, scene: Scene) -> Edited:
        return Edited(scene.kernel)


def enter_postproc() -> Instruction:
    """The end of sampling."""
    return EnterPostproc()
