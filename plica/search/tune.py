"""Tuning: the schedules of a model's kernels are searched for, and what is found is kept.

    tuned_module(module, …)     every distinct kernel of a model, most trials for what promises most
    tuned_kernel(kernel, …)     a kernel as somebody wrote it

Both are done again from where they stopped if they are asked again with the same seed: trials that
are in the database are not measured twice.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from attrs import evolve, frozen

from plica.codegen.backend import AnyTarget
from plica.ir.graph.module import Module
from plica.ir.loop.statement import Kernel
from plica.ir.passes import Pipeline
from plica.rewrite.contract import Contract
from plica.rewrite.pack import Pack
from plica.runtime.error import Diagnostic, UnsupportedError
from plica.schedule.trace import Trace
from plica.search.course import Course, TuningSubject
from plica.search.measure import Measurer, TrialLimits
from plica.search.policy.fold import Policy
from plica.search.progress import duration, shown
from plica.search.record import Database, fingerprint, versions
from plica.search.report import page as report_page
from plica.search.space import Point
from plica.search.target import tuning_of
from plica.search.task import KernelTask, tasks
from plica.search.tune_loop import Run, tuned

USUAL: Final = "guided"
"""The policy, where none is named."""


@frozen(eq=False)
class TuneOptions:
    """How to search: trials in all, the seed of what is random, and who shows how it goes."""

    trials: int
    seed: int = 0
    progress: bool = True
    policy: str = USUAL
    seconds: float | None = None
    limits: TrialLimits | None = None


@frozen
class InPlace:
    """A call of a network, untuned and tuned, in seconds, and the kernels that went back to their
    default since they are not clearly faster there."""

    untuned: float
    tuned: float
    back: tuple[str, ...] = ()

    def __str__(self) -> str:
        said = f"in the network: {duration(self.untuned)} untuned, {duration(self.tuned)} tuned"
        many = f"; {len(self.back)} kernels keep their default, which is not clearly slower there"
        return said + (many if self.back else "")


@frozen(eq=False)
class Tuned:
    """How the search for each kernel went; those with nothing to decide are left out."""

    courses: tuple[Course, ...]
    fixed: tuple[str, ...] = ()
    """The kernels of which nothing can be decided."""
    in_place: InPlace | None = None
    """How it is in the network, where that was tried."""
    graph: str = ""
    """In which form the graph is compiled, where that was searched for."""

    @property
    def trace(self) -> Trace | None:
        """The fastest schedule that was found, of the first kernel."""
        best = self.courses[0].best if self.courses else None
        return None if best is None else self.courses[0].subject.space.trace(best.point)

    @property
    def trials(self) -> int:
        """How many candidates were built and run."""
        return sum(each.trials for each in self.courses)

    def page(self, title: str = "Tuning") -> str:
        """A page with the curves, as HTML."""
        return report_page(self.courses, title)

    def __str__(self) -> str:
        """One line a kernel: how fast its default is, and the best that was found."""
        wide = max([6, *[len(each.subject.task.name) for each in self.courses]])
        lines = [f"{'kernel':{wide}}  times  trials     default        best"]
        for each in self.courses:
            task = each.subject.task
            best = None if each.best is None else each.best.point
            points = (each.subject.space.default, best)
            costs = ["-" if cost is None else duration(cost) for cost in _costs(each, points)]
            numbers = f"{task.weight:5}  {each.trials:6}  {costs[0]:>10}  {costs[1]:>10}"
            lines.append(f"{task.name:{wide}}  {numbers}")
        lines += [f"{each:{wide}}  nothing can be decided" for each in self.fixed]
        lines += [self.graph] if self.graph else []
        lines += [] if self.in_place is None else [str(self.in_place)]
        return "\n".join(lines)


def _costs(of: Course, points: Sequence[Point | None]) -> list[float | None]:
    """What points cost when they were first tried."""
    known = {each.point: each.cost for each in of.observations}
    return [None if each is None else known.get(each) for each in points]


def tuned_module(  # noqa: PLR0917  # a search is these things
    module: Module,
    contract: Contract,
    packs: Sequence[Pack],
    target: AnyTarget,
    database: Database,
    how: TuneOptions,
    measurer: Measurer | None = None,
    page: Pipeline | None = None,
) -> Tuned:
    """Search the schedules of all kernels of a module for a machine, as a page groups them; the
    target's if none is given."""
    start = time.monotonic()
    tuning = tuning_of(target)
    if (of := tuning.space) is None:
        raise not_by_kernels(target)
    subjects: list[TuningSubject] = []
    fixed: list[str] = []
    for task in tasks(module, contract, packs, target, page):
        grow = partial(of, task, target)
        first = None if tuning.first_space is None else tuning.first_space(task, target)
        space = first or grow()
        if space.sketches and (first is not None or space.size > 1):
            subjects.append(TuningSubject(task, space, grow if first is not None else None))
        else:
            fixed.append(task.name)
    if how.seconds is not None:  # what was made before the first trial is part of it
        how = evolve(how, seconds=how.seconds - (time.monotonic() - start))
    return searched(subjects, tuple(fixed), target, database, how, measurer)


def tuned_kernel(  # noqa: PLR0917  # as `tuned_module`
    kernel: Kernel,
    name: str,
    target: AnyTarget,
    database: Database,
    how: TuneOptions,
    measurer: Measurer | None = None,
) -> Tuned:
    """Search the schedules of a kernel that somebody wrote."""
    if (of := tuning_of(target).space_of_kernel) is None:
        raise not_by_kernels(target)
    space = of(kernel, target)
    subject = TuningSubject(KernelTask(kernel, name), space)
    many = space.size > 1
    return searched([subject] if many else [], () if many else (name,), target, database, how,
                    measurer)  # fmt: skip


def searched(  # noqa: PLR0917  # as `tuned_module`
    subjects: Sequence[TuningSubject],
    fixed: tuple[str, ...],
    target: AnyTarget,
    database: Database,
    how: TuneOptions,
    measurer: Measurer | None = None,
) -> Tuned:
    """Search for some pieces of work; candidates are measured in processes of this machine."""
    if not subjects:
        return Tuned((), fixed)
    tuning = tuning_of(target)
    if tuning.policy is None or tuning.measurer is None:
        raise not_by_kernels(target)
    policy = tuning.policy(how.policy, subjects, target, database)
    if measurer is not None:
        return Tuned(_run(subjects, policy, measurer, target, database, how), fixed)
    with tuning.measurer(target, how.limits) as local:
        return Tuned(_run(subjects, policy, local, target, database, how), fixed)


def not_by_kernels(target: AnyTarget) -> UnsupportedError:
    """The refusal of a target whose kernels have no schedules to search for."""
    message = "Schedules are searched for processors and for GPUs."
    found = target.describe()
    return UnsupportedError(Diagnostic("unsupported", message, None, "cpu or cuda", found))


def _run(  # noqa: PLR0917  # as `tuned_module`
    subjects: Sequence[TuningSubject],
    policy: Policy[Any],  # what an explorer remembers is its own
    measurer: Measurer,
    target: AnyTarget,
    database: Database,
    how: TuneOptions,
) -> tuple[Course, ...]:
    run = Run(policy, measurer, database, fingerprint(target), how.seed, versions(target))
    with shown(how.progress, how.trials, seconds=how.seconds) as listener:
        return tuned(subjects, run, how.trials, seconds=how.seconds, listener=listener)
