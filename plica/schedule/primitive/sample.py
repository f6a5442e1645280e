"""Sampling: steps that decide numbers, at random or as recorded."""

from __future__ import annotations

from functools import lru_cache
from math import prod
from random import Random
from typing import Final

from attrs import frozen

from plica.core import Name
from plica.ir.loop.statement import Kernel
from plica.ir.type import known
from plica.schedule.handle import Handle
from plica.schedule.instruction import Decision, Edited, Instruction, Sampling, Scene, primitive
from plica.schedule.primitive.compute_at import ComputeAt
from plica.schedule.primitive.look_up import loops_of_reader
from plica.schedule.problem import Problem

MAX_PARTS: Final = 64  # parts: no extent has more prime factors


def _unsupported(where: str, expected: str, decision: Decision) -> Problem:
    return Problem("support", where, expected, str(decision))


@primitive("sample_categorical")
@frozen(eq=False)
class SampleCategorical(Sampling):
    """Choose one of several numbers, at random or as recorded.

        n = yield sample_categorical((1, 2, 4), (0.5, 0.25, 0.25))

    The decision is the number itself.

    Preconditions:

    - `candidates`: at least one, distinct.
    - `probabilities`: one per candidate, not negative, some positive.
    """

    gives = "one"

    candidates: tuple[int, ...]
    probabilities: tuple[float, ...]

    def check(self, scene: Scene) -> Problem | None:
        where, numbers = self.kind, self.candidates
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
        return _unsupported(self.kind, f"one of {self.candidates}", decision)


def sample_categorical(
    candidates: tuple[int, ...], probabilities: tuple[float, ...] | None = None
) -> SampleCategorical:
    """One of several numbers; all are equally likely where nothing is said."""
    if not isinstance(candidates, tuple | list):
        raise TypeError(f"sample_categorical takes a tuple of numbers, not {candidates!r}.")
    odds = (1.0,) * len(candidates) if probabilities is None else probabilities
    return SampleCategorical(tuple(candidates), tuple(map(float, odds)))


@primitive("sample_tuple")
@frozen(eq=False)
class SampleTuple(Sampling):
    """Choose a tuple of dependent numbers, at random or as recorded.

        m, r = yield sample_tuple(((1, 8), (2, 8), (4, 4)))

    Use it where only some combinations make sense: factors whose product divides an extent, or a
    tile that fits into registers.

    Preconditions:

    - `tuples`: at least one, distinct, all of one length greater than 0.
    """

    gives = "several"

    tuples: tuple[tuple[int, ...], ...]

    def check(self, scene: Scene) -> Problem | None:
        given = self.tuples
        lengths = {len(each) for each in given}
        if len(lengths) != 1 or lengths == {0} or len(set(given)) != len(given):
            expected = "distinct tuples of one length, at least one"
            return Problem("tuples", self.kind, expected, str(given)[:200])
        return None

    def decide(self, scene: Scene, random: Random) -> Decision:
        return random.choice(self.tuples)

    def accepts(self, scene: Scene, decision: Decision) -> Problem | None:
        if decision in self.tuples:
            return None
        return _unsupported(self.kind, f"one of {str(self.tuples)[:200]}", decision)


def sample_tuple(tuples: tuple[tuple[int, ...], ...]) -> SampleTuple:
    """One of several tuples of numbers; all are equally likely."""
    given: object = tuples  # whatever a user gives
    if isinstance(given, tuple | list) and all(isinstance(each, tuple | list) for each in given):
        return SampleTuple(tuple([tuple(each) for each in given]))
    raise TypeError(f"sample_tuple takes a tuple of tuples of numbers, not {tuples!r}.")


def _extent(scene: Scene, loop: Handle) -> int:
    """The extent of a loop, 0 where it is symbolic."""
    return known(scene.loop(loop).node.extent) or 0


def _where(scene: Scene, loop: Handle) -> str:
    return f"the loop {scene.loop(loop).node.var.name}"


