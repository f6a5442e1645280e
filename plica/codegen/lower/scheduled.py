"""Scheduled: a primitive function as one kernel, by whatever schedule a target chooses for it.

    Function --to_stages--> Stages --forms--> Stages --hoist--> Stages --trace--> Kernel

A kernel reads inputs of the function, and constants computed in advance. If no form applies, plain
loops are used. Selection is in `plica.codegen.lower.processor` for processors, in
`plica.codegen.cuda.scheduled` for GPUs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol, TypeAlias

from attrs import evolve, field, frozen

from plica.codegen.lower.passes import LoweredKernel, digest_of, lowered
from plica.codegen.lower.step import shown
from plica.codegen.program import KernelOrigin
from plica.core import CompilerBug, digest, substitute
from plica.core.deferred import unobserved
from plica.ir.contract import Contract, exact
from plica.ir.graph.expression import Const, Expr, Function, own_const
from plica.ir.graph.provenance import answered, derived_const
from plica.ir.loop import Buffer, Kernel, Scalar, ScalarVar, Stages, kernel_of
from plica.ir.passes import Pass
from plica.ir.type import dim, i32
from plica.rewrite.fuse.to_stages import to_stages
from plica.runtime.late import lazy_imports
from plica.schedule.default.machine import Machine
from plica.schedule.form import Facts
from plica.schedule.hoist import DoneBefore, PackedConstant, PackedConstants, constants, hoist
from plica.schedule.trace import Trace

with lazy_imports(__name__):  # kernels that are kept were scheduled elsewhere
    from plica.codegen.lower.chunk import ChunkRows, rows_of
    from plica.codegen.lower.nest import nest
    from plica.ir.interpret.array_arithmetic import Array
    from plica.schedule.collapse import collapsed


@frozen(eq=False)
class Scheduled:
    """A scheduled kernel with its digest, inputs, scratch memory and origin.

    `reads` gives for each input of the kernel the parameter of the function, or the buffer computed
    from constants.
    """

    kernel: Kernel
    digest: str
    reads: tuple[int | Buffer, ...]
    source: str
    origin: KernelOrigin | None = None
    hoisted: DoneBefore | None = None
    params: tuple[int, ...] = ()
    """The parameter of the function for each input of the constant computation."""
    passed_over: tuple[str, ...] = ()
    """Forms that promised more but could not be scheduled or lowered, and why."""
    given: Mapping[ScalarVar, Scalar] = field(factory=dict)
    """What dims of the kernel are that are none of the function, over those."""

    lowered: LoweredKernel | None = None
    """The kernel after the passes by which it was shown that it can be lowered."""

    @property
    def term(self) -> Kernel:
        """What tells it from others."""
        return self.kernel

    def lowered_by(self, passes: tuple[Pass, ...]) -> Kernel:
        """The kernel after some passes; kernels without schedules are already lowered."""
        if self.origin is None:
            return self.kernel
        if self.lowered is not None and self.lowered.passes == passes:
            return self.lowered.kernel
        return lowered(self.kernel, passes)

    @property
    def scratch(self) -> tuple[Buffer, ...]:
        """Memory of the launch, besides the result."""
        return self.kernel.params[self.kernel.inputs : -1]

    @property
    def sizes(self) -> tuple[Scalar, ...]:
        """The values of the kernel's dims over those of the function."""
        return tuple([self.given.get(each, each) for each in self.kernel.dims])

    def over_dims(self, of: Scalar) -> Scalar:
        """A size of the kernel, over the dims of the function."""
        scalar = substitute(of, dict(self.given))
        return dim(scalar)


@frozen(eq=False)
class ChosenSchedule:
    """A schedule that was found elsewhere, by tuning: the stages it begins with, and what it makes
    of those."""

    form: Stages
    trace: Trace
    kernel: Kernel


class Schedule(Protocol):
    """How a target schedules a function whose inputs are known so far."""

    def __call__(
        self, function: Function, facts: Facts, chosen: ChosenSchedule | None
    ) -> Scheduled: ...


Counts: TypeAlias = tuple[int, ...]  # how many rows are done at once, the most that are left

TunedBy: TypeAlias = Callable[[Function, Facts], ChosenSchedule | None]
"""The schedule that tuning found for a function whose inputs are known so far."""


def untuned(function: Function, facts: Facts) -> ChosenSchedule | None:
    """Nothing was found by tuning."""
    return None


