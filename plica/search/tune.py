"""Tuning: searches the schedules of a model's kernels and stores the results.

    tuned_module(module, …)     every distinct kernel of a model, most trials for what promises most
    tuned_kernel(kernel, …)     a kernel as somebody wrote it

Both continue where they stopped when called again with the same seed: recorded trials are not
measured twice.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from attrs import evolve

from plica.codegen.backend import AnyTarget
from plica.ir.contract import Contract
from plica.ir.graph.module import Module
from plica.ir.loop.statement import Kernel
from plica.ir.passes import Pipeline
from plica.rewrite.pack import Pack
from plica.runtime.error import Diagnostic, UnsupportedError
from plica.search.course import Course, TuningSubject
from plica.search.measure import Measurer
from plica.search.policy.fold import Policy
from plica.search.progress import shown
from plica.search.record import Database, fingerprint, versions
from plica.search.target import tuning_of
from plica.search.task import KernelTask, tasks
from plica.search.tune_loop import Run, tuned
from plica.search.tuned import Tuned, TuneOptions


def tuned_module(  # noqa: PLR0917  # a search is these things
    module: Module,
    contract: Contract,
    packs: Sequence[Pack],
    target: AnyTarget,
    database: Database,
    how: TuneOptions,
    measurer: Measurer | None = None,
    pipeline: Pipeline | None = None,
) -> Tuned:
    """Search the schedules of all kernels of a module, as a pipeline groups them."""
    start = time.monotonic()
    tuning = tuning_of(target)
    if (of := tuning.space) is None:
        raise not_by_kernels(target)
    subjects: list[TuningSubject] = []
    fixed: list[str] = []
    for task in tasks(module, contract, packs, target, pipeline):
        grow = partial(of, task, target)
        first = None if tuning.first_space is None else tuning.first_space(task, target)
        space = first or grow()
        if space.sketches and (first is not None or space.size > 1):
            subjects.append(TuningSubject(task, space, grow if first is not None else None))
        else:
            fixed.append(task.name)
    how = without(how, start)
    return searched(subjects, tuple(fixed), target, database, how, measurer)


def without(how: TuneOptions, start: float) -> TuneOptions:
    """The options with the time that remains since `start`, by the monotonic clock."""
    if how.seconds is None:
        return how
    return evolve(how, seconds=how.seconds - (time.monotonic() - start))


def tuned_kernel(  # noqa: PLR0917  # as `tuned_module`
    kernel: Kernel,
    name: str,
    target: AnyTarget,
    database: Database,
    how: TuneOptions,
    measurer: Measurer | None = None,
) -> Tuned:
    """Searches the schedules of a user's kernel."""
    if (of := tuning_of(target).space_of_kernel) is None:
        raise not_by_kernels(target)
    start = time.monotonic()
    space = of(kernel, target)
    how = without(how, start)
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
