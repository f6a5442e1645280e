"""sample_categorical: choose one of several numbers, at random or as recorded.

    n = yield sample_categorical((1, 2, 4), (0.5, 0.25, 0.25))

The decision is the number itself.

Preconditions:

- `candidates`: at least one, distinct.
- `probabilities`: one per candidate, not negative, some positive.
"""

from __future__ import annotations

from random import Random

from attrs import frozen

from plica.schedule.instruction import Decision, Sampling, Scene, primitive
from plica.schedule.problem import Problem


@primitive("sample_categorical")
@frozen(eq=False)
class SampleCategorical(Sampling):
    """Numbers to choose from, and how often each; gives the one chosen."""

    gives = "one"

    candidates: tuple[int, ...]
    probabilities: tuple[float, ...]

    def check(self, scene: Scene) -> Problem | None:
        where, numbers = "sample_categorical", self.candidates
        if not numbers or len(set(numbers)) != len(numbers):
            return Problem("candidates", where, "distinct numbers, at least one", str(numbers))
        odds = self.probabilities
        if len(odds) != len(numbers) or min(odds) < 0 or not sum(odds) > 0:
            expected = f"{len(numbers)} numbers, not negative and not all 0"
            return Problem("probabilities", where, expected, str(odds))
        return None

    def decide(self, scene: Scene, random: Random) -> Decision:
        return tuple(random.choices(self.candidates, self.probabilities))

    def accepts(self, scene: Scene, decision: Decision) -> Problem | None:
        if len(decision) == 1 and decision[0] in self.candidates:
            return None
        expected = f"one of {self.candidates}"
        return Problem("support", "sample_categorical", expected, str(decision))


def sample_categorical(
    candidates: tuple[int, ...], probabilities: tuple[float, ...] | None = None
) -> SampleCategorical:
    """One of several numbers; all are equally likely where nothing is said."""
    if not isinstance(candidates, tuple | list):
        raise TypeError(f"sample_categorical takes a tuple of numbers, not {candidates!r}.")
    odds = (1.0,) * len(candidates) if probabilities is None else probabilities
    return SampleCategorical(tuple(candidates), tuple(map(float, odds)))
