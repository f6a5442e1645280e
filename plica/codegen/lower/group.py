"""Precomputed groups: from the store, by other processes, or here, each once.

The result for a group (a fused function with facts about its arguments) depends on nothing else in
the model: its schedule and lowered kernel are stored under the digest of the group, the machine,
the compiler and the tuning records. So an edit of a model recompiles only the groups that contain
it, and several processes share the groups of one model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any, TypeAlias

from attrs import frozen

from plica.analysis.statement import LoweringRefused
from plica.codegen.backend import AnyTarget, backend_of
from plica.codegen.compilation import Job
from plica.codegen.lower.passes import LOWERED_DIGESTS, LoweredKernel, digest_of
from plica.codegen.lower.scheduled import ChosenSchedule, Scheduled, Scheduler, untuned
from plica.codegen.lower.step import launched
from plica.codegen.program import KernelOrigin, function_name
from plica.codegen.workers import Following, GroupTask, together
from plica.core import Malformed, Term, from_json, to_json
from plica.ir.contract import Contract, fused
from plica.ir.graph import Call, Expr, Function, Module
from plica.ir.loop import Buffer, Each, Kernel, Scalar, ScalarVar
from plica.ir.loop.invocation import TensorIntrinsic, intrinsics_of, register
from plica.ir.passes import Pass
from plica.rewrite.fuse.to_stages import alone, to_stages
from plica.runtime.error import PlicaError
from plica.runtime.late import lazy_imports
from plica.runtime.store import key_of
from plica.schedule.form import Facts, installed
from plica.schedule.trace import Trace

with lazy_imports(__name__):
    from plica.codegen.lower.chunk import chunk

Group: TypeAlias = tuple[Function, Facts]


@frozen(eq=False)
class KeptGroup(Term):
    """The lowered kernel of a group, its inputs, and the constants computed for it."""

    kernel: Kernel
    lowered: str
    """The digest of that, and below the one of the kernel before it was lowered."""
    digest: str
    reads: tuple[int | Buffer, ...]
    source: str
    params: tuple[int, ...]
    before: tuple[Each, ...]
    inputs: tuple[Buffer, ...]
    dims: tuple[ScalarVar, ...]
    """The kernel's dims that are not the function's, and their values."""
    sizes: tuple[Scalar, ...]
    passed_over: tuple[str, ...]
    intrinsics: tuple[TensorIntrinsic, ...]
    """The intrinsics the kernel invokes: another process may have declared them during lowering."""


@frozen(eq=False)
class KeptTrace(Term):
    """Where the schedule of a group begins, the schedule, and what made both."""

    start: Kernel
    trace: Trace
    form: str
    template: str


class KeptOrigin(KernelOrigin):
    """The stored origin of a kernel, parsed on demand."""

    __slots__ = ("_data",)
    _data: bytes

    def __init__(self, data: bytes) -> None:
        object.__setattr__(self, "_data", data)

    @property
    def kernel(self) -> Kernel:
        """The kernel before it was scheduled."""
        return self._read().start

    @property
    def trace(self) -> Trace:
        """How it was scheduled."""
        return self._read().trace

    @property
    def form(self) -> str:
        """The form that made the stages."""
        return self._read().form

    @property
    def template(self) -> str:
        """The template that made the trace."""
        return self._read().template

    def _read(self) -> KeptTrace:
        primitives = import_module("plica.schedule.primitive")
        for word in primitives.__all__:
            getattr(primitives, word)  # its file declares a step that a trace may have
        found = from_json(self._data, own=True)
        assert isinstance(found, KeptTrace)
        return found


def ready(module: Module, job: Job) -> Mapping[Group, Scheduled]:
    """The groups of a module as scheduled kernels; empty where something of others has a say."""
    if job.target is None or (job.store is None and job.workers is None):
        return {}
    if job.schedules != backend_of(job.target).scheduler or installed():
        return {}
    groups = _ReadyGroups(module, job)
    together(groups.tasks, groups.here, groups.there, job.workers)
    return groups.found


class _ReadyGroups:
    """The groups of a module computed so far: from the store, here, or elsewhere."""

    def __init__(self, module: Module, job: Job) -> None:
        assert job.target is not None
        backend = backend_of(job.target)
        self.job, self.scheduler = job, job.scheduler
        self.passes, self.ahead = backend.lowering.passes, backend.ahead
        self.found: dict[Group, Scheduled] = {}
        self.missing: list[tuple[Group, str]] = []
        for group in groups_of(module, self.scheduler):
            self._look_up(group)
        self.tasks = [self._task(group) for group, _ in self.missing]

    def _look_up(self, group: Group) -> None:
        """Take a group from the store, or note that it is missing."""
        known, key = None, ""
        if self.job.store is not None:
            key = _key(*group, self.job)
            again = partial(_made_again, self.scheduler, self.passes, *group)
            data = self.job.store.found(key, again, to_stages(group[0]).source)
            known = None if data is None else _read(data, self.passes)
        if known is None:
            self.missing.append((group, key))
        else:
            self.found[group] = known

    def _task(self, group: Group) -> GroupTask:
        """The task that computes a group; its code may follow."""
        job, chosen = self.job, self.scheduler.chosen(*group)
        args = job.target, job.machine, job.contract, *group, chosen
        then = None if self.ahead is None or job.given else partial(self._code, group)
        return GroupTask(to_stages(group[0]).source, made, args, then)

    def _code(self, group: Group, data: bytes) -> Following:
        """The task that compiles a group's code: priority by kernel size."""
        args = self.job.target, self.job.contract >= fused, data
        task = GroupTask(to_stages(group[0]).source, code_of, args)
        return Following(task, partial(self._keep_code, group), len(data))

    def _keep_code(self, group: Group, code: bytes) -> None:
        if self.ahead is not None and (known := self.found.get(group)) is not None:
            self.ahead.keep(known.lowered_by(self.passes), code)

    def here(self, number: int) -> bytes | None:
        """Make a missing group in this process."""
        group, key = self.missing[number]
        try:
            scheduled = self.scheduler.schedule(*group, self.scheduler.chosen(*group))
            self.found[group] = scheduled
            if self.job.store is None and self.tasks[number].then is None:
                return None
            data = _written(scheduled, self.passes)
            self._keep(key, data)
            return data
        except (PlicaError, LoweringRefused):
            return None  # whoever asks for this group is told, and why

    def there(self, number: int, data: bytes) -> None:
        """Take a missing group that another process made."""
        group, key = self.missing[number]
        if (known := _read(data, self.passes)) is None:
            self.here(number)
            return
        self.found[group] = known
        self._keep(key, data)

    def _keep(self, key: str, data: bytes) -> None:
        if self.job.store is not None:
            self.job.store.put(key, data)


