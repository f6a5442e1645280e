"""Opened traces: the numbers of a schedule become decisions.

    split(i, (None, 8))  -->  (n,) = sample_tuple(((2,), (4,), (8,), (16,)))   decided: 8
                              split(i, (None, n))

>>> from plica.ir.text.script import from_text
>>> from plica.schedule import block, do, loops, split, trace_of, unroll
>>> from plica.search.space import DOUBLED
>>> @do
... def unrolled():
...     (i,) = yield loops((yield block("out")))
...     _, inner = yield split(i, (None, 8))
...     yield unroll(inner)
>>> kernel = from_text(DOUBLED).values[0]
>>> found = opened(trace_of(unrolled, kernel), kernel, registers=16)
>>> found.steps[0].instruction.tuples, found.steps[0].decision
(((2,), (4,), (8,)), (8,))
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import pairwise, product
from math import prod
from typing import Final, Literal, TypeAlias

from attrs import frozen

from plica.core import free_vars
from plica.ir.loop.statement import Block, For, Kernel, statements
from plica.ir.type import known
from plica.schedule.handle import Handle, Output
from plica.schedule.instruction import Decision, Scene
from plica.schedule.primitive.loop_kind import Unroll, Vectorize
from plica.schedule.primitive.sample import SampleTuple
from plica.schedule.primitive.split import Split
from plica.schedule.replay import begin, states
from plica.schedule.trace import Step, Trace, renumbered

Role: TypeAlias = Literal["register", "term", "block"]

TERMS: Final = 16  # terms of a sum that are written out, at most
SCALAR_REGISTERS: Final = 1  # registers for single elements
MAX_CHOICES: Final = 512  # tuples to choose from, at most


@frozen
class Knob:
    """One factor of a split, by the numbers of the step and of the factor."""

    step: int
    place: int
    factor: int
    role: Role


@frozen
class OpenSplit:
    """A split with constant factors: the extent it divides, and all of its factors but the open."""

    extent: int
    factors: tuple[int, ...]
    knobs: tuple[Knob, ...]

    @property
    def peels(self) -> bool:
        """Whether its factors do not divide the extent now, and so need not."""
        return self.extent % prod(self.factors) != 0

    def divides(self, values: Sequence[int]) -> bool:
        """Whether its factors, with other values for its knobs, divide the extent, or need not."""
        fixed = prod(self.factors) // prod([knob.factor for knob in self.knobs])
        if self.peels:
            return fixed * prod(values) <= self.extent
        return self.extent % (fixed * prod(values)) == 0

    def values(self, knob: Knob, registers: int) -> list[int]:
        """The values of a single knob."""
        most = _most(knob, self.extent, registers)
        if self.peels:
            return list(range(2, min(most, self.extent) + 1))
        return [
            e for e in ([1] if knob.role == "term" else []) + _divisors(self.extent) if e <= most
        ]


def opened(trace: Trace, kernel: Kernel, registers: int) -> Trace:
    """The trace with decisions in front, whose defaults are its current values."""
    groups = _groups(_cuts(trace, kernel))
    asked: list[Step] = []
    numbers: dict[tuple[int, int], Handle] = {}
    for cuts in groups:
        knobs = [knob for cut in cuts for knob in cut.knobs]
        now = tuple([knob.factor for knob in knobs])
        members = _members(cuts, registers, now)
        if len(members) < 2:
            continue
        for place, knob in enumerate(knobs):
            numbers[knob.step, knob.place] = Handle(len(asked), place, "number")
        asked.append(Step(SampleTuple(members), now))
    later = {number: number + len(asked) for number in range(len(trace))}
    steps = [renumbered(step, later) for step in trace.steps]
    for (number, place), handle in numbers.items():
        split = steps[number].instruction
        assert isinstance(split, Split)
        factors = (*split.factors[:place], handle, *split.factors[place + 1 :])
        steps[number] = Step(Split(split.loop, factors))
    return Trace((*asked, *steps))


def closed(trace: Trace) -> Trace:
    """The trace with its front decisions substituted: `closed(opened(t, k, r)) is t`."""
    front = 0
    numbers: dict[Handle, int] = {}
    for step in trace.steps:
        if not isinstance(step.instruction, SampleTuple) or step.decision is None:
            break
        for place, value in enumerate(step.decision):
            numbers[Handle(front, place, "number")] = value
        front += 1
    earlier = {number: number - front for number in range(front, len(trace))}
    steps: list[Step] = []
    for step in trace.steps[front:]:
        split = step.instruction
        if isinstance(split, Split):
            factors = tuple([
                numbers.get(factor, factor) if isinstance(factor, Handle) else factor
                for factor in split.factors
            ])  # fmt: skip
            step = Step(Split(split.loop, factors), step.decision)
        steps.append(renumbered(step, earlier))
    return Trace(tuple(steps))


def _cuts(trace: Trace, kernel: Kernel) -> list[OpenSplit]:
    """The splits whose factors can change."""
    before, roles = _roles(trace, kernel)
    open_splits: list[OpenSplit] = []
    for number, step in enumerate(trace.steps):
        split = step.instruction
        if not isinstance(split, Split) or split.factors[0] is not None:
            continue
        factors = [each for each in split.factors[1:] if isinstance(each, int)]
        scene = before[number]
        extent = known(scene.loop(split.loop).node.extent)
        if len(factors) + 1 < len(split.factors) or not extent:
            continue
        knobs = [
            Knob(number, place, factor, role)
            for place, factor in enumerate(factors, 1)
            if factor > 1 and (role := roles.get((number, place), "block")) != "lane"
        ]
        cut = OpenSplit(extent, tuple(factors), tuple(knobs))
        if knobs and not (cut.peels and any(knob.role != "register" for knob in knobs)):
            open_splits.append(cut)
    return open_splits


@lru_cache(maxsize=64)
def scenes_of(trace: Trace, kernel: Kernel) -> tuple[Scene, ...]:
    """The scene before each step, and that after the last; raises `ScheduleRefused`."""
    return (begin(kernel).scene, *[state.scene for state in states(trace, kernel)])


def _roles(
    trace: Trace, kernel: Kernel
) -> tuple[tuple[Scene, ...], dict[tuple[int, int], Role | Literal["lane"]]]:
    """The scene before each step, and what becomes of the loops that splits give."""
    scenes = scenes_of(trace, kernel)
    made: dict[Output, tuple[int, int]] = {}
    roles: dict[tuple[int, int], Role | Literal["lane"]] = {}
    for number, (here, after) in enumerate(pairwise(scenes)):
        instruction = trace.steps[number].instruction
        match instruction:
            case Unroll(loop) | Vectorize(loop):
                var = here.outputs[loop]
                if var in made:
                    lane = isinstance(instruction, Vectorize)
                    term = is_term(here.loop(loop).node)
                    roles[made[var]] = "lane" if lane else "term" if term else "register"
            case Split(_, factors):
                for place in range(len(factors)):
                    made[after.outputs[Handle(number, place, "loop")]] = (number, place)
            case _:
                pass
    return scenes, roles


def is_term(of: For) -> bool:
    """Whether a loop is a reduction loop."""
    return any(
        kind == "reduce" and of.var in free_vars(binding)
        for statement in statements(of)
        if isinstance(statement, Block)
        for kind, binding in zip(statement.kinds, statement.bindings, strict=True)
    )


def _groups(cuts: Iterable[OpenSplit]) -> list[list[OpenSplit]]:
    """Joint decisions: all splits in registers together, each other split alone."""
    together: list[OpenSplit] = []
    alone: list[list[OpenSplit]] = []
    for cut in cuts:
        if any(knob.role == "register" for knob in cut.knobs):
            together.append(cut)
        else:
            alone.append([cut])
    return [*([together] if together else []), *alone]


def _members(cuts: Sequence[OpenSplit], registers: int, now: Decision) -> tuple[Decision, ...]:
    """All values that fit together, those of now among them."""
    knobs = [knob for cut in cuts for knob in cut.knobs]
    choices = [cut.values(knob, registers) for cut in cuts for knob in cut.knobs]
    found = {now: None}
    for values in product(*choices):
        at = 0
        for cut in cuts:
            if not cut.divides(values[at : at + len(cut.knobs)]):
                break
            at += len(cut.knobs)
        else:
            if _fits([v for v, k in zip(values, knobs, strict=True) if k.role == "register"],
                     registers):  # fmt: skip
                found[values] = None
    return _thinned(sorted(found), now)


def _fits(values: Sequence[int], registers: int) -> bool:
    """Whether a number of sums, and a row of operands, fit in registers together."""
    return not values or prod(values) + min(values) + SCALAR_REGISTERS <= registers


def _most(knob: Knob, extent: int, registers: int) -> int:
    match knob.role:
        case "register":
            return registers
        case "term":
            return TERMS
        case "block":
            return extent


def _divisors(of: int) -> list[int]:
    return [each for each in range(2, of + 1) if of % each == 0]


def _thinned(members: Sequence[Decision], now: Decision) -> tuple[Decision, ...]:
    """Not too many of them, evenly, that of now among them."""
    if len(members) <= MAX_CHOICES:
        return tuple(members)
    step = -(-len(members) // MAX_CHOICES)
    return tuple(sorted({*members[::step], now}))
