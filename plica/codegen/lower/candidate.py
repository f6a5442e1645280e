"""Candidates: what a group of operators may become, best first, until one can be lowered.

    Group --stages--> StagedGroup --forms--> FormedGroup --template--> TracedGroup
    TracedGroup --lowerable--> Scheduled

A group is a fused function with facts about its arguments. Each arrow is a pass of the pipeline; a
target implements them as `ScheduleSteps`. Candidates are generated lazily: the next form is built
after the last one was rejected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from attrs import evolve, field, frozen

from plica.codegen.lower.passes import LoweredKernel
from plica.codegen.lower.scheduled import ChosenSchedule, Scheduled, from_form
from plica.core import Term
from plica.ir.graph.expression import Function
from plica.ir.loop import Kernel, Scalar, ScalarVar, Stages
from plica.schedule.form import Facts, Formed
from plica.schedule.trace import Trace


@frozen(eq=False)
class Candidate:
    """A form, its template, the trace of that, and the kernel it makes."""

    form: Formed
    template: str
    trace: Trace
    kernel: Kernel
    last: bool = False  # whether it is the last resort: why others failed is not reported


@frozen(eq=False)
class PassedOver:
    """A form whose template or lowering failed."""

    form: Formed
    reason: str


@frozen(eq=False)
class StagedGroup:
    """The stages of a group for forms, or a kernel that needs no form."""

    steps: ScheduleSteps
    function: Function
    facts: Facts
    stages: Stages
    given: Mapping[ScalarVar, Scalar] = field(factory=dict)
    passed_over: tuple[str, ...] = ()
    done: Scheduled | None = None

    @property
    def term(self) -> Term:
        """What tells it from others."""
        return self.stages if self.done is None else self.done.kernel


@frozen(eq=False)
class FormedGroup:
    """The first form of a group, or None, and the remaining ones."""

    staged: StagedGroup
    first: Formed | None = None
    others: Iterator[Formed] = field(factory=lambda: iter(()))

    @property
    def term(self) -> Term:
        """What tells it from others."""
        return self.staged.term if self.first is None else self.first.stages

    @property
    def passed_over(self) -> tuple[str, ...]:
        """Candidates rejected before forms."""
        return self.staged.passed_over


@frozen(eq=False)
class TracedGroup:
    """The first candidate of a group, or None, and the remaining ones."""

    staged: StagedGroup
    first: Candidate | None = None
    others: Iterator[Candidate | PassedOver] = field(factory=lambda: iter(()))
    passed_over: tuple[str, ...] = ()

    @property
    def term(self) -> Term:
        """What tells it from others."""
        return self.staged.term if self.first is None else self.first.kernel


@frozen(eq=False)
class ScheduleSteps:
    """A target's steps from groups to kernels."""

    stages: Callable[[ScheduleSteps, Function, Facts, ChosenSchedule | None], StagedGroup]
    forms: Callable[[StagedGroup], Iterator[Formed]]
    """The forms of stages, the best first."""
    candidates: Callable[[StagedGroup, Iterator[Formed]], Iterator[Candidate | PassedOver]]
    """The traces of forms, in order."""
    lower: Callable[[StagedGroup, Kernel], LoweredKernel | str]
    """A kernel lowered, or why it cannot be."""
    plain: Callable[[StagedGroup], Scheduled]
    """The kernel where no candidate can be lowered."""

    def schedule(
        self, function: Function, facts: Facts, chosen: ChosenSchedule | None
    ) -> Scheduled:
        """The kernel of a group: all steps at once."""
        return lowerable(traced(formed(self.stages(self, function, facts, chosen))))


GroupState: TypeAlias = StagedGroup | FormedGroup | TracedGroup | Scheduled
Groups: TypeAlias = Mapping[tuple[Function, Facts], GroupState]
"""The state of each group of a module."""


def formed(of: StagedGroup) -> FormedGroup:
    """A group in its first form."""
    if of.done is not None:
        return FormedGroup(of)
    others = of.steps.forms(of)
    if (first := next(others, None)) is not None:
        first.stages  # noqa: B018  # they are made when they are first asked for
    return FormedGroup(of, first, others)


def traced(of: FormedGroup) -> TracedGroup:
    """A group with the trace of its first candidate."""
    if of.staged.done is not None:
        return TracedGroup(of.staged)
    forms = of.others if of.first is None else _with(of.first, of.others)
    others = of.staged.steps.candidates(of.staged, forms)
    first, passed_over = _next(others)
    return TracedGroup(of.staged, first, others, passed_over)


def lowerable(of: TracedGroup) -> Scheduled:
    """The kernel of the first candidate that can be lowered."""
    staged, candidate = of.staged, of.first
    if staged.done is not None:
        return staged.done
    passed_over = [*staged.passed_over, *of.passed_over]
    while candidate is not None:
        made = staged.steps.lower(staged, candidate.kernel)
        if isinstance(made, LoweredKernel):
            return _scheduled(staged, candidate, made, passed_over)
        if not candidate.last:
            passed_over.append(f"{candidate.form.form}: {made}")
        candidate, more = _next(of.others)
        passed_over += more
    return evolve(staged.steps.plain(staged), passed_over=tuple(passed_over), given=staged.given)


def _scheduled(
    of: StagedGroup, candidate: Candidate, lowered: LoweredKernel, passed_over: list[str]
) -> Scheduled:
    names = candidate.form.form, candidate.template
    form, trace, kernel = candidate.form.stages, candidate.trace, candidate.kernel
    made = from_form(of.function, of.facts, form, trace, kernel, names)
    return evolve(made, lowered=lowered, passed_over=tuple(passed_over), given=of.given)


def _next(others: Iterator[Candidate | PassedOver]) -> tuple[Candidate | None, tuple[str, ...]]:
    """The next candidate, and those rejected before it."""
    passed_over: list[str] = []
    for each in others:
        if isinstance(each, Candidate):
            return each, tuple(passed_over)
        passed_over.append(f"{each.form.form}: {each.reason}")
    return None, tuple(passed_over)


def _with(first: Formed, others: Iterator[Formed]) -> Iterator[Formed]:
    yield first
    yield from others
