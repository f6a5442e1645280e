"""Compilation: a pipeline of passes from a module to code, run pass by pass.

    Module --graph, rules--> Module --schedule--> Program --lower--> Program --emit--> Artefact

    pipeline = LLVM's pipeline, edited or not
    lowered(pipeline, module, job)                 everything known before code is made
    emitted(pipeline, lowered(pipeline, module, job), job)

Laws: passes of a later kind never precede those of an earlier one (`check_pipeline`); instruments
and checks do not change the result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar, runtime_checkable

from attrs import evolve, field, frozen

from plica.codegen.lower.passes import LowerAll, LoweredKernel
from plica.codegen.lower.processor import processor
from plica.codegen.lower.scheduled import Scheduler, TunedBy, untuned
from plica.codegen.program import Program
from plica.codegen.workers import Workers
from plica.core import CompilerBug
from plica.ir.contract import Contract, fused, signless_zero
from plica.ir.driver import Checks, Instrument, check_contracts, drive
from plica.ir.graph.module import Module
from plica.ir.loop import Kernel, Scalar
from plica.ir.passes import KINDS, Kind, Pass, PassError, Pipeline, exact_pass
from plica.ir.type import infer
from plica.rewrite.derivation import Derivation
from plica.rewrite.history import History, begun
from plica.rewrite.rule_pass import Setting, advanced, through
from plica.runtime.error import Diagnostic, UnsupportedError
from plica.runtime.executable import Executable
from plica.runtime.extern import NONE, Externs
from plica.runtime.late import lazy_imports
from plica.runtime.record import CompilationRecord
from plica.runtime.store import ArtefactStore

with lazy_imports(__name__):
    from plica.codegen.choices import ChoiceRow
    from plica.codegen.given_trace import with_traces
    from plica.codegen.open_memory_plan import AnyPlan
    from plica.codegen.record import recorded
    from plica.ir.loop.need import needs

P = TypeVar("P")
L = TypeVar("L")


@frozen(eq=False)
class Chooser:
    """What chooses schedules by records of tuning, and tells these records from others."""

    digest: str
    choose: TunedBy
    """The schedule of one function; it depends on nothing else in a module."""
    explain: Callable[[Module], tuple[ChoiceRow, ...]]
    """The report rows of a module's kernels after fusion."""


@frozen(eq=False)
class Job(Setting):
    """The parameters of a pipeline run: contract and packs, the target and its schedule parameters.

    `chooser` returns the tuned schedules of kernels, `built` is called for each built kernel with
    its digest, and `versions` identify the compiler.
    """

    target: Any = None  # Any: a target is its backend's own
    machine: Any = None  # Any: as the backend describes a target to schedules
    schedules: Callable[[Any, Contract, TunedBy], Scheduler] = processor
    """How the kernels for a machine are chosen."""
    threads: int = 1
    store: ArtefactStore | None = None
    chooser: Chooser | None = None
    built: Callable[[str], object] | None = None
    native: Callable[[Module], Executable] | None = None
    """Compiles the parts that stay on this processor."""
    known: Any = None  # Any: what tuning found for a backend that has its own way to say it
    given: Mapping[str, Any] = field(factory=dict)  # Any: a schedule, as `given_trace` takes it
    """Schedules that were asked for, by the name of the kernel."""
    externs: Externs = NONE
    """Who serves the symbols that the program calls."""
    scheduled: Any = None  # Any: the groups that earlier passes scheduled, if they ran
    versions: tuple[tuple[str, str], ...] = ()
    workers: Workers | None = None
    """Worker processes that share the work."""
    compiler: str = ""
    """The identity of this compiler in store keys."""

    @property
    def scheduler(self) -> Scheduler:
        """What chooses the kernels."""
        tuned = untuned if self.chooser is None else self.chooser.choose
        return self.schedules(self.machine, self.contract, tuned)


@frozen
class GroupByGroup:
    """A pass that takes each fused group through several earlier passes, unless these are observed:
    groups are compiled here, by other processes, or cached."""

    run: Callable[[Module, Job], Program]
    over: tuple[Pass, ...] = ()

    def __call__(self, module: Module, job: Job) -> Program:
        """The program of a module."""
        return self.run(module, job)


@runtime_checkable
class KernelListener(Protocol):
    """An instrument that is called for every kernel built, with its digest."""

    def tell(self, key: str) -> None:
        """A kernel was built."""


