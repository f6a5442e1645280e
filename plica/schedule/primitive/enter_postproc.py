"""enter_postproc: end the sampling steps of a trace.

It changes nothing. Search makes no decisions after it, and `plica.schedule.without_postproc`
removes it and all later steps.

Preconditions:

- `once`: it occurs once in a trace.
- `sampling`: no later step samples.
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