@frozen(eq=False)
class Scheduler:
    """The basis of kernel selection: a target, the contract's permissions, and tuned schedules."""

    schedule: Schedule
    contract: Contract = exact
    tuned: TunedBy = untuned
    looks_at_bytes: bool = False
    """Whether it matters which constants hold numbers of 8 bits."""
    chunks: Callable[[ChunkRows], tuple[int, ...]] | None = None
    """The row counts of chunks for open rows; None if rows are not chunked."""
    takes_all: Callable[[Function, Facts], bool] = lambda function, facts: False
    """Whether a kernel of all rows, however many, does as well as kernels of some."""
    parts: Callable[[Sequence[int], int], int] = lambda sizes, size: 1
    """How many chunks of a size, of some, are done at once, and not one after another."""
    steps: Any = field(default=None, eq=False)  # Any: a `ScheduleSteps`, which stands on this file
    """The target's steps from groups to kernels; None for plain loops."""
    ready: Mapping[tuple[Function, Facts], Scheduled] = field(factory=dict)
    """Kernels that were made beforehand (`plica.codegen.lower.group`)."""

    def facts(self, function: Function, args: Sequence[Expr], parts: int = 1) -> Facts:
        """Facts about the inputs of a function's stages; the function may be one of several
        parts."""
        reads = [args[read] for read in to_stages(function).reads]
        found = facts_of(reads, self.contract, looks_at_bytes=self.looks_at_bytes)
        return found if parts == 1 else evolve(found, parts=parts)

    def rows(self, function: Function, args: Sequence[Expr]) -> tuple[ChunkRows | None, Counts]:
        """The rows of a function, and its chunk sizes; empty if it has no rows, or one kernel
        handles all."""
        if self.chunks is None or not to_stages(function).stages.dims:
            return None, ()
        if self.takes_all(function, self.facts(function, args)):
            return None, ()
        rows = rows_of(function)
        return rows, () if rows is None else self.chunks(rows)

    def __call__(self, function: Function, args: Sequence[Expr], parts: int = 1) -> Scheduled:
        """The kernel of a function on some arguments."""
        facts = self.facts(function, args, parts)
        made = self.ready.get((function, facts))
        return made or self.schedule(function, facts, self.chosen(function, facts))

    def chosen(self, function: Function, facts: Facts) -> ChosenSchedule | None:
        """What tuning found for a function."""
        # Tuned kernels have their own dims, with other names: only static ones are used.
        return None if to_stages(function).stages.dims else self.tuned(function, facts)


def facts_of(reads: Sequence[Expr], contract: Contract, *, looks_at_bytes: bool = False) -> Facts:
    """Facts about the inputs of stages: which are constants, and which of these hold bytes."""
    # A view of a constant has another shape than the kernel expects.
    constant = tuple([isinstance(read, Const) for read in reads])
    small: tuple[int, ...] = ()
    if looks_at_bytes:
        small = tuple([n for n, e in enumerate(reads) if isinstance(e, Const) and holds_bytes(e)])
    return Facts(constant, small, contract)


def holds_bytes(of: Const) -> bool:
    """Whether an i32 constant contains only 8-bit numbers."""
    return of.dtype is i32 and answered("are-bytes", (of,), lambda _: of.numpy())


def read_by(made: Scheduled, args: Sequence[Expr]) -> list[Expr]:
    """The inputs of a kernel, given its function's arguments; packing is evaluated here."""
    arrays: Mapping[Buffer, Array] = {}
    if made.hoisted is not None and made.hoisted.before:
        told = [shown(args[param]) for param in made.params]
        known_now = {n: e for n, e in enumerate(told) if isinstance(e, Const)}
        with unobserved():
            arrays = constants(made.hoisted, {n: each.elements for n, each in known_now.items()})
        before, inputs = made.hoisted.before, made.hoisted.inputs
        packed = PackedConstants(before, inputs, tuple(known_now), tuple(known_now.values()))
    exprs: list[Expr] = []
    for read in made.reads:
        if isinstance(read, int):
            exprs.append(args[read])
        elif read not in arrays:
            raise CompilerBug("A schedule packs what is not known before the program runs.")
        else:
            array = own_const(arrays[read], read.dtype)
            exprs.append(derived_const(PackedConstant(packed, read), array))
    return exprs


@lru_cache(maxsize=512)
def plain(function: Function, machine: Machine | None = None) -> Scheduled:
    """The plain loops of a function, for a machine that they ask about masks alone."""
    return of_kernel(function, nest(collapsed(to_stages(function).stages), machine=machine))


def of_kernel(function: Function, kernel: Kernel) -> Scheduled:
    """A kernel of all that a function does, for which nothing is made before."""
    whole = to_stages(function)
    return Scheduled(kernel, digest_of(kernel), whole.reads, whole.source)


def from_form(  # noqa: PLR0917  # what a candidate is
    function: Function,
    facts: Facts,
    form: Stages,
    trace: Trace,
    kernel: Kernel,
    names: tuple[str, str] = ("", ""),
) -> Scheduled:
    """A scheduled kernel with the constants its form needs; `names` are those of its form and
    template."""
    whole = to_stages(function)
    apart = hoist(form, facts.constant)
    reads = tuple([whole.reads[e] if isinstance(e, int) else e for e in apart.reads])
    origin = KernelOrigin(kernel_of(apart.rest), trace, *names)
    return Scheduled(kernel, digest(kernel), reads, whole.source, origin, apart, whole.reads)
