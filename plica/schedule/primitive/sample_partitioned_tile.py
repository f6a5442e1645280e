"""sample_partitioned_tile: choose tile factors whose inner part is a multiple of a number.

    a, b, c = yield sample_partitioned_tile(i, 3, at=1, factor=16)      b * c is a multiple of 16

Use it where an instruction or a vector takes the inner loops: whatever is drawn, they hold whole
pieces of `factor`.

Preconditions:

- `constant-extent`.
- `parts`: 1 to 64 factors, and `at` the place of one of them.
- `divides`: the factor divides the extent.
"""

from __future__ import annotations

from math import prod
from random import Random

from attrs import frozen

from plica.ir.type import known
from plica.schedule.handle import Handle
from plica.schedule.instruction import Decision, Sampling, Scene, primitive
from plica.schedule.primitive.sample_tile import MAX_PARTS, primes
from plica.schedule.problem import Problem


@primitive("sample_partitioned_tile")
@frozen(eq=False)
class SamplePartitionedTile(Sampling):
    """Factors of a loop's extent; the product of those from `at` on is a multiple of `factor`."""

    gives = "several"

    loop: Handle
    parts: int
    at: int
    factor: int

    def check(self, scene: Scene) -> Problem | None:
        loop = scene.loop(self.loop).node
        where, extent = f"the loop {loop.var.name}", known(loop.extent)
        if not extent:
            found = "an extent that is symbolic or 0"
            return Problem("constant-extent", where, "a positive constant extent", found)
        if not 0 <= self.at < self.parts <= MAX_PARTS:
            found = f"{self.parts} parts, the inner ones from {self.at} on"
            return Problem("parts", where, f"1 to {MAX_PARTS} parts, and one of them", found)
        if self.factor < 1 or extent % self.factor:
            return Problem("divides", where, f"a divisor of {extent}", str(self.factor))
        return None

    def decide(self, scene: Scene, random: Random) -> Decision:
        extent = known(scene.loop(self.loop).node.extent)
        assert extent is not None
        parts = [1] * self.parts
        for prime in primes(extent // self.factor):
            parts[random.randrange(self.parts)] *= prime
        for prime in primes(self.factor):
            parts[random.randrange(self.at, self.parts)] *= prime
        return tuple(parts)

    def accepts(self, scene: Scene, decision: Decision) -> Problem | None:
        loop = scene.loop(self.loop).node
        extent = known(loop.extent)
        sizes = len(decision) == self.parts and all(each > 0 for each in decision)
        if sizes and prod(decision) == extent and prod(decision[self.at :]) % self.factor == 0:
            return None
        expected = f"{self.parts} factors of {extent}, those from {self.at} on of {self.factor}"
        return Problem("support", f"the loop {loop.var.name}", expected, str(decision))


def sample_partitioned_tile(
    loop: Handle, parts: int, at: int, factor: int
) -> SamplePartitionedTile:
    """Factors of a loop's extent, sampled; the product from `at` on is a multiple of `factor`."""
    return SamplePartitionedTile(loop, parts, at, factor)
