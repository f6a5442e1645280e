"""Tuning: the schedules of a model's kernels are searched for, and what is found is kept.

    tuned_module(module, …)     every distinct kernel of a model, most trials for what promises most
    tuned_kernel(kernel, …)     a kernel as somebody wrote it

Both are done again from where they stopped if they are asked again with the same seed: trials that
are in the database are not measured twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from attrs import frozen

from plica.codegen.cuda.target import GpuTarget
from plica.codegen.lower.scheduled import machine_of
from plica.codegen.target import Target
from plica.ir.loop import Kernel
from plica.ir.module import Module
from plica.rewrite.contract import Contract
from plica.rewrite.pack import Pack
from plica.schedule.trace import Trace
from plica.search.gpu.measurer import gpu_measurer, gpu_policy
from plica.search.measure import Limits, LocalMeasurer, Measurer
from plica.search.policy.fold import Policy
from plica.search.policy.named import TRANSFER, policy_named
from plica.search.policy.taught import lessons_of, taught
from plica.search.progress import duration, shown
from plica.search.record import Database, fingerprint, versions
from plica.search.report import page
from plica.search.sketch.gpu import gpu_space_of, gpu_space_of_kernel
from plica.search.space import Point
from plica.search.space_of import asked_of, space_of, space_of_kernel
from plica.search.task import KernelTask, tasks
from plica.search.tune_loop import Course, Run, Subject, tuned

USUAL: Final = "guided"
"""The policy, where none is named."""


@frozen(eq=False)
class How:
    """How to search: trials in all, the seed of what is random, and who shows how it goes."""

    trials: int
    seed: int = 0
    progress: bool = True
    policy: str = USUAL
    seconds: float | None = None
    limits: Limits | None = None


@frozen(eq=False)
class Tuned:
    """How the search for each kernel went; those with nothing to decide are left out."""

    courses: tuple[Course, ...]
    fixed: tuple[str, ...] = ()
    """The kernels of which nothing can be decided."""

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
        return page(self.courses, title)

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
        return "\n".join(lines)


def _costs(of: Course, points: Sequence[Point | None]) -> list[float | None]:
    """What points cost when they were first tried."""
    known = {each.point: each.cost for each in of.observations}
    return [None if each is None else known.get(each) for each in points]


def tuned_module(  # noqa: PLR0917  # a search is these things
    module: Module,
    contract: Contract,
    packs: Sequence[Pack],
    target: Target | GpuTarget,
    database: Database,
    how: How,
    measurer: Measurer | None = None,
) -> Tuned:
    """Search the schedules of all kernels of a module for a machine."""
    subjects: list[Subject] = []
    fixed: list[str] = []
    for task in tasks(module, contract, packs, target):
        if isinstance(target, GpuTarget):
            space = gpu_space_of(asked_of(task), target.gpu)
        else:
            space = space_of(task, machine_of(target))
        if space.sketches and space.size > 1:
            subjects.append(Subject(task, space))
        else:
            fixed.append(task.name)
    return searched(subjects, tuple(fixed), target, database, how, measurer)


def tuned_kernel(  # noqa: PLR0917  # as above
    kernel: Kernel,
    name: str,
    target: Target | GpuTarget,
    database: Database,
    how: How,
    measurer: Measurer | None = None,
) -> Tuned:
    """Search the schedules of a kernel that somebody wrote."""
    if isinstance(target, GpuTarget):
        space = gpu_space_of_kernel(kernel, target.gpu)
    else:
        space = space_of_kernel(kernel, machine_of(target))
    subject = Subject(KernelTask(kernel, name), space)
    many = space.size > 1
    return searched([subject] if many else [], () if many else (name,), target, database, how,
                    measurer)  # fmt: skip


def searched(  # noqa: PLR0917  # as above
    subjects: Sequence[Subject],
    fixed: tuple[str, ...],
    target: Target | GpuTarget,
    database: Database,
    how: How,
    measurer: Measurer | None = None,
) -> Tuned:
    """Search for some pieces of work; candidates are measured in processes of this machine."""
    if not subjects:
        return Tuned((), fixed)
    policy = _policy(how, subjects, target, database)
    if measurer is not None:
        return Tuned(_run(subjects, policy, measurer, target, database, how), fixed)
    if isinstance(target, GpuTarget):
        with gpu_measurer(target, how.limits) as on_gpu:
            return Tuned(_run(subjects, policy, on_gpu, target, database, how), fixed)
    limits = how.limits or Limits(threads=target.cores)
    with LocalMeasurer(target, limits) as local:
        return Tuned(_run(subjects, policy, local, target, database, how), fixed)


def _policy(
    how: How, subjects: Sequence[Subject], target: Target | GpuTarget, database: Database
) -> Policy[Any]:  # what an explorer remembers is its own
    if isinstance(target, GpuTarget):
        return gpu_policy(how.policy)
    machine = machine_of(target)
    if how.policy != TRANSFER:
        return policy_named(how.policy, machine)
    return taught(machine, lessons_of(subjects, database.all(target=fingerprint(target))))


def _run(  # noqa: PLR0917  # as above
    subjects: Sequence[Subject],
    policy: Policy[Any],  # as above
    measurer: Measurer,
    target: Target | GpuTarget,
    database: Database,
    how: How,
) -> tuple[Course, ...]:
    run = Run(policy, measurer, database, fingerprint(target), how.seed, versions(target))
    with shown(how.progress, how.trials) as listener:
        return tuned(subjects, run, how.trials, seconds=how.seconds, listener=listener)
