"""Timelines: every step of a compilation in one list, of the graph, of schedules and of lowering.

    timeline.at(n)                    the module, or the kernel, after step n
    timeline.first(holds)             the first state for which a predicate holds
    timeline.edits(n)                 the subterms that step n replaced, and by what
    timeline.fork(n)                  the model without step n
    timeline.fork(n, rule=…)          the model with another rule at step n
    timeline.fork(n, decision=…)      the model with another decision of a schedule
    future.compared(a, b)             two of them, by time, size, code and numbers

Laws: `at` of the last step of a kernel is the compiled kernel; a fork with the same decision, or at
a step without effect, gives the same code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Final, Literal, TypeAlias

from attrs import frozen

from plica.codegen.backend import backend_of
from plica.codegen.kernel_history import kernel_history
from plica.codegen.program import KernelOrigin, kernel_name
from plica.core import Term, did_you_mean
from plica.pipeline import pipeline_of
from plica.report.future import gone_on, recompiled, with_schedule
from plica.report.study import StudiedModel
from plica.report.trace_view import without_step
from plica.rewrite.align import changed
from plica.rewrite.derivation import Derivation, at
from plica.rewrite.packs import all_packs
from plica.rewrite.rule import Rule
from plica.runtime.error import Diagnostic, InputError

Level: TypeAlias = Literal["graph", "schedule", "lower"]
LEVELS: Final[tuple[Level, ...]] = ("graph", "schedule", "lower")


@frozen
class TimelineStep:
    """A step: its number from 1, its level, the kernel that it changed (none of the graph), its
    name, its number within the kernel or the graph, and whether it changed anything."""

    number: int
    level: Level
    kernel: str
    name: str
    within: int
    changes: bool


@frozen(eq=False, slots=False)  # cached properties
class Timeline:
    """All steps of the compilation of a model."""

    of: StudiedModel

    @cached_property
    def histories(self) -> dict[str, Derivation]:
        """The derivation of each kernel that has a schedule, by its name; that of the graph has
        the empty name."""
        program = self.of.lowered.program
        seen = backend_of(self.of.target).with_threads(self.of.target, self.of.threads)
        lowering = pipeline_of(seen).of("lower")
        found = {"": self.of.lowered.derivation}
        for number, origin in enumerate(program.origins):
            if origin is not None:
                found[kernel_name(number, program)] = kernel_history(origin, lowering)
        return found

    @cached_property
    def steps(self) -> tuple[TimelineStep, ...]:
        """All steps, in order."""
        return tuple(self._steps())

    def _steps(self) -> Iterator[TimelineStep]:
        number, traces = 0, self._traces()
        for kernel, history in self.histories.items():
            for within, step in enumerate(history.steps):
                number += 1
                lowering = bool(kernel) and within >= len(traces[kernel].trace.steps)
                level: Level = "lower" if lowering else "schedule" if kernel else "graph"
                changes = step.after is not step.before
                yield TimelineStep(number, level, kernel, step.rule.name, within, changes)

    def _traces(self) -> dict[str, KernelOrigin]:
        program = self.of.lowered.program
        return {kernel_name(n, program): each for n, each in enumerate(program.origins) if each}

    def step(self, number: int) -> TimelineStep:
        """The step of a number; raises an InputError if there is none."""
        if not 1 <= number <= len(self.steps):
            message, expected = f"There is no step {number}.", f"1 to {len(self.steps)}"
            raise InputError(Diagnostic("input-unknown", message, None, expected, str(number)))
        return self.steps[number - 1]

    def at(self, number: int) -> Term:
        """The module, or the kernel, after a step; after step 0 it is the module as it was read."""
        if number == 0:
            return self.of.lowered.module
        step = self.step(number)
        history = self.histories[step.kernel]
        return at(history, step.within + 1) if not step.kernel else history.steps[step.within].after

    def first(self, holds: Callable[[Term], bool]) -> TimelineStep | None:
        """The first step after which a predicate of modules and kernels holds, or None."""
        return next(
            (step for step in self.steps if step.changes and holds(self.at(step.number))), None
        )

    def edits(self, number: int) -> tuple[tuple[Term, Term], ...]:
        """The subterms that a step replaced, and by what, outermost first."""
        step = self.step(number)
        taken = self.histories[step.kernel].steps[step.within]
        return tuple(changed(taken.before, taken.after))

    def fork(
        self, number: int, *, rule: str | None = None, decision: tuple[int, ...] | None = None
    ) -> StudiedModel:
        """The model without a step, or with another rule or decision in its place."""
        step = self.step(number)
        if rule is not None and step.level != "graph":
            raise _refused(step, "Rules are chosen at steps of the graph.")
        if decision is not None and step.level != "schedule":
            raise _refused(step, "Decisions are those of steps of a schedule.")
        if step.level == "graph":
            return gone_on(self.of, step.within + 1, None if rule is None else _rule(rule))
        if step.level == "lower":
            return recompiled(self.of, lambda pipeline: pipeline.without(step.name))
        origin = self._traces()[step.kernel]
        if decision is not None:
            trace = origin.trace.with_decision(step.within, decision, origin.kernel)
        else:
            trace, _ = without_step(origin.trace, origin.kernel, step.within)
        return with_schedule(self.of, step.kernel, trace)


def _rule(name: str) -> Rule:
    """A rule of an installed pack, by its name."""
    rules = {rule.name: rule for pack in all_packs().values() for rule in pack}
    if name not in rules:
        message, hint = f"There is no rule {name!r}.", did_you_mean(name, rules)
        raise InputError(Diagnostic("input-unknown", message, None, "a rule", name, hint))
    return rules[name]


def _refused(step: TimelineStep, message: str) -> InputError:
    found = f"step {step.number}, {step.level}: {step.name}"
    return InputError(Diagnostic("input-unknown", message, None, "another step", found))