def _uncut(scene: Scene, loop: Handle) -> Problem | None:
    """A loop whose extent is no product of factors."""
    if _extent(scene, loop):
        return None
    expected, found = "a positive constant extent", "an extent that is symbolic or 0"
    return Problem("constant-extent", _where(scene, loop), expected, found)


@primitive("sample_perfect_tile")
@frozen(eq=False)
class SamplePerfectTile(Sampling):
    """Choose tile factors of a loop, at random or as recorded.

        a, b = yield sample_perfect_tile(i, 2, max_inner=16)
        i0, i1 = yield split(i, sample_tile(2, max_inner=16))      the same, in one

    The decision is a tuple of positive numbers whose product is the extent, the last one at most
    `max_inner`.

    Preconditions:

    - `constant-extent`.
    - `parts`: 1 to 64 factors.
    """

    gives = "several"

    loop: Handle
    parts: int
    max_inner: int = 64

    def check(self, scene: Scene) -> Problem | None:
        if (problem := _uncut(scene, self.loop)) is not None:
            return problem
        if not 1 <= self.parts <= MAX_PARTS or self.max_inner < 1:
            expected = f"1 to {MAX_PARTS} parts, of at least 1"
            found = f"{self.parts} parts of which the last is at most {self.max_inner}"
            return Problem("parts", _where(scene, self.loop), expected, found)
        return None

    def decide(self, scene: Scene, random: Random) -> Decision:
        # Each prime goes to one of the parts, so that all tiles of one shape are equally likely;
        # the last part takes only primes that keep it small.
        parts = [1] * self.parts
        for prime in primes(_extent(scene, self.loop)):
            open_parts = range(self.parts)
            if parts[-1] * prime > self.max_inner and self.parts > 1:
                open_parts = range(self.parts - 1)
            parts[random.choice(open_parts)] *= prime
        return tuple(parts)

    def accepts(self, scene: Scene, decision: Decision) -> Problem | None:
        extent = _extent(scene, self.loop)
        factors = _are_factors(decision, self.parts, extent)
        if factors and (decision[-1] <= self.max_inner or self.parts == 1):
            return None
        expected = f"{self.parts} factors of {extent}, the last at most {self.max_inner}"
        return _unsupported(_where(scene, self.loop), expected, decision)


def _are_factors(decision: Decision, parts: int, extent: int) -> bool:
    return len(decision) == parts and min(decision) > 0 and prod(decision) == extent


@frozen
class SampledTile:
    """Sampled factors of whichever loop they are given to."""

    parts: int
    max_inner: int = 64

    def of(self, loop: Handle) -> SamplePerfectTile:
        """The instruction for a loop."""
        return SamplePerfectTile(loop, self.parts, self.max_inner)


def primes(number: int) -> list[int]:
    """The prime factors of a number, largest first."""
    found, factor = [], 2
    while factor * factor <= number:
        while number % factor == 0:
            found.append(factor)
            number //= factor
        factor += 1
    return sorted([*found, *([number] if number > 1 else [])], reverse=True)


