"""Compiles a module by its pipeline, stores the artefact, and loads it.

Executables still alive in this process are shared. Earlier artefacts come from the user's store,
keyed by the digest of everything that determines the code.

Parts of the road, for those who want to stop on it: lower, assemble, build.

Validates the output of a pipeline: each kernel of a program against its stages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, Final
from weakref import WeakValueDictionary

from attrs import evolve

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
from plica.codegen.interface import names_of
from plica.codegen.llvm.unit import FINGERPRINT, fingerprint
from plica.codegen.lower.processor import processor
from plica.codegen.program import Program
from plica.codegen.program_kind import without_loops
from plica.core import digest
from plica.core.collector import age, paused
from plica.core.deferred import unobserved
from plica.ir.contract import Contract, exact
from plica.ir.driver import Checks, Instrument
from plica.ir.graph.module import Module, selecting_names
from plica.ir.graph.operator import uses_foreign
from plica.ir.passes import Pipeline
from plica.pipeline import option
from plica.pipeline.extern_source import calls_declared, externs_called, externs_of
from plica.pipeline.worker_pool import operators_of, workers
from plica.rewrite.history import History
from plica.rewrite.optimise import DEFAULT_CONTRACT
from plica.rewrite.pack import Pack
from plica.rewrite.packs import OWN
from plica.runtime import archive, artefact as artefacts
from plica.runtime.error import ArtefactError, Diagnostic, UnsupportedError
from plica.runtime.executable import Executable
from plica.runtime.extern import NONE
from plica.runtime.late import lazy_imports
from plica.runtime.load import executable
from plica.runtime.store import ArtefactStore, is_key, key_of, user_store
from plica.schedule.form import installed
from plica.schedule.trace import Trace

with lazy_imports(__name__):
    from plica.codegen.lower.scheduled import ChosenSchedule
    from plica.codegen.lower.workload import workload
    from plica.codegen.validation import Bench, ValidatedKernel, validated
    from plica.ir.graph.expression import Function
    from plica.pipeline.compiler_stamp import compiler_stamp
    from plica.pipeline.edited_model import keep_recipes
    from plica.pipeline.launch_name import with_node_names
    from plica.pipeline.option import ShippedRecords
    from plica.schedule.form import Facts
    from plica.search.choice import Records, rows_by, schedule_by

__all__ = [
    "Lowered", "arranged", "assemble", "build", "job_for", "lower", "pipeline_of", "record",
    "sequenced",
]  # fmt: skip


def hold_to_stages(
    of: Arranged[Any, Any],  # Any: as the pipeline makes it
    contract: Contract,
    pipeline: Pipeline,
    job: Job,
) -> tuple[ValidatedKernel, ...]:
    """Returns the verdict for each kernel; raises `ValidationFailed` if a kernel is wrong."""
    if not isinstance(of.program, Program):
        message = "Only programs whose steps all launch kernels are validated."
        found = "layers on an accelerator, or a program with data and recursion"
        hint = "Leave validate out; plica debug and plica fuzz compare such programs as wholes."
        raise UnsupportedError(Diagnostic("unsupported", message, None, "kernels", found, hint))
    backend = backend_of(job.target)
    entry = backend.entry(job.target) if backend.entry and backend.here(job.target) else None
    bench = Bench(contract, of.fused, pipeline.of("lower").passes, entry)
    return validated(of.program, job.scheduler, bench)


def validate_for(
    of: Arranged[Any, Any],  # as above
    contract: Contract,
    target: AnyTarget,
    records: Records | None = None,
) -> tuple[ValidatedKernel, ...]:
    """The same for a program lowered for a target that may not be this machine."""
    return hold_to_stages(of, contract, pipeline_of(target), job_for(target, contract, (), records))


USUAL = "cpu"


def pipeline_of(
    target: AnyTarget | str | None = None, effort: str = "default", *, objects: bool = False
) -> Pipeline:
    """The pipeline of a target, or of the target of that name; processors' where none is given.

    Programs with algebraic data or recursion have their own pipeline: `objects` selects it.

    >>> pipeline_of("cpu").names[-2:]
    ('plan-memory', 'emit-llvm')
    """
    return _backend(target, objects).pipeline(effort)


page_of = pipeline_of  # the former name, until 1.0


def _backend(target: AnyTarget | str | None, objects: bool) -> Backend:
    backend = backend_of(find_target(USUAL if target is None else target))
    if not objects:
        return backend
    if (dynamic := backend.with_objects()) is None:
        message = f"The target {backend.name!r} runs no programs with data and recursion."
        raise UnsupportedError(Diagnostic("unsupported", message, None, USUAL, backend.name))
    return dynamic


def job_for(
    target: AnyTarget | None,
    contract: Contract = DEFAULT_CONTRACT,
    packs: Sequence[Pack] = (),
    records: Records | ShippedRecords | None = None,
    **more: Any,  # Any: the other fields of a job
) -> Job:
    """The job a pipeline runs on; tuning records take precedence over default schedules."""
    machine = None if target is None else backend_of(target).machine(target)
    schedules = processor if target is None else backend_of(target).scheduler
    chooser = None
    if records is not None and target is not None and machine is not None:
        chooser = Chooser(
            records.digest,
            partial(_tuned, records, target),
            partial(rows_by, records.whole, target, contract),
        )
    versions = (("plica", artefacts.version()),)
    return Job(
        contract, tuple(packs), target, machine, schedules,
        chooser=chooser, versions=versions, **more,
    )  # fmt: skip


def _tuned(
    records: Records | ShippedRecords, target: AnyTarget, function: Function, facts: Facts
) -> ChosenSchedule | None:
    """The schedule from tuning records for a function; the schedule space is imported only if a
    record matches."""
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

    Tuning records take precedence over default schedules.
    """
    job = job_for(target, contract, packs, records)
    used = pipeline or pipeline_of(target, objects=objects)
    return lowered(used, module if objects else without_loops(module), job, instruments, checks)


