"""Spaces: the schedules a search chooses from, as traces whose decisions are open.

    Space  ::= Space(sketches)                 Point ::= Point(sketch, decisions)
    Sketch ::= Sketch(name, kernel, trace, supports, form)

>>> from random import Random
>>> from plica.schedule import do, block, loops, split, vectorize, sample_tile, trace_of
>>> from plica.ir.text.script import from_text
>>> kernel = from_text(DOUBLED).values[0]
>>> @do
... def tiled():
...     (i,) = yield loops((yield block("out")))
...     _, inner = yield split(i, sample_tile(2, max_inner=16))
...     yield vectorize(inner)
>>> space = Space((sketch("tiled", kernel, trace_of(tiled, kernel)),))
>>> space.size
5
>>> space.default.decisions == (space.trace(space.default).decisions()[2],)
True
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from itertools import product
from math import prod
from random import Random
from typing import Final

from attrs import frozen

from plica.core import digest
from plica.ir.loop import ExternStage, Kernel, Stages
from plica.ir.loop.stages import from_kernel
from plica.schedule.instruction import Decision, Sampling
from plica.schedule.problem import Problem
from plica.schedule.replay import begin, refused_step, taken
from plica.schedule.trace import Trace
from plica.search.support import Support, support_of


@frozen(eq=False)
class Sketch:
    """A kernel to begin with, a trace that decides something everywhere, what else it might."""

    name: str
    kernel: Kernel
    trace: Trace
    steps: tuple[int, ...]  # the numbers of the steps whose decisions are open
    supports: tuple[Support, ...]
    form: Stages  # the stages that the kernel is made of, with what is done to constants before

    @property
    def size(self) -> int:
        return prod(len(support.members) for support in self.supports)

    @property
    def default(self) -> tuple[Decision, ...]:
        """The trace's own decisions."""
        decided = self.trace.decisions()
        return tuple([decided[step] for step in self.steps])

    @property
    def loops_digest(self) -> str:
        return loops_digest(self.form)

    def decided(self, decisions: tuple[Decision, ...]) -> Trace:
        """The trace with these decisions."""
        trace = self.trace
        for number, decision in zip(self.steps, decisions, strict=True):
            trace = trace.with_decision(number, decision)
        return trace


def loops_digest(form: Stages) -> str:
    """A digest of a form that has its loops already, whatever names are in it; else nothing."""
    whole = any(isinstance(stage, ExternStage) for stage in form.stages)
    return f"loops {digest(form)}" if whole else ""


def sketch(name: str, kernel: Kernel, trace: Trace, form: Stages | None = None) -> Sketch:
    """The sketch of a trace on the kernel of a form, or on a user's kernel.

    A step with one possible decision, or with unlistable alternatives, is fixed. Raises
    `ScheduleRefused` if the trace itself is illegal.
    """
    state = begin(kernel)
    steps, supports = list[int](), list[Support]()
    for number, step in enumerate(trace.steps):
        if isinstance(step.instruction, Sampling):
            support = support_of(step.instruction, state.scene)
            if support is not None and len(support.members) > 1:
                steps.append(number)
                supports.append(support)
        if isinstance(after := taken(state, step), Problem):
            raise refused_step(after, step.instruction, number, state)
        state = after
    whole = from_kernel(kernel) if form is None else form
    return Sketch(name, kernel, trace, tuple(steps), tuple(supports), whole)


@frozen
class Point:
    """One schedule of a space: the index of a sketch, and its decisions."""

    sketch: int
    decisions: tuple[Decision, ...]


@frozen(eq=False)
class Space:
    """Sketches of one piece of work, the best by rule of thumb first."""

    sketches: tuple[Sketch, ...]

    @cached_property
    def size(self) -> int:
        """The number of points, legal or not."""
        return sum(each.size for each in self.sketches)

    @property
    def default(self) -> Point:
        """The point that needs no search."""
        return Point(0, self.sketches[0].default)

    def defaults(self) -> tuple[Point, ...]:
        """What each sketch decides by itself."""
        return tuple([Point(n, each.default) for n, each in enumerate(self.sketches)])

    def trace(self, point: Point) -> Trace:
        """The schedule of a point."""
        return self.sketches[point.sketch].decided(point.decisions)

    def holds(self, point: Point) -> bool:
        """Whether every decision is in its support."""
        if not 0 <= point.sketch < len(self.sketches):
            return False
        supports = self.sketches[point.sketch].supports
        return len(supports) == len(point.decisions) and all(
            support.holds(each) for support, each in zip(supports, point.decisions, strict=True)
        )

    def drawn(self, random: Random) -> Point:
        """A point at random; every sketch is equally likely, every decision of it too."""
        at = random.randrange(len(self.sketches))
        supports = self.sketches[at].supports
        return Point(at, tuple([random.choice(support.members) for support in supports]))

    def mutated(self, point: Point, random: Random) -> Point:
        """The point with one decision redrawn; occasionally all of them."""
        supports = self.sketches[point.sketch].supports
        if not supports or (len(self.sketches) > 1 and random.random() < ELSEWHERE):
            return self.drawn(random)
        at = random.randrange(len(supports))
        others = [member for member in supports[at].members if member != point.decisions[at]]
        return _with(point, at, random.choice(others))

    def crossed(self, one: Point, other: Point, random: Random) -> Point:
        """Each decision from one of two points of one sketch; the first where they differ in it."""
        if one.sketch != other.sketch:
            return one
        pairs = zip(one.decisions, other.decisions, strict=True)
        return Point(one.sketch, tuple([random.choice(pair) for pair in pairs]))

    def neighbours(self, point: Point) -> tuple[Point, ...]:
        """The points that are one small step away."""
        supports = self.sketches[point.sketch].supports
        return tuple(
            [
                _with(point, at, near)
                for at, support in enumerate(supports)
                for near in support.neighbours(point.decisions[at])
            ]
        )

    def points(self) -> Iterator[Point]:
        """All points, sketch by sketch, in the order of their supports."""
        for number, each in enumerate(self.sketches):
            for decisions in product(*[support.members for support in each.supports]):
                yield Point(number, decisions)


ELSEWHERE: Final = 0.05  # how often a mutation leaves its sketch


def _with(point: Point, at: int, decision: Decision) -> Point:
    changed = (*point.decisions[:at], decision, *point.decisions[at + 1 :])
    return Point(point.sketch, changed)


DOUBLED: Final = """
from plica.script import Buffer, block, f32, grid
import plica

@plica.kernel
def doubled(x: Buffer[(64,), f32], y: Buffer[(64,), f32]):
    for i in grid(64):
        with block("out", spatial=(i,)):
            y[i] = x[i] * 2.0
"""
"""A kernel for examples."""
