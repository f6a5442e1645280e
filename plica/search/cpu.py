"""Processors, as the search for schedules sees them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any, Final

from plica.codegen.llvm import toolchain
from plica.codegen.lower.processor import by_default, machine_of
from plica.codegen.target import Target
from plica.ir.loop import Kernel, Stages
from plica.schedule.trace import Trace
from plica.search.course import TuningSubject
from plica.search.measure import LocalMeasurer, TrialLimits
from plica.search.policy.fold import Policy
from plica.search.policy.named import TRANSFER, policy_named
from plica.search.policy.taught import lessons_of, precedents_of, taught
from plica.search.record.database import Database
from plica.search.sketch.heuristic import collapsed_query
from plica.search.space import Space
from plica.search.space_of import first_space_of, form_named, query_of, space_of, space_of_kernel
from plica.search.target import Tuning
from plica.search.task import Task


def fingerprint(target: Target) -> str:
    """A processor as a short text that tells it from others."""
    known = [
        target.triple,
        target.cpu,
        sorted(target.features),
        target.vector_bits,
        target.vector_registers,
        [target.cache(level) for level in (1, 2, 3)],
        target.cores,
    ]
    whole = hashlib.sha256(json.dumps(known).encode()).hexdigest()
    return f"{target.name}-{target.architecture}-{target.cpu}-{target.cores}-{whole[:16]}"


def _compilers() -> tuple[tuple[str, str], ...]:
    return (("llvm", toolchain.llvm_version()),)


def _space(task: Task, target: Target) -> Space:
    return space_of(task, machine_of(target))


def _first_space(task: Task, target: Target) -> Space:
    return first_space_of(task, machine_of(target))


def _untuned(task: Task, target: Target) -> tuple[Stages, Trace] | None:
    """Whether it can be lowered is checked by its consumer."""
    whole = collapsed_query(query_of(task)).stages
    candidate = by_default(whole, task.facts, machine_of(target), lowers=lambda kernel: kernel)
    return None if candidate is None else (candidate.form.stages, candidate.trace)


def _space_of_kernel(kernel: Kernel, target: Target) -> Space:
    return space_of_kernel(kernel, machine_of(target))


def _form(name: str, task: Task, target: Target) -> Stages | None:
    return form_named(name, task, machine_of(target))


def _measurer(target: Target, limits: TrialLimits | None) -> LocalMeasurer:
    return LocalMeasurer(target, limits or TrialLimits(threads=target.cores))


def _policy(
    name: str, subjects: Sequence[TuningSubject], target: Target, database: Database
) -> Policy[Any]:  # what an explorer remembers is its own
    machine = machine_of(target)
    if name != TRANSFER:
        return policy_named(name, machine)
    every = [subject.whole for subject in subjects]
    records = list(database.all(target=fingerprint(target)))
    return taught(machine, lessons_of(every, records), precedents_of(every, records))


CPU: Final = Tuning(
    fingerprint,
    _compilers,
    _space,
    _first_space,
    _untuned,
    _space_of_kernel,
    _form,
    _measurer,
    _policy,
    pools=True,
    in_place=True,
)
