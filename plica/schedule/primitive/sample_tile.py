"""sample_tile: choose tile factors of a loop, at random or as recorded.

    a, b = yield sample_perfect_tile(i, 2, max_inner=16)
    i0, i1 = yield split(i, sample_tile(2, max_inner=16))      the same, in one

The decision is a tuple of positive numbers whose product is the extent, the last one at most
`max_inner`.

Preconditions:

- `constant-extent`.
- `parts`: 1 to 64 factors.
"""

from __future__ import annotations

from math import prod
from random import Random
from typing import Final

from attrs import frozen

from plica.ir.type import known
from plica.schedule.handle import Handle
from plica.schedule.instruction import Decision, Sampling, Scene, primitive
from plica.schedule.problem import Problem

MAX_PARTS: Final = 64  # parts: no extent has more prime factors


@primitive("sample_perfect_tile")
@frozen(eq=False)
class SamplePerfectTile(Sampling):
    """Factors of a loop's extent; gives them."""

    gives = "several"

    loop: Handle
    parts: int
    max_inner: int

    def check(self, scene: Scene) -> Problem | None:
        loop = scene.loop(self.loop).node
        where = f"the loop {loop.var.name}"
        if not known(loop.extent):
            found = "an extent that is symbolic or 0"
            return Problem("constant-extent", where, "a positive constant extent", found)
        if not 1 <= self.parts <= MAX_PARTS or self.max_inner < 1:
            found = f"{self.parts} parts of which the last is at most {self.max_inner}"
            return Problem("parts", where, f"1 to {MAX_PARTS} parts, of at least 1", found)
        return None

    def decide(self, scene: Scene, random: Random) -> Decision:
        extent = known(scene.loop(self.loop).node.extent)
        assert extent is not None
        # Each prime goes to one of the parts, so that all tiles of one shape are equally likely;
        # the last part takes only primes that keep it small.
        parts = [1] * self.parts
        for prime in primes(extent):
            open_parts = range(self.parts)
            if parts[-1] * prime > self.max_inner and self.parts > 1:
                open_parts = range(self.parts - 1)
            parts[random.choice(open_parts)] *= prime
        return tuple(parts)

    def accepts(self, scene: Scene, decision: Decision) -> Problem | None:
        loop = scene.loop(self.loop).node
        good = (
            len(decision) == self.parts
            and all(each > 0 for each in decision)
            and prod(decision) == known(loop.extent)
            and (decision[-1] <= self.max_inner or self.parts == 1)
        )
        if good:
            return None
        expected = (
            f"{self.parts} factors of {known(loop.extent)}, the last at most {self.max_inner}"
        )
        return Problem("support", f"the loop {loop.var.name}", expected, str(decision))


@frozen
class SampledTile:
    """Sampled factors of whichever loop they are given to."""

    parts: int
    max_inner: int

    def of(self, loop: Handle) -> SamplePerfectTile:
        """The instruction for a loop."""
        return SamplePerfectTile(loop, self.parts, self.max_inner)


def sample_tile(parts: int, max_inner: int = 64) -> SampledTile:
    """Factors for `split`, sampled."""
    return SampledTile(parts, max_inner)


def sample_perfect_tile(loop: Handle, parts: int, max_inner: int = 64) -> SamplePerfectTile:
    """Factors of a loop's extent, sampled; gives the numbers."""
    return SamplePerfectTile(loop, parts, max_inner)


def primes(number: int) -> list[int]:
    """The prime factors of a number, largest first."""
    found, factor = [], 2
    while factor * factor <= number:
        while number % factor == 0:
            found.append(factor)
            number //= factor
        factor += 1
    return sorted([*found, *([number] if number > 1 else [])], reverse=True)
