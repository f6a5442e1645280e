"""Resampling: a stored trace with missing decisions, or with decisions by a provider.

    resample(trace, program, seed=3)                   draws what is missing; the rest stays
    resample(undecided(trace), program, seed=3)        draws everything
    resample(trace, program, provider=ask)             `ask` decides, where it wants to
    without_postproc(trace)                            what comes before the end of sampling

A trace may be stored without its decisions; replaying such a one is refused (`decided`).

Laws: the same seed gives the same trace; `resample(trace, program) is trace` if no decision is
missing.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TypeAlias

from plica.schedule.instruction import Decision, Sampling, Scene
from plica.schedule.problem import Problem
from plica.schedule.replay import begin, kernel_of, refused_step, taken
from plica.schedule.trace import Program, Step, Trace, check_decision

Provider: TypeAlias = Callable[[int, Sampling, Scene, "Decision | None"], "Decision | None"]
"""From a step's number, the step, its scene and the recorded decision to the decision, or None."""


def undecided(trace: Trace) -> Trace:
    """The trace without its decisions, as a space of schedules."""
    return Trace(tuple([Step(step.instruction) for step in trace.steps]))


def without_postproc(trace: Trace) -> Trace:
    """The steps before `enter_postproc`, or all of them."""
    ends = [n for n, step in enumerate(trace.steps) if step.instruction.ends_sampling]
    return trace.prefix(ends[0]) if ends else trace


def resample(
    trace: Trace,
    program: Program,
    *,
    kernel: str | None = None,
    seed: int = 0,
    provider: Provider | None = None,
) -> Trace:
    """The trace with a legal decision at every sampling step.

    The provider's decisions come first, then the trace's, then random ones by the seed. Raises
    `ScheduleRefused` at an illegal step.
    """
    _, _, found = kernel_of(program, kernel)
    state, steps = begin(found), list[Step]()
    for number, step in enumerate(trace.steps):
        if isinstance(instruction := step.instruction, Sampling):
            scene = state.scene
            problem = scene.missing(instruction) or instruction.check(scene)
            if problem is not None:
                raise refused_step(problem, instruction, number, state)
            decision = None
            if provider is not None:
                decision = provider(number, instruction, scene, step.decision)
            if decision is None:
                decision = step.decision
            if decision is None:
                decision = instruction.decide(scene, Random(f"{seed}/{number}"))
            check_decision(decision)
            step = Step(instruction, decision)
        if isinstance(after := taken(state, step), Problem):
            raise refused_step(after, instruction, number, state)
        state = after
        steps.append(step)
    return Trace(tuple(steps))
