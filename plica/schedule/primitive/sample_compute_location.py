"""sample_compute_location: choose a loop for `compute_at`, at random or as recorded.

    n = yield sample_compute_location(b)
    i = yield reader_loop(b, n)
    yield compute_at(b, i)

The decision is the number of a loop around the first consumer, outermost first, at which
`compute_at` is legal.

Preconditions:

- `has-consumers`: a block of the scope reads it.
- `places`: there is such a loop.
"""

from __future__ import annotations

from functools import lru_cache
from random import Random

from attrs import frozen

from plica.core import Name
from plica.ir.loop.statement import Kernel
from plica.schedule.handle import Handle
from plica.schedule.instruction import Decision, Sampling, Scene, primitive
from plica.schedule.primitive.compute_at import ComputeAt
from plica.schedule.primitive.reader_loop import loops_of_reader
from plica.schedule.problem import Problem


@primitive("sample_compute_location")
@frozen(eq=False)
class SampleComputeLocation(Sampling):
    """A block that is to be computed inside a loop of its readers; gives the loop's number."""

    gives = "one"

    block: Handle

    def check(self, scene: Scene) -> Problem | None:
        if isinstance(around := loops_of_reader(scene, self.block), Problem):
            return around
        if not self.places(scene):
            where = f"the block {scene.block(self.block).node.label}"
            expected = "a loop of its reader at which it can be computed"
            return Problem("places", where, expected, f"none of {len(around)}")
        return None

    def decide(self, scene: Scene, random: Random) -> Decision:
        return (random.choice(self.places(scene)),)

    def accepts(self, scene: Scene, decision: Decision) -> Problem | None:
        places = self.places(scene)
        if len(decision) == 1 and decision[0] in places:
            return None
        where = f"the block {scene.block(self.block).node.label}"
        return Problem("support", where, f"one of {places}", str(decision))

    def places(self, scene: Scene) -> list[int]:
        """The numbers of the loops at which `compute_at` is legal."""
        return list(_places(scene.kernel, scene.block(self.block).node.label))


@lru_cache(maxsize=64)
def _places(kernel: Kernel, label: Name) -> tuple[int, ...]:
    block, loop = Handle(-1, 0, "block"), Handle(-1, 0, "loop")  # no step gives them
    around = loops_of_reader(Scene(kernel, {block: label}), block)
    assert not isinstance(around, Problem)
    return tuple(
        [
            number
            for number, each in enumerate(around)
            if ComputeAt(block, loop).check(Scene(kernel, {block: label, loop: each.var})) is None
        ]
    )


def sample_compute_location(block: Handle) -> SampleComputeLocation:
    """A loop of its readers where a block may be computed; gives its number."""
    return SampleComputeLocation(block)
