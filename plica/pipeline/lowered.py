"""Parts of the road, for those who want to stop on it: lower, assemble, build."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from plica.codegen.backend import AnyTarget, Backend, backend_of, find_target
from plica.codegen.compilation import (
    Arranged,
    Chooser,
    Job,
    Lowered,
    emitted,
    grouped as grouped_by,
    lowered,
    record,
    scheduled_from,
)
from plica.codegen.lower.processor import processor
from plica.codegen.program_kind import without_loops
from plica.ir.contract import Contract, exact
from plica.ir.driver import Checks, Instrument
from plica.ir.graph.module import Module
from plica.ir.passes import Pipeline
from plica.rewrite.history import History
from plica.rewrite.optimise import DEFAULT_CONTRACT
from plica.rewrite.pack import Pack
from plica.runtime.artefact import version
from plica.runtime.error import Diagnostic, UnsupportedError
from plica.runtime.executable import Executable
from plica.runtime.late import lazy_imports
from plica.runtime.store import ArtefactStore

with lazy_imports(__name__):  # who asks for no tuned schedules need not wait for the room of search
    from plica.codegen.lower.scheduled import ChosenSchedule
    from plica.codegen.lower.workload import workload
    from plica.ir.graph.expression import Function
    from plica.pipeline.option import ShippedRecords
    from plica.schedule.form import Facts
    from plica.search.choice import Records, rows_by, schedule_by

__all__ = [
    "Lowered", "arranged", "assemble", "build", "job_for", "lower", "pipeline_of", "record",
    "sequenced",
]  # fmt: skip

USUAL = "cpu"


def pipeline_of(
    target: AnyTarget | str | None = None, effort: str = "default", *, objects: bool = False
) -> Pipeline:
    """The pipeline of a target, or of the target of that name; processors' where none is given.

    Programs with data and recursion have a pipeline of their own: with `objects` it is that.

    >>> pipeline_of("cpu").names[-2:]
    ('plan-memory', 'emit-llvm')
    """
    return _backend(target, objects).pipeline(effort)


page_of = pipeline_of
"""The former name, kept until 1.0."""


def _backend(target: AnyTarget | str | None, objects: bool) -> Backend:
    found = backend_of(find_target(USUAL if target is None else target))
    if not objects:
        return found
    if (dynamic := found.with_objects()) is None:
        message = f"The target {found.name!r} runs no programs with data and recursion."
        raise UnsupportedError(Diagnostic("unsupported", message, None, USUAL, found.name))
    return dynamic


def job_for(
    target: AnyTarget | None,
    contract: Contract = DEFAULT_CONTRACT,
    packs: Sequence[Pack] = (),
    records: Records | ShippedRecords | None = None,
    **more: Any,  # Any: the other fields of a job
) -> Job:
    """What a pipeline is run for; with records of tuning, they come before default schedules."""
    machine = None if target is None else backend_of(target).machine(target)
    schedules = processor if target is None else backend_of(target).scheduler
    chooser = None
    if records is not None and target is not None and machine is not None:
        chooser = Chooser(
            records.digest,
            partial(_tuned, records, target),
            partial(rows_by, records.whole, target, contract),
        )
    versions = (("plica", version()),)
    return Job(
        contract, tuple(packs), target, machine, schedules,
        chooser=chooser, versions=versions, **more,
    )  # fmt: skip


def _tuned(
    records: Records | ShippedRecords, target: AnyTarget, function: Function, facts: Facts
) -> ChosenSchedule | None:
    """The schedule that records have for a function: nobody waits for the room of search where none
    is of its work."""
    keys = (workload(function, facts), workload(function, facts, "anchor"))
    if not any(map(records.may_know, keys)):
        return None
    return schedule_by(records.whole, target, function, facts)


def lower(
    module: Module,
    contract: Contract = DEFAULT_CONTRACT,
    packs: Sequence[Pack] = (),
    target: AnyTarget | None = None,
    records: Records | None = None,
    *,
    pipeline: Pipeline | None = None,
    objects: bool = False,
    instruments: Sequence[Instrument] = (),
    checks: Checks | None = None,
) -> Arranged[Any, Any]:  # Any: as the pipeline makes it; a `Lowered` but for programs with objects
    """The program of a module and its memory plan; with a target, scheduled for it.

    Where there are records of tuning, they come before default schedules.
    """
    job = job_for(target, contract, packs, records)
    used = pipeline or pipeline_of(target, objects=objects)
    return lowered(used, module if objects else without_loops(module), job, instruments, checks)


def sequenced(
    history: History, target: AnyTarget | None = None, contract: Contract = exact
) -> Lowered:
    """The program of an inferred module, as it is but for the passes that every program needs."""
    pipeline = pipeline_of(target)
    needed = pipeline.only("infer", "resolve", "decompose", "fuse")
    job = job_for(target, contract)
    return scheduled_from(pipeline, grouped_by(needed, history, job), job)


def arranged(
    history: History, target: AnyTarget | None, contract: Contract, records: Records | None = None
) -> Lowered:
    """The program of a module whose operators are grouped already, and its memory plan."""
    job = job_for(target, contract, (), records)
    return scheduled_from(pipeline_of(target), history, job)


def build(
    of: Arranged[Any, Any],  # Any: as `lower` gives it
    target: AnyTarget,
    threads: int = 1,
    store: ArtefactStore | None = None,
    *,
    objects: bool = False,
) -> Executable:
    """Code for a lowered module, loaded into this process."""
    backend = _backend(target, objects)
    return backend.build(backend.pipeline(), of, job_for(target, threads=threads, store=store))


def assemble(
    of: Arranged[Any, Any],  # Any: as the pipeline of the target makes it
    target: AnyTarget,
    threads: int = 1,
    store: ArtefactStore | None = None,
    *,
    objects: bool = False,
) -> Any:  # an artefact, as the pipeline makes it
    """All that will be loaded, here or elsewhere: the target need not be this machine."""
    job = job_for(target, threads=threads, store=store)
    return emitted(pipeline_of(target, objects=objects), of, job)