@frozen
class Arranged(Generic[P, L]):
    """Everything known before native code is generated: a value, equal wherever it is computed."""

    module: Module
    derivation: Derivation
    program: P
    plan: L
    final: Module  # the module that was scheduled
    fused: bool = False  # whether `a * b + c` may be rounded once
    signless: bool = False  # whether a zero may have another sign
    asked: str = ""  # the contract within which rules were used
    packs: tuple[str, ...] = ()  # the names of the packs that were asked for
    chooser: Chooser | None = None  # what chose schedules by records of tuning
    lowering: tuple[str, ...] = ()  # the names of the passes over kernels

    @property
    def tuning(self) -> tuple[ChoiceRow, ...]:
        """Which kernels have a schedule of a tuning database, and why others have none."""
        return () if self.chooser is None else self.chooser.explain(self.final)


Lowered: TypeAlias = "Arranged[Program, AnyPlan]"  # a program without objects, and its memory plan


@frozen(eq=False)
class CompilationState:
    """The state of a pipeline: a module and its history, then groups of operators, a program, a
    plan, an artefact."""

    history: History
    groups: Any = None  # Any: groups of operators, as far as passes have brought them
    program: Any = None  # Any: of static programs or of dynamic ones, as the pipeline makes it
    plan: Any = None  # as above
    artefact: Any = None  # as above


def lowered(
    pipeline: Pipeline,
    module: Module,
    job: Job,
    instruments: Sequence[Instrument] = (),
    checks: Checks | None = None,
) -> Arranged[Any, Any]:  # Any: as the pipeline makes it
    """Runs a pipeline on a module up to code emission."""
    check_pipeline(pipeline)
    check_contracts(pipeline, job.contract)
    for instrument in instruments:
        if isinstance(instrument, KernelListener):
            job = evolve(job, built=instrument.tell)
    if instruments or checks is not None:  # who watches sees all that is made
        job = evolve(job, store=None, workers=None)
    state = CompilationState(begun(infer(module)))
    return arranged(
        _driven(pipeline.of(*BEFORE_CODE), state, job, instruments, checks), job, pipeline
    )


def emitted(
    pipeline: Pipeline,
    of: Arranged[Any, Any],  # Any: as the pipeline makes it
    job: Job,
    instruments: Sequence[Instrument] = (),
) -> Any:  # an artefact, as the pipeline makes it
    """Runs the last passes of a pipeline, from lowered code to the artefact."""
    state = CompilationState(History(of.final, of.derivation), None, of.program, of.plan)
    step = partial(_emit, of, job)
    return drive(pipeline.of("emit"), state, step, instruments).artefact


def grouped(pipeline: Pipeline, history: History, job: Setting) -> History:
    """The history of a module through the graph passes and rules of a pipeline: fused operators."""
    return through(pipeline.of("graph", "rules"), history, job)


def scheduled_from(
    pipeline: Pipeline, history: History, job: Job
) -> Arranged[Any, Any]:  # as above
    """Runs the rest of a pipeline on a module with fused operators."""
    rest = pipeline.of(*CANDIDATE_KINDS, "schedule", "lower", "plan")
    return arranged(_driven(rest, CompilationState(history), job, (), None), job, pipeline)


def arranged(
    state: CompilationState, job: Job, pipeline: Pipeline
) -> Arranged[Any, Any]:  # Any: as the pipeline makes it
    """The state before code is made, as a value."""
    source = state.history.derivation.source
    assert isinstance(source, Module)
    return Arranged(
        source,
        state.history.derivation,
        state.program,
        state.plan,
        state.history.module,
        fused=job.contract >= fused,
        signless=job.contract >= signless_zero,
        asked=str(job.contract),
        packs=tuple([pack.name for pack in job.packs]),
        chooser=job.chooser,
        lowering=pipeline.of("lower").names,
    )


def record(of: Lowered) -> CompilationRecord:
    """The record of a lowered module's code."""
    return recorded(of.derivation, of.final, of.program, of.asked, of.packs, of.lowering)


# --- checks of pipelines ------------------------------------------------------------------------

BEFORE_CODE: Final[tuple[Kind, ...]] = tuple(kind for kind in KINDS if kind != "emit")
CANDIDATE_KINDS: Final[tuple[Kind, ...]] = ("stages", "forms", "template")
"""The kinds of passes over groups of operators."""

NEEDED: Final[tuple[Kind, ...]] = ("schedule", "emit")
"""Without a pass of each of these kinds there is no code."""

_LEVEL: Final = {**{kind: level for level, kind in enumerate(KINDS)}, "graph": 0, "rules": 0}


