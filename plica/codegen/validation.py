"""Translation validation: each kernel of a compiled program held to its stages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import cycle
from typing import Final

import numpy as np
from attrs import frozen

from plica.codegen.lower.chunk import chunk, rows_of
from plica.codegen.lower.scheduled import Scheduled, Scheduler
from plica.codegen.lower.step import shown
from plica.codegen.native import Entry, NativeKernel, shape_of
from plica.codegen.program import Chunks, Launch, Program, kernel_name, launches
from plica.core import CompilerBug, Term, digest, substitute
from plica.ir.contract import APPROX, Contract, exact, signless_zero
from plica.ir.graph.expression import Call, Const, Expr, Function
from plica.ir.interpret.kernel import run_kernel
from plica.ir.interpret.value import Array
from plica.ir.loop import Buffer, Each, Kernel, Le, Scalar, Stages, index, kernel_of
from plica.ir.loop.need import needs_in
from plica.ir.loop.specialise import specialise
from plica.ir.loop.stages import evaluate_stages
from plica.ir.passes import Pass
from plica.ir.type import DType, evaluate as size_of
from plica.rewrite.fuse.to_stages import alone, to_stages
from plica.runtime.error import Diagnostic, EvaluationError, Place, PlicaError
from plica.runtime.guard import SIDES, Side
from plica.runtime.process import Died, apart, can_part
from plica.schedule.certified import certified, counts_narrowly
from plica.schedule.hoist import Hoisted, constants
from plica.schedule.problem import ScheduleRefused
from plica.schedule.replay import scheduled as replayed
from plica.schedule.trace_contract import trace_contract
from plica.schedule.unlowered import run_unlowered

SAMPLES: Final = 2  # how many inputs each kernel is tried on
MAX_INTERPRETED: Final = 1 << 20
"""Elements of the result up to which a kernel for another machine is interpreted."""

UNITS: Final = 512
"""How many units in the last place of the greatest number a result may be off by, where sums may be
taken in another order."""

MAX_TIE_FRACTION: Final = 0.01
"""The share of whole numbers, made of floats that may be off, that may fall to the other side."""


class ValidationFailed(PlicaError):
    """A kernel does not do what its stages say."""


@frozen
class ValidatedKernel:
    """What was shown of one kernel: inputs tried, accesses proved, and what stayed open."""

    name: str
    samples: int
    proved: int
    open: tuple[str, ...] = ()
    unrun: str = ""  # why it was not tried, where it was not


@frozen(eq=False)
class LaunchedKernel:
    """A kernel of a program, the function that it computes, and what it is called on."""

    number: int
    function: Function
    args: tuple[Expr, ...]
    made: Scheduled

    @property
    def stages(self) -> Stages:
        return to_stages(self.function).stages


@frozen(eq=False)
class Bench:
    """What validation runs with: the contract, the passes of the pipeline, and what makes code
    here."""

    contract: Contract
    fused: bool
    passes: tuple[Pass, ...]
    entry: Entry | None
    seed: int = 0

    def difference(self, case: LaunchedKernel, sample: KernelSample, got: Array) -> str | None:
        """How a result differs from what is meant by more than the contract allows."""
        of_floats = any(buffer.dtype.is_float for buffer in case.stages.inputs)
        return difference(got, sample.meant, self.contract, of_floats)


def cases(program: Program, scheduler: Scheduler) -> Iterator[LaunchedKernel]:
    """Every kernel of a program once, with the function that it is launched for."""
    seen: set[int] = set()
    for launch in launches(program):
        if launch.term is None or launch.calls:  # what somebody wrote means what it says
            continue
        for number, function, args in _functions(launch, launch.term):
            if number not in seen:
                seen.add(number)
                yield LaunchedKernel(number, function, tuple(args), scheduler(function, args))


def _functions(launch: Launch, term: Expr) -> Iterator[tuple[int, Function, Sequence[Expr]]]:
    function, args = (term.callee, term.args) if isinstance(term, Call) else alone(term)
    assert isinstance(function, Function)
    if not isinstance(launch, Chunks):
        yield launch.kernel, function, args
        return
    rows = rows_of(function)
    assert rows is not None  # it was cut into chunks
    for piece in launch.pieces:
        yield piece.kernel, chunk(rows, piece.size), args


def validated(program: Program, scheduler: Scheduler, bench: Bench) -> tuple[ValidatedKernel, ...]:
    """What is shown of every kernel; raises `ValidationFailed` with all that is wrong."""
    kernels: list[ValidatedKernel] = []
    wrong: list[Diagnostic] = []
    for case in cases(program, scheduler):
        name = kernel_name(case.number, program)
        kernel = program.kernels[case.number]
        narrow = counts_narrowly(case.made.kernel)
        bounds = None if narrow else certified(case.made.kernel, _checked(case))
        for problem in () if bounds is None else bounds.wrong:
            wrong.append(_wrong(name, f"An access leaves its buffer: {problem}."))
        if (retraced := _retraced(case, bench.contract)) is not None:
            wrong.append(_wrong(name, retraced))
        tried, unrun = 0, ""
        for number in range(SAMPLES):
            if isinstance(said := _tried(case, kernel, bench, bench.seed + number), Diagnostic):
                wrong.append(_placed(said, name))
                break
            if said:
                unrun = said
                break
            tried += 1
        proved = 0 if bounds is None else bounds.proved
        kernels.append(
            ValidatedKernel(name, tried, proved, () if bounds is None else bounds.open, unrun)
        )
    if wrong:
        raise ValidationFailed(wrong[0], *wrong[1:])
    return tuple(kernels)


def _checked(case: LaunchedKernel) -> tuple[Scalar, ...]:
    """What is known of the dims of a kernel: sizes that it does not fit are refused before it."""
    own: dict[Term, Term] = {case.made.given.get(dim, dim): dim for dim in case.made.kernel.dims}
    dims = frozenset[Term](case.stages.dims)
    scalars = [substitute(least, own) for least in needs_in(case.function.body, dims)]
    return tuple([Le(index(0), scalar) for scalar in scalars])


def _placed(of: Diagnostic, kernel: str) -> Diagnostic:
    return Diagnostic(of.code, of.message, Place(node=kernel), of.expected, of.found, of.suggestion)


def _wrong(name: str, message: str) -> Diagnostic:
    return Diagnostic("wrong-kernel", message, Place(node=name))


def _retraced(case: LaunchedKernel, contract: Contract) -> str | None:
    """What is wrong with the trace of a kernel: it must make the kernel of what it begins with, by
    steps that keep the contract."""
    if (origin := case.made.origin) is None:
        return None
    try:
        again = replayed(origin.trace, origin.kernel)
    except ScheduleRefused as error:
        return f"Its trace is refused: {error.diagnostics[0].message}"
    if digest(again) != case.made.digest:
        return "Its trace, taken again, makes another kernel."
    kept = trace_contract(origin.trace, origin.kernel)
    if not kept <= contract:
        return f"The steps of its trace keep {kept}, and {contract} was asked for."
    return None


# --- trying it ------------------------------------------------------------------------------------


@frozen(eq=False)
class KernelSample:
    """Inputs of stages and sizes of their dims, what the kernel reads, and what must come out."""

    arrays: tuple[Array, ...]
    sizes: Mapping[Term, int]
    reads: tuple[Array, ...]
    meant: Array


def _tried(case: LaunchedKernel, kernel: Kernel, bench: Bench, seed: int) -> Diagnostic | str:
    """What is wrong with the code on one sample; a reason where it cannot be tried, or nothing."""
    if (sample := sampled(case, seed)) is None:
        return "its stages have no value on what was drawn"
    own = zip(kernel.dims, case.made.kernel.dims, strict=True)  # it may be another's but for names
    at = specialise(kernel, {mine: sample.sizes[theirs] for mine, theirs in own})
    if bench.entry is None and sample.meant.size > MAX_INTERPRETED:
        return "it is for another machine, and too large to be interpreted"
    if bench.entry is None:
        got = _interpreted(at, sample)
    else:
        got = _run(at, bench.entry, bench.fused, sample, SIDES[seed % len(SIDES)])
    wrong = got if isinstance(got, str) else bench.difference(case, sample, got)
    return "" if wrong is None else _differing(case, kernel, bench, sample, wrong)


def _run(
    kernel: Kernel, entry: Entry, fused: bool, sample: KernelSample, side: Side
) -> Array | str:
    """What native code writes last, its arrays beside memory that is not there; or how it ends.

    It runs in a process of its own, where there can be one.
    """

    def work() -> bytes:
        return NativeKernel(kernel, fused, entry=entry)(sample.reads, side)[-1].tobytes()

    try:
        said = apart(work) if can_part() else work()
    except (EvaluationError, CompilerBug) as error:
        return str(error)
    if isinstance(said, Died):
        return f"it ends with {said.how}: {(str(said).strip().splitlines() or [''])[-1]}"
    return np.frombuffer(said, kernel.params[-1].dtype.numpy)


def sampled(case: LaunchedKernel, seed: int) -> KernelSample | None:
    """Inputs drawn by a seed, None where the stages have no value on any of a few."""
    whole = case.stages
    reads = to_stages(case.function).reads
    for attempt in range(3):
        random = np.random.default_rng((seed, attempt))
        sizes: dict[Term, int] = dict(
            zip(whole.dims, cycle((*_SIZES[seed % 3 :], *_SIZES)), strict=False)
        )
        drawn: dict[int, Array] = {}
        for buffer, read in zip(whole.inputs, reads, strict=True):
            told = shown(case.args[read])
            shape = [size_of(size, sizes) for size in buffer.shape]
            if None in shape:
                return None
            if isinstance(told, Const):
                drawn[read] = np.reshape(told.numpy(), shape)
            elif read not in drawn:  # a parameter may be several inputs
                drawn[read] = _drawn(random, shape, buffer.dtype, attempt)
        arrays = [drawn[read] for read in reads]
        try:
            meant = np.asarray(_meaning(whole, arrays, sizes))
        except EvaluationError:
            continue  # an index that was drawn is outside: smaller ones are drawn next
        sizes |= {var: size_of(scalar, sizes) or 0 for var, scalar in case.made.given.items()}
        return KernelSample(tuple(arrays), sizes, _given(case, arrays, sizes), meant)
    return None


def _meaning(of: Stages, arrays: Sequence[Array], sizes: Mapping[Term, int]) -> Array:
    """What stages result in; what has loops of its own is interpreted as a kernel."""
    if all(isinstance(stage, Each) for stage in of.stages):
        return evaluate_stages(of, arrays, sizes)
    return run_kernel(kernel_of(of), arrays, sizes)[-1]


_SIZES: Final = (5, 3, 7, 2, 9, 4, 6, 8, 11, 10, 13, 12)
"""Open sizes, all different: two that are taken for one another are seen."""


def _drawn(
    random: np.random.Generator, shape: Sequence[int | None], dtype: DType, attempt: int
) -> Array:
    size = tuple([each for each in shape if each is not None])
    if dtype.is_float:
        drawn: Array = random.standard_normal(size).astype(dtype.numpy)
    elif dtype.numpy.kind == "b":
        drawn = random.integers(0, 2, size).astype(bool)
    else:
        drawn = random.integers(0, 3 - attempt, size).astype(dtype.numpy)
    return drawn


def _given(
    case: LaunchedKernel, arrays: Sequence[Array], sizes: Mapping[Term, int]
) -> tuple[Array, ...]:
    """What the kernel reads: some inputs, and what is made of constants."""
    made = case.made
    apart: Mapping[Buffer, Array] = {}
    by_param = dict(zip(to_stages(case.function).reads, arrays, strict=True))
    if made.hoisted is not None and made.hoisted.before:
        told = [shown(case.args[param]) for param in made.params]
        known = {n: e.numpy() for n, e in enumerate(told) if isinstance(e, Const)}
        apart = constants(made.hoisted, known)
    found: list[Array] = []
    for read, buffer in zip(made.reads, made.kernel.params, strict=False):
        array = by_param[read] if isinstance(read, int) else apart[read]
        shape = [size_of(size, sizes) for size in buffer.shape]
        found.append(np.reshape(array, [each for each in shape if each is not None]))
    return tuple(found)


def difference(got: Array, meant: Array, contract: Contract, of_floats: bool) -> str | None:
    """How a result differs from what is meant by more than a contract allows."""
    if got.size != meant.size or got.dtype != meant.dtype:
        return f"it is {got.shape} of {got.dtype} instead of {meant.shape} of {meant.dtype}"
    flat = got.reshape(meant.shape)
    far = flat != meant
    if meant.dtype.kind == "f":
        if contract is exact:
            far |= np.signbit(flat) != np.signbit(meant)
        far &= ~(np.isnan(flat) & np.isnan(meant))
    if signless_zero < contract and far.any():
        if meant.dtype.kind not in "iub":
            far &= ~_near(flat, meant, contract)
        elif of_floats and far.mean() <= MAX_TIE_FRACTION:
            return None
    if not far.any():
        return None
    at = tuple([int(each) for each in np.argwhere(far)[0]])
    return f"the element {list(at)} is {flat[at]} instead of {meant[at]}"


def _near(got: Array, meant: Array, contract: Contract) -> Array:
    """Where two results are as near as a contract asks, in max-norm."""
    wide = np.float64
    finite = np.isfinite(meant)
    about = float(np.abs(meant[finite].astype(wide)).max(initial=0.0))
    eps = float(np.finfo(meant.dtype).eps) if meant.dtype.kind == "f" else 2.0**-8
    room = max(contract.rel if contract.level == APPROX else 0.0, UNITS * eps) * max(about, eps)
    with np.errstate(invalid="ignore", over="ignore"):
        return np.asarray(np.abs(got.astype(wide) - meant.astype(wide)) <= room)


# --- whom to blame --------------------------------------------------------------------------------


def _differing(
    case: LaunchedKernel, kernel: Kernel, bench: Bench, sample: KernelSample, how: str
) -> Diagnostic:
    blamed = _blamed(case, kernel, bench, sample)
    message = f"The code of a kernel is not what its stages say; {blamed} is to blame."
    hint = "This is a mistake of the compiler: please report it with the model."
    return Diagnostic("wrong-kernel", message, None, str(case.stages), how, hint)


def _blamed(case: LaunchedKernel, kernel: Kernel, bench: Bench, sample: KernelSample) -> str:
    """The first step after which the interpreter gives something else; the emitter after none."""

    def is_wrong(got: Array | str) -> bool:
        return isinstance(got, str) or bench.difference(case, sample, got) is not None

    hoisted, made = case.made.hoisted, case.made.kernel
    rest = hoisted.rest if isinstance(hoisted, Hoisted) else None
    if rest is not None and is_wrong(_meaning(rest, sample.reads, sample.sizes)):
        return "the form of its stages"
    if is_wrong(_interpreted(specialise(made, sample.sizes), sample)):
        return "the trace of its schedule"
    for pass_ in bench.passes if case.made.origin is not None else ():
        made = pass_.run(made)
        if is_wrong(_interpreted(specialise(made, sample.sizes), sample)):
            return f"the lowering pass {pass_.name}"
    if digest(made) != digest(kernel):
        return "whoever lowered it: the passes make another kernel"
    return "the emitter of its code"


def _interpreted(kernel: Kernel, sample: KernelSample) -> Array | str:
    """What a kernel writes last, or why it cannot."""
    params = kernel.params[: kernel.inputs]
    try:
        reads = [np.reshape(a, shape_of(b)) for a, b in zip(sample.reads, params, strict=True)]
        return run_unlowered(kernel, reads)[-1]
    except EvaluationError as error:
        return error.diagnostics[0].message
