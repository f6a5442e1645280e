"""sample_tuple: choose a tuple of dependent numbers, at random or as recorded.

    m, r = yield sample_tuple(((1, 8), (2, 8), (4, 4)))

Use it where only some combinations make sense: factors whose product divides an extent, or a tile
that fits into registers.

Preconditions:

- `tuples`: at least one, distinct, all of one length greater than 0.
"""

from __future__ import annotations

from random import Random

from attrs import frozen

from plica.schedule.instruction import Decision, Sampling, Scene, primitive
from plica.schedule.problem import Problem


@primitive("sample_tuple")
@frozen(eq=False)
class SampleTuple(Sampling):
    """Tuples of numbers to choose from; gives the numbers of the one chosen."""

    gives = "several"

    tuples: tuple[tuple[int, ...], ...]

    def check(self, scene: Scene) -> Problem | None:
        given = self.tuples
        lengths = {len(each) for each in given}
        if len(lengths) != 1 or lengths == {0} or len(set(given)) != len(given):
            expected = "distinct tuples of one length, at least one"
            return Problem("tuples", "sample_tuple", expected, str(given)[:200])
        return None

    def decide(self, scene: Scene, random: Random) -> Decision:
        return random.choice(self.tuples)

    def accepts(self, scene: Scene, decision: Decision) -> Problem | None:
        if decision in self.tuples:
            return None
        expected = f"one of {str(self.tuples)[:200]}"
        return Problem("support", "sample_tuple", expected, str(decision))


def sample_tuple(tuples: tuple[tuple[int, ...], ...]) -> SampleTuple:
    """One of several tuples of numbers; all are equally likely."""
    given: object = tuples  # whatever a user gives
    if isinstance(given, tuple | list) and all(isinstance(each, tuple | list) for each in given):
        return SampleTuple(tuple([tuple(each) for each in given]))
    raise TypeError(f"sample_tuple takes a tuple of tuples of numbers, not {tuples!r}.")