def check_pipeline(pipeline: Pipeline) -> None:
    """Refuse a pipeline that leads nowhere, or on which a pass has nothing to work on yet."""
    wrong: list[Diagnostic] = []
    for one, other in zip(pipeline.passes, pipeline.passes[1:], strict=False):
        if _LEVEL[one.kind] > _LEVEL[other.kind]:
            message = f"The pass {other.name} ({other.kind}) comes after {one.name} ({one.kind})."
            expected = ", ".join(KINDS)
            hint = f"Insert it before {one.name!r}."
            wrong.append(Diagnostic("misplaced-pass", message, None, expected, other.kind, hint))
    kinds = {pass_.kind for pass_ in pipeline}
    for kind in NEEDED:
        if kind not in kinds:
            message = f"The pipeline holds no pass of the kind {kind}: it leads to no code."
            hint = "Begin with a target's own, plica.pipeline.pipeline_of('cpu'), and edit it."
            wrong.append(Diagnostic("missing-pass", message, None, kind, "none", hint))
    if wrong:
        raise PassError(wrong[0], *wrong[1:])


# --- the driver --------------------------------------------------------------------------------


def _driven(
    pipeline: Pipeline,
    state: CompilationState,
    job: Job,
    watchers: Sequence[Instrument],
    checks: Checks | None,
) -> CompilationState:
    if not watchers and checks is None:  # nobody looks at kernels between passes
        pipeline = _joined(_at_once(pipeline))
    return drive(pipeline, state, partial(_step, job), watchers, checks)


def _at_once(pipeline: Pipeline) -> Pipeline:
    """The pipeline without passes over groups that a later pass does itself, group by group."""
    over = pipeline.of(*CANDIDATE_KINDS)
    for pass_ in pipeline.of("schedule"):
        if isinstance(pass_.run, GroupByGroup) and pass_.run.over == over.passes:
            return pipeline.without(*over.names)
    return pipeline


def _joined(pipeline: Pipeline) -> Pipeline:
    """The pipeline with all passes over kernels as one, which remembers what it lowered."""
    if not (over := pipeline.of("lower").passes):
        return pipeline
    whole = exact_pass("lower", "All passes over kernels.", LowerAll(over), kind="lower")
    rest = [pass_ for pass_ in pipeline if pass_.kind != "lower"]
    at = sum(_LEVEL[pass_.kind] < _LEVEL["lower"] for pass_ in rest)
    return Pipeline((*rest[:at], whole, *rest[at:]))


def _step(job: Job, each: Pass, state: CompilationState) -> CompilationState:
    """The state after one pass."""
    match each.kind:
        case "graph" | "rules":
            history = advanced(each, state.history, job)
            return state if history is state.history else evolve(state, history=history)
        case "stages":
            return evolve(state, groups=each.run(state.history.module, job))
        case "forms" | "template":
            return evolve(state, groups=each.run(state.groups))
        case "schedule":
            module = state.history.module
            program = each.run(module, evolve(job, scheduled=state.groups))
            if isinstance(program, Program) and program.dims:
                program = evolve(program, needs=_needs(state.history))
            if job.given:
                program = _as_given(program, job)
            return evolve(state, program=program)
        case "lower":
            return _lowered(each, state)
        case "plan":
            made = each.run(state.program)
            if isinstance(made, Program):
                return evolve(state, program=made)
            return evolve(state, plan=made)
        case "emit":
            raise CompilerBug(f"The pass {each.name} emits code before there is a plan.")


def _as_given(program: Any, job: Job) -> Program:  # Any: as the pipeline makes it
    """The program with the schedules that were asked for."""
    if not isinstance(program, Program):
        message = "Programs with data and recursion, and accelerators, take no schedules by name."
        found = ", ".join(job.given)
        raise UnsupportedError(Diagnostic("unsupported", message, None, "no schedules", found))
    return with_traces(program, job.given)


def _needs(of: History) -> tuple[Scalar, ...]:
    """The requirements of a model on its open sizes; unknown for modules changed by rules."""
    source = of.derivation.source
    assert isinstance(source, Module)
    return needs(source)


def _emit(
    of: Arranged[Any, Any], job: Job, each: Pass, state: CompilationState
) -> CompilationState:
    return evolve(state, artefact=each.run(of, job))


def _lowered(each: Pass, state: CompilationState) -> CompilationState:
    """All kernels after a pass; kernels without schedules are already lowered."""
    program = state.program
    made = [
        kernel if origin is None else _lowered_kernel(each, kernel, program.lowered.get(kernel))
        for kernel, origin in zip(program.kernels, program.origins, strict=True)
    ]
    for kernel in made:
        if not isinstance(kernel, Kernel):
            raise CompilerBug(f"The pass {each.name} gave a {type(kernel).__name__}, no kernel.")
    if all(new is old for new, old in zip(made, program.kernels, strict=True)):
        return state
    return evolve(state, program=evolve(program, kernels=tuple(made)))


def _lowered_kernel(each: Pass, kernel: Kernel, known: LoweredKernel | None) -> Kernel:
    """A kernel after a pass; cached results are used after the last one."""
    if known is not None and isinstance(each.run, LowerAll) and each.run.passes == known.passes:
        return known.kernel
    made: Kernel = each.run(kernel)
    return made