def made(  # noqa: PLR0917  # a process is given all of it
    target: AnyTarget,
    machine: Any,  # Any: as the backend describes a target to schedules
    contract: Contract,
    function: Function,
    facts: Facts,
    chosen: ChosenSchedule | None = None,
) -> bytes:
    """A group in stored form, computed from the group and its tuning records alone."""
    backend = backend_of(target)
    scheduler = backend.scheduler(machine, contract, untuned)
    return _written(scheduler.schedule(function, facts, chosen), backend.lowering.passes)


def code_of(target: AnyTarget, fusing: bool, data: bytes) -> bytes:
    """The code of a stored group, for a backend that compiles ahead."""
    backend = backend_of(target)
    kept = _read(data, backend.lowering.passes)
    if backend.ahead is None or kept is None:
        return b""
    name = function_name(kept.source, kept.digest)
    return backend.ahead.make(kept.kernel, name, kept.source, target, fusing)


def _made_again(
    scheduler: Scheduler, passes: tuple[Pass, ...], function: Function, facts: Facts
) -> bytes:
    chosen = scheduler.chosen(function, facts)
    return _written(scheduler.schedule(function, facts, chosen), passes)


def groups_of(module: Module, scheduler: Scheduler) -> Sequence[Group]:
    """The groups that a program of a module will launch, each once, in order."""
    found: dict[Group, None] = {}
    for step in launched(module.main_function().body):
        function, args = _called(step)
        for each, parts in _sizes(function, args, scheduler):
            found[each, scheduler.facts(each, args, parts)] = None
    return tuple(found)


def _called(step: Expr) -> tuple[Function, Sequence[Expr]]:
    if not isinstance(step, Call):
        return alone(step)
    assert isinstance(step.callee, Function)
    return step.callee, step.args


def _sizes(
    function: Function, args: Sequence[Expr], scheduler: Scheduler
) -> Sequence[tuple[Function, int]]:
    """A function, or where rows go in chunks those for each size of a chunk, and of how many that
    are done at once each is one."""
    rows, sizes = scheduler.rows(function, args)
    if rows is None or not sizes:
        return ((function, 1),)
    return [(chunk(rows, size), scheduler.parts(sizes, size)) for size in sizes]


def _key(function: Function, facts: Facts, job: Job) -> str:
    """The store key of a group, including names, which texts of kernels show."""
    known = f"{facts.constant} {facts.fits_i8} {facts.contract} {facts.parts}"
    tuned = "" if job.chooser is None else job.chooser.digest
    return key_of("group", to_json(function), known, repr(job.target), repr(job.machine),
                  str(job.contract), job.compiler, tuned)  # fmt: skip


def _written(of: Scheduled, passes: tuple[Pass, ...]) -> bytes:
    """A group as two lines: the part every compilation reads, and its origin."""
    apart, origin = of.hoisted, of.origin
    kernel = of.lowered_by(passes)
    kept = KeptGroup(
        kernel,
        digest_of(kernel),
        of.digest,
        of.reads,
        of.source,
        of.params,
        () if apart is None else apart.before,
        () if apart is None else apart.inputs,
        tuple(of.given),
        tuple(of.given.values()),
        of.passed_over,
        intrinsics_of(kernel),
    )
    lines = [to_json(kept)]
    if origin is not None:
        kept_trace = KeptTrace(origin.kernel, origin.trace, origin.form, origin.template)
        lines.append(to_json(kept_trace))
    return "\n".join(lines).encode()


def _read(data: bytes, passes: tuple[Pass, ...]) -> Scheduled | None:
    """A stored group, or None if the entry holds something else."""
    line, _, rest = data.partition(b"\n")
    try:
        kept = from_json(line, own=True)  # the store compares digests
    except Malformed:
        return None
    if not isinstance(kept, KeptGroup):
        return None
    for intrinsic in kept.intrinsics:
        register(intrinsic)
    LOWERED_DIGESTS[kept.kernel] = kept.lowered
    return Scheduled(
        kept.kernel, kept.digest, kept.reads, kept.source, KeptOrigin(rest) if rest else None,
        kept, kept.params, kept.passed_over, dict(zip(kept.dims, kept.sizes, strict=True)),
        LoweredKernel(kept.kernel, passes),
    )  # fmt: skip