def sequenced(
    history: History, target: AnyTarget | None = None, contract: Contract = exact
) -> Lowered:
    """The program of an inferred module with only the mandatory passes applied."""
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


_IN_USE: Final[WeakValueDictionary[object, Executable]] = WeakValueDictionary()
"""Executables that are still in use somewhere in this process, by all that made them."""


def compiled(
    module: Module, request: option.Request, native: Callable[[Module], Executable] | None = None
) -> Executable:
    """Compiles a module by the pipeline of the request; `native` compiles segments that run on the
    host."""
    backend, target = request.backend, backend_target(request)
    records = _records(request, target)
    if records is not None and request.pipeline is backend.pipeline():
        request = evolve(request, pipeline=option.pipeline_in_form(records, module, request))
    found = "" if records is None else records.digest
    # The records of a backend with its own database may change.
    keeps = not (backend.native and request.database is not None)
    # A do-block is a Python function: what it does may change.
    steady = all(isinstance(each, Trace) for _, each in request.schedules)
    shared = request.cache and keeps and steady and not request.validate
    key = (backend, module, target, request.contract, request.packs, request.threads, found,
           request.pipeline, request.tier, request.schedules, request.externs,
           selecting_names(module))  # fmt: skip
    same = _IN_USE.get(key) if shared else None
    if same is not None:
        return same
    externs = externs_of(module, request.externs, backend.here(target))
    if externs is not NONE and not backend.externs:
        raise _calls_no_externs(backend.name, module)
    store, entry = user_store() if request.cache and not calls_declared(module) else None, ""
    if store is not None:
        if request.validate:
            store.audited = 1.0
        tell_fingerprint(store)
        entry = _entry(module, request, found)
    with option.known_tilings(request) as known, paused():  # nothing the compiler makes is cyclic
        job = job_for(
            target,
            request.contract,
            request.packs,
            records,
            threads=request.threads if backend.threaded else 1,
            store=store,
            native=native,
            known=known,
            given=dict(request.schedules),
            externs=externs,
            workers=workers(),
            compiler=fingerprint() if store is not None else "",
        )
        made = _made(module, request, job, store, entry)
        age()
    if shared:
        _IN_USE[key] = made
    return made


def _records(
    request: option.Request, target: Any
) -> Records | ShippedRecords | None:  # Any: as below
    """The tuning records for a target; a backend that is `native` has its own records."""
    backend = request.backend
    if backend.native:
        return None
    if request.database is not None:
        return option.read_records(request.database, target)
    if request.tier != "fast" or backend.pipeline("fast") is backend.pipeline():
        return option.shipped_records(target)
    return None  # who wants code soon did not ask what the default is that a record was held to


