"""Random steps: an instruction of any kind, and walks of such steps over a kernel.

A kind with a field that no row of `ARGUMENTS` speaks of is never drawn; `untried` says which these
are.

>>> from plica.schedule.generate.kernel import random_case
>>> steps, _ = walk(random_case(Random(1)).kernel, Random(1), 4)
>>> steps[0].instruction.kind
'block'
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Final, TypeVar

from attrs import frozen

from plica.analysis.site import map_of
from plica.ir.loop.statement import Kernel
from plica.schedule.generate.argument import Given, Here, NoArgument, argument, fields_of
from plica.schedule.handle import Handle
from plica.schedule.instruction import Instruction, Sampling, kinds
from plica.schedule.primitive.look_up import role_of
from plica.schedule.problem import Problem
from plica.schedule.replay import ReplayState, begin, taken
from plica.schedule.trace import Step

C = TypeVar("C")

WEIGHTS: Final[dict[str, int]] = {
    "add_unit_loop": 2, "annotate": 1, "enter_postproc": 1, "loops": 2, "sample_categorical": 1,
    "split": 8, "unannotate": 1,
}  # fmt: skip
DEFAULT_STEPS: Final = 4
SELDOM: Final = 1
"""How often a kind is drawn, in relation to others; one that changes nothing seldom."""


def untried(known: Mapping[str, type[Instruction]] | None = None) -> tuple[str, ...]:
    """The kinds that no random step is of: they have a field that `ARGUMENTS` does not know."""
    return tuple([
        kind
        for kind, cls in (kinds() if known is None else known).items()
        if any(argument(kind, field) is None for field in fields_of(cls))
    ])  # fmt: skip


def random_step(here: Here, cls: type[Instruction]) -> Instruction:
    """An instruction of a class; raises `NoArgument` where it has no arguments here."""
    given = Given()
    for field in fields_of(cls):
        if (find := argument(cls.kind, field)) is None:
            raise NoArgument
        given[field] = find(here, given)
    return cls(**given)


@frozen(eq=False)
class Refusal:
    """An instruction that was refused, and why."""

    kind: str
    problem: Problem


def opening(
    kernel: Kernel, known: Mapping[str, type[Instruction]]
) -> tuple[list[Step], ReplayState]:
    """The steps that create handles for all blocks and loops."""
    state, steps = begin(kernel), list[Step]()

    def take(instruction: Instruction) -> None:
        nonlocal state
        after = taken(state, Step(instruction))
        assert isinstance(after, ReplayState)  # what these steps ask for is there
        state = after
        steps.append(Step(instruction))

    for number, site in enumerate(map_of(state.kernel).blocks.values()):
        take(known["block"](number, role_of(site.node)))  # type: ignore[call-arg]  # its fields
        take(known["loops"](Handle(len(steps) - 1, 0, "block")))  # type: ignore[call-arg]  # the kind `loops` takes a handle
    return steps, state


def walk(
    kernel: Kernel,
    random: Random,
    length: int,
    focus: Sequence[str] = (),
    watch: Callable[[ReplayState, Instruction], None] = lambda state, instruction: None,
) -> tuple[tuple[Step, ...], tuple[Refusal, ...]]:
    """Random steps that are legal, and those that were refused on the way.

    Half of the steps are of a kind in `focus`. `watch` is called before each attempt.
    """
    known = kinds()
    steps, state = opening(kernel, known)
    refusals: list[Refusal] = []
    out = set(untried(known))
    names = [kind for kind in known if kind not in out]
    weights = [WEIGHTS.get(kind, SELDOM if known[kind].pure else DEFAULT_STEPS) for kind in names]
    for _ in range(length):
        here = Here(state, random)
        if focus and random.random() < 0.5:
            kind = random.choice(list(focus))
        else:
            (kind,) = random.choices(names, weights)
        try:
            instruction = random_step(here, known[kind])
        except NoArgument:
            continue
        watch(state, instruction)
        step = _decided(instruction, state, random)
        after = step if isinstance(step, Problem) else taken(state, step)
        if isinstance(after, Problem):
            refusals.append(Refusal(kind, after))
            continue
        assert isinstance(step, Step)
        steps.append(step)
        state = after
    return tuple(steps), tuple(refusals)


def _decided(instruction: Instruction, state: ReplayState, random: Random) -> Step | Problem:
    if not isinstance(instruction, Sampling):
        return Step(instruction)
    problem = state.scene.missing(instruction) or instruction.check(state.scene)
    if problem is not None:
        return problem
    return Step(instruction, instruction.decide(state.scene, random))