@primitive("sample_partitioned_tile")
@frozen(eq=False)
class SamplePartitionedTile(Sampling):
    """Choose tile factors whose inner part is a multiple of a number.

        a, b, c = yield sample_partitioned_tile(i, 3, at=1, factor=16)    b * c is a multiple of 16

    Use it where an instruction or a vector takes the inner loops: whatever is drawn, they hold
    whole pieces of `factor`.

    Preconditions:

    - `constant-extent`.
    - `parts`: 1 to 64 factors, and `at` the place of one of them.
    - `divides`: the factor divides the extent.
    """

    gives = "several"

    loop: Handle
    parts: int
    at: int
    factor: int

    def check(self, scene: Scene) -> Problem | None:
        if (problem := _uncut(scene, self.loop)) is not None:
            return problem
        where, extent = _where(scene, self.loop), _extent(scene, self.loop)
        if not 0 <= self.at < self.parts <= MAX_PARTS:
            found = f"{self.parts} parts, the inner ones from {self.at} on"
            return Problem("parts", where, f"1 to {MAX_PARTS} parts, and one of them", found)
        if self.factor < 1 or extent % self.factor:
            return Problem("divides", where, f"a divisor of {extent}", str(self.factor))
        return None

    def decide(self, scene: Scene, random: Random) -> Decision:
        parts = [1] * self.parts
        for prime in primes(_extent(scene, self.loop) // self.factor):
            parts[random.randrange(self.parts)] *= prime
        for prime in primes(self.factor):
            parts[random.randrange(self.at, self.parts)] *= prime
        return tuple(parts)

    def accepts(self, scene: Scene, decision: Decision) -> Problem | None:
        extent = _extent(scene, self.loop)
        factors = _are_factors(decision, self.parts, extent)
        if factors and prod(decision[self.at :]) % self.factor == 0:
            return None
        expected = f"{self.parts} factors of {extent}, those from {self.at} on of {self.factor}"
        return _unsupported(_where(scene, self.loop), expected, decision)


@primitive("sample_compute_location")
@frozen(eq=False)
class SampleComputeLocation(Sampling):
    """Choose a loop for `compute_at`, at random or as recorded.

        n = yield sample_compute_location(b)
        i = yield reader_loop(b, n)
        yield compute_at(b, i)

    The decision is the number of a loop around the first consumer, outermost first, at which
    `compute_at` is legal.

    Preconditions:

    - `has-consumers`: a block of the scope reads it.
    - `places`: there is such a loop.
    """

    gives = "one"

    block: Handle

    def check(self, scene: Scene) -> Problem | None:
        if isinstance(around := loops_of_reader(scene, self.block), Problem):
            return around
        if not self.places(scene):
            expected = "a loop of its reader at which it can be computed"
            return Problem("places", scene.block(self.block), expected, f"none of {len(around)}")
        return None

    def decide(self, scene: Scene, random: Random) -> Decision:
        return (random.choice(self.places(scene)),)

    def accepts(self, scene: Scene, decision: Decision) -> Problem | None:
        places = self.places(scene)
        if len(decision) == 1 and decision[0] in places:
            return None
        where = f"the block {scene.block(self.block).node.label}"
        return _unsupported(where, f"one of {places}", decision)

    def places(self, scene: Scene) -> list[int]:
        """The numbers of the loops at which `compute_at` is legal."""
        return list(_places(scene.kernel, scene.block(self.block).node.label))


@lru_cache(maxsize=64)
def _places(kernel: Kernel, label: Name) -> tuple[int, ...]:
    block, loop = Handle(-1, 0, "block"), Handle(-1, 0, "loop")  # no step gives them
    around = loops_of_reader(Scene(kernel, {block: label}), block)
    assert not isinstance(around, Problem)
    scenes = [Scene(kernel, {block: label, loop: each.var}) for each in around]
    step = ComputeAt(block, loop)
    return tuple([number for number, scene in enumerate(scenes) if step.check(scene) is None])


@primitive("enter_postproc")
@frozen(eq=False)
class EnterPostproc(Instruction):
    """End the sampling steps of a trace.

    It changes nothing. Search makes no decisions after it, and `plica.schedule.without_postproc`
    removes it and all later steps.

    Preconditions:

    - `once`: it occurs once in a trace.
    - `sampling`: no later step samples.
    """

    ends_sampling = True

    def check(self, scene: Scene) -> Problem | None:
        if scene.ended:
            return Problem("once", self.kind, "that it comes once in a trace", "a second one")
        return None

    def edit(self, scene: Scene) -> Edited:
        return Edited(scene.kernel)


sample_tile = SampledTile
sample_perfect_tile = SamplePerfectTile
sample_partitioned_tile = SamplePartitionedTile
sample_compute_location = SampleComputeLocation
enter_postproc = EnterPostproc