def _calls_no_externs(target: str, module: Module) -> UnsupportedError:
    message, names = f"The target {target!r} calls no externs.", ", ".join(externs_called(module))
    return UnsupportedError(Diagnostic("unsupported", message, None, "no externs", names))


def backend_target(request: option.Request) -> Any:  # Any: a target is its backend's own
    """The target as the threads of the request see it."""
    return request.backend.with_threads(request.target, request.threads)


def _made(
    module: Module, request: option.Request, job: Job, store: ArtefactStore | None, entry: str
) -> Executable:
    """What can be called, by the store or by the pipeline."""
    backend = request.backend
    later = lru_cache(maxsize=1)(partial(_named, request.pipeline, module, job))

    def made_again() -> list[archive.Piece]:
        apart = evolve(job, store=None)
        whole = backend.build(request.pipeline, _named(request.pipeline, module, apart), apart)
        return kept_pieces(whole.artefact)

    stored = None
    if store is not None and entry:
        stored = store.found_apart(entry, made_again, "the model")
    artefact = None if stored is None else _reread(stored, lambda: record(later()))
    if request.validate:
        hold_to_stages(later(), request.contract, request.pipeline, job)
    if artefact is not None:
        if job.workers is not None:
            job.workers.unneeded()
        texts = backend.texts(later, job, artefact)
        known = executable(artefact, texts=texts, externs=job.externs)
        known.kept = entry
        return known.with_tier(request.tier, 0, lambda: later().derivation)
    if job.workers is not None:
        job.workers.expect(operators_of(module))
    made = backend.build(request.pipeline, later(), job)
    made.with_tier(request.tier, 1, lambda: later().derivation)
    made.kept = entry
    if store is not None and entry:
        pieces = kept_pieces(made.artefact)
        store.put_apart(entry, *pieces)
        if isinstance(program := later().program, Program):
            keep_recipes(store, entry, module, program.constants, pieces)
    return made


def _named(
    pipeline: Pipeline, module: Module, job: Job
) -> Arranged[Any, Any]:  # Any: as the pipeline
    """A module driven down its pipeline, where launches that select by indices have their nodes'
    names."""
    found = lowered(pipeline, module, job)
    if not isinstance(found.program, Program) or not selecting_names(module):
        return found
    return with_node_names(found)


def kept_pieces(of: artefacts.Artefact) -> list[archive.Piece]:
    """The pieces of an artefact that the store keeps. The compilation record is left out and
    recomputed on demand; the store's digest covers all pieces."""
    members = artefacts.member_pieces(of, with_record=False, sealed=False)
    return archive.aligned_members(members, artefacts.ALIGNMENT)


def tell_fingerprint(store: ArtefactStore) -> None:
    """The fingerprint of this compiler by its stamp: its files are read once for all processes."""
    if "" in FINGERPRINT:
        return
    key = key_of("fingerprint", compiler_stamp())
    known = store.get(key)
    if known is None or not is_key(known.decode("ascii", "replace")):
        store.put(key, fingerprint().encode())
    else:
        FINGERPRINT.tell("", known.decode())


def _entry(module: Module, request: option.Request, found: str) -> str:
    """The store key of a module, or None if the request contains rules, passes, forms or operators
    of other packages, which have no digest."""
    pipeline = request.spelled
    traces = [(name, each) for name, each in request.schedules if isinstance(each, Trace)]
    if len(traces) < len(request.schedules):
        return ""
    named = all(isinstance(each, str) and each in OWN for each in request.wanted)
    if module.main is None or pipeline is None or not named or not request.backend.keeps():
        return ""
    if installed() or uses_foreign(module.values):
        return ""
    names = names_of(module.main_function())
    where = (
        f"{names} {selecting_names(module)} {request.wanted} {request.contract} "
        f"{request.threads} {request.target!r} {found} "
        f"{request.backend.facts()} {pipeline} {[(name, digest(trace)) for name, trace in traces]}"
    )
    with unobserved():
        told = digest(module)
    return key_of(f"{request.backend.name}-module", told, where, fingerprint())


def _reread(
    stored: archive.Piece, later: Callable[[], artefacts.CompilationRecord]
) -> artefacts.Artefact | None:
    """The artefact in a store entry, or None if the entry holds something else."""
    try:  # the store has compared digests
        return artefacts.from_members(archive.member_views(stored), later, checked=True)
    except ArtefactError:
        return None
