"""Fuzzing of code for GPUs: random kernels with random schedules compute what they mean.

A case is a random kernel, a random schedule of it, and the interpreter's result:

    walk        random steps, those that bind loops to threads more often
    thumb       what rules of thumb do for a small GPU
    product     a matrix product or a convolution of f32, f16 or bf16 in small tiles
    form        a fused function by one of the forms that a GPU's own schedules reach
    fused       a fused function by random steps

Cases are generated anywhere; `on_gpu` runs one on the GPU, in poisoned memory. Integers must be
exact, and floats within rounding.

>>> isinstance(case(0, 1), CudaCase)
True
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from attrs import evolve, frozen

from plica.codegen.cuda.fold import KernelCode, fold
from plica.codegen.cuda.fuzz_stages import StagesOnGpu, formed, plain_loops
from plica.codegen.cuda.limit import check
from plica.codegen.cuda.scheduled import threaded
from plica.codegen.cuda.toolchain import compiled
from plica.codegen.lower.passes import lower
from plica.codegen.native import shape_of
from plica.codegen.subject import FuzzSubject, margins, meaning
from plica.core import CompilerBug, Term
from plica.ir.interpret.value import Array
from plica.ir.loop.define import defined
from plica.ir.loop.scalar import Cast, Max, Scalar, dtype_of
from plica.ir.loop.specialise import specialise
from plica.ir.loop.stage import stage
from plica.ir.loop.stages import Stages, kernel_of, stages
from plica.ir.loop.statement import Kernel
from plica.ir.loop.tensor import Compute, buffer, compute, reduce
from plica.ir.loop.verify import well_formed
from plica.ir.type import DType, bf16, f16, f32
from plica.rewrite.check.report import as_comment
from plica.rewrite.fuzz.driver import ByNumber, Campaign, Say, Skipped, Tally
from plica.rewrite.fuzz.report import SKIPPED, Finding, FuzzReport
from plica.runtime.cuda.code import suited
from plica.runtime.cuda.driver import WORD_BYTES, CudaDevice, DeviceError, device
from plica.runtime.error import EvaluationError, PlicaError
from plica.schedule.default.gpu import Gpu
from plica.schedule.default.gpu.form import tiled
from plica.schedule.default.gpu.operand import operands
from plica.schedule.default.gpu.product import ProductTile
from plica.schedule.default.gpu.template import product_schedule, tensor_core_schedule
from plica.schedule.default.gpu.tensor_core import Warps
from plica.schedule.generate.argument import Here, NoArgument
from plica.schedule.generate.kernel import random_case
from plica.schedule.generate.step import random_step, walk
from plica.schedule.instruction import kinds
from plica.schedule.problem import Problem
from plica.schedule.replay import begin, taken
from plica.schedule.trace import Step, Trace

KINDS: Final = ("walk", "thumb", "product", "form", "fused")

BY_STEPS: Final = ("walk", "fused")
"""Kinds whose schedules may request something that no pass supports."""

FOCUS: Final = ("bind", "split", "fuse", "reorder", "cache_read", "cache_write", "vectorize")
"""Steps that matter most to code for threads."""

WARPS: Final = (Warps(2, 2, 2, 4, 2), Warps(2, 2, 2, 4, 2, ahead=3), Warps(2, 2, 4, 4, 2))
"""Tiles of warps for small matrices."""

TILES: Final = (
    ProductTile(16, 16, 4, 2, 2),
    ProductTile(16, 16, 4, 2, 4),
    ProductTile(32, 16, 8, 2, 4, ahead=1),
    ProductTile(16, 32, 8, 4, 4, ahead=1),
    ProductTile(32, 32, 4, 4, 4),
    ProductTile(32, 32, 16, 4, 4, ahead=1),
)
"""Tiles for small matrices."""

FAULT: Final = "fault"  # the kind of finding after which a GPU does nothing more
MAX_TRIES: Final = 3  # how many cases are drawn for each that runs, at most
REFUSED: Final = "lowering refuses it"  # the prefix of the reason if no pass supports a trace
_NAMED: Final = re.compile("'[^']*'")  # names, which say nothing about a reason
BINDS: Final = 16  # how often a loop is tried to be bound to threads, after other steps
POISONS: Final = (0xFF, 0x4B)
"""Poison bytes for unwritten memory: NaN, which spoils sums, and large numbers, which spoil
extremes."""

GUARD_BYTES: Final = 64  # guard bytes behind every array
NO_CODE: Final = KernelCode("", (), ())


@frozen(eq=False)
class CudaCase:
    """A scheduled kernel, its code, what that reads and must write, and by how much it may
    differ."""

    made: Kernel
    fused: bool
    inputs: tuple[Array, ...]
    expected: tuple[Array, ...]
    margins: tuple[Array | None, ...]
    """By how much each result may differ; None for one that does not matter."""
    trace: str
    kernel: str
    code: KernelCode = NO_CODE
    number: int = 0
    kind: str = ""


Runner: TypeAlias = Callable[[CudaCase], "Sequence[Array] | str"]
"""The output of a case, or why it failed."""


def case(seed: int, number: int, length: int = 6) -> CudaCase | str:
    """The case of a number, or why there is none; deterministic."""
    random = Random(f"cuda/{seed}/{number}")
    kind = KINDS[number % len(KINDS)]
    match kind:
        case "walk":
            drawn: CudaCase | str = _with_meaning(_walked(random, length))
        case "thumb":
            drawn = _with_meaning(_by_thumb(random))
        case "form":
            drawn = _of_stages(formed(seed, number, random), random)
        case "fused":
            drawn = _fused(seed, number, random, length)
        case _:
            drawn = _with_meaning(_product(random))
    if isinstance(drawn, str):
        return drawn
    try:
        code = fold(lower(drawn.made, "gpu"), "fuzzed")
        check(code.launches, Gpu(), "fuzzed")
    except PlicaError as error:  # the trace asks for what no pass can make
        return f"{REFUSED}: {_NAMED.sub('a', error.diagnostics[0].message)}"
    return evolve(drawn, code=code, number=number, kind=kind)


def _with_meaning(drawn: tuple[FuzzSubject, Kernel] | str) -> CudaCase | str:
    """The drawn kernel with the interpreter's result."""
    if isinstance(drawn, str):
        return drawn
    of, kernel = drawn
    try:
        expected = tuple(meaning(of.kernel, of.arrays))
    except EvaluationError as error:
        return f"the kernel has no value: {error.code}"
    return CudaCase(
        kernel, of.fused, of.arrays, expected, margins(of, expected), of.trace.to_python(),
        str(of.kernel),
    )  # fmt: skip


def _of_stages(of: StagesOnGpu | str, random: Random) -> CudaCase | str:
    if isinstance(of, str):
        return of
    expected = of.expected
    return CudaCase(
        of.kernel, random.random() < 0.5, of.arrays, expected, of.margins(expected),
        of.trace.to_python(), str(of),
    )  # fmt: skip


def _fused(seed: int, number: int, random: Random, length: int) -> CudaCase | str:
    if isinstance(plain := plain_loops(seed, number, random), str):
        return plain
    drawn, kernel = plain
    if isinstance(found := _bound(kernel, random, length), str):
        return found
    steps, made = found
    on_threads = StagesOnGpu(drawn, made, Trace(steps), "loops", tuple(drawn.arrays))
    return _of_stages(on_threads, random)


def _walked(random: Random, length: int) -> tuple[FuzzSubject, Kernel] | str:
    drawn = random_case(random)
    sizes: dict[Term, int] = dict(drawn.sizes.items())
    kernel = specialise(drawn.kernel, sizes)
    if well_formed(kernel):  # the sides of an operation may have different dtypes
        return "the kernel is ill formed"
    if isinstance(found := _bound(kernel, random, length), str):
        return found
    steps, made = found
    return FuzzSubject(kernel, drawn.arrays, Trace(steps), random.random() < 0.5), made


def _bound(kernel: Kernel, random: Random, length: int) -> tuple[tuple[Step, ...], Kernel] | str:
    """Random steps, then loops bound to threads; and the kernel that they make."""
    steps = list(walk(kernel, random, length, FOCUS)[0])
    state = begin(kernel)
    for step in steps:
        if isinstance(after := taken(state, step), Problem):
            return "the schedule is refused"
        state = after
    for _ in range(BINDS):
        try:
            binding = Step(random_step(Here(state, random), kinds()["bind"]))
        except NoArgument:
            break
        after = taken(state, binding)
        if not isinstance(after, Problem):
            steps.append(binding)
            state = after
    return tuple(steps), state.kernel


def _by_thumb(random: Random) -> tuple[FuzzSubject, Kernel] | str:
    of = _chain(random)
    plain = defined(of)
    gpu = Gpu(processors=4, warp=random.choice((4, 32)), threads=random.choice((8, 64, 256)))
    if (found := threaded(plain, gpu)) is None:
        return "no rule of thumb schedules it"
    return FuzzSubject(plain, _values(plain, random), found[0], random.random() < 0.5), found[1]


def _chain(random: Random) -> Compute:
    """Some elements of two tensors, one of which is repeated, or sums of many such."""
    axes = random.randrange(1, 4)
    shape = tuple([random.choice((1, 3, 4, 7, 8, 16, 33)) for _ in range(axes)])
    terms = random.choice((0, 0, 1, 5, 130, 200))
    keeps = [random.random() < 0.6 for _ in shape]
    more = (terms,) if terms else ()
    x = buffer("x", (*shape, *more), f32)
    y = buffer("y", tuple([size if kept else 1 for size, kept in zip(shape, keeps, strict=True)]),
               f32)  # fmt: skip
    scale = random.choice((2.0, -1.0, 0.5))
    word: Literal["sum", "max"] = "sum" if random.random() < 0.5 else "max"

    def element(*at: Any) -> Any:  # the scalars of `compute`
        here = y[tuple([i if kept else 0 for i, kept in zip(at, keeps, strict=True)])]
        if terms:
            return reduce(word, (terms,), lambda k: x[(*at, k)] * scale + here)
        return Max(x[at] * scale + here, here)

    return compute((x, y), shape, element)


def _values(kernel: Kernel, random: Random) -> tuple[Array, ...]:
    """Random integer inputs of a kernel."""
    values = np.random.default_rng(random.randrange(1 << 30))
    params = kernel.params[: kernel.inputs]
    return tuple([values.integers(-4, 5, shape_of(e)).astype(e.dtype.numpy) for e in params])


def _product(random: Random) -> tuple[FuzzSubject, Kernel] | str:
    dtype = random.choice((f32, f16, bf16))
    of = _window(random, dtype) if random.random() < 0.4 else _matrices(random, dtype)
    parts, found = random.choice((1, 1, 2)), operands(of)
    if found is None:
        return "it is no contraction"
    along = (found.along(found.left), found.along(found.right))
    if dtype is f32:
        tile = random.choice(TILES)
        form = tiled(found, tile.layout(along), parts)
        made = product_schedule(form, Gpu(threads=32), (tile,))
    else:
        warps = random.choice(WARPS)
        form = tiled(found, warps.layout(along), parts)
        made = tensor_core_schedule(form, Gpu(threads=32), (warps,))
    if made is None:
        return "the schedule is refused"
    plain = kernel_of(of)
    fused = random.random() < 0.5
    return FuzzSubject(plain, _values(plain, random), made[0], fused), made[1]


def _matrices(random: Random, dtype: DType) -> Stages:
    m, n, k = (random.randrange(3, 40) for _ in range(3))
    left, right = random.random() < 0.5, random.random() < 0.5
    x = buffer("x", (m, k) if left else (k, m), dtype)
    w = buffer("w", (k, n) if right else (n, k), dtype)

    def element(i: Any, j: Any) -> Any:  # the scalars of a stage
        return reduce(
            "sum", (k,),
            lambda t: _wide(x[i, t] if left else x[t, i]) * _wide(w[t, j] if right else w[j, t]),
        )  # fmt: skip

    return stages((x, w), (stage("y", (m, n), element),))


def _window(random: Random, dtype: DType) -> Stages:
    channels, outputs = random.randrange(1, 5), random.randrange(3, 20)
    window, size = random.choice((1, 2, 3)), random.randrange(4, 9)
    x = buffer("x", (channels, size + window - 1, size + window - 1), dtype)
    w = buffer("w", (outputs, channels, window, window), dtype)

    def element(o: Any, i: Any, j: Any) -> Any:  # as above
        return reduce(
            "sum", (channels, window, window),
            lambda c, a, b: _wide(x[c, i + a, j + b]) * _wide(w[o, c, a, b]),
        )  # fmt: skip

    return stages((x, w), (stage("y", (outputs, size, size), element),))


def _wide(of: Scalar) -> Scalar:
    return of if dtype_of(of) is f32 else Cast(of, f32)


def differs(of: CudaCase, found: Sequence[Array]) -> str:
    """Where results first differ from the expected ones, or nothing."""
    for number, (ours, meant, margin) in enumerate(
        zip(found, of.expected, of.margins, strict=True)
    ):
        if margin is None:
            continue
        with np.errstate(invalid="ignore"):
            far = ours != meant
            if ours.dtype != np.bool_:  # those have no differences
                far &= ~(abs(ours - meant) <= margin)
        far &= ~((ours != ours) & (meant != meant))  # noqa: PLR0124  # NaN, of any dtype
        if far.any():
            at = tuple([int(each) for each in np.argwhere(far)[0]])
            return f"result {number} at {list(at)} is {ours[at]} instead of {meant[at]}"
    return ""


def built(of: CudaCase, architecture: str) -> bytes:
    """The cubin of a case, for a GPU architecture, compiled as usual."""
    return compiled(of.code.text, suited(architecture) or architecture, fused=of.fused).code


def on_gpu(
    gpu: CudaDevice, of: CudaCase, cubin: bytes, *, watched: bool = False
) -> list[Array] | str:
    """The output of a case on the GPU, or its error.

    Where a sanitizer has `watched` memory since it was reserved, nothing is poisoned, and nothing
    is behind a buffer that could be written.
    """
    edge_bytes = 0 if watched else GUARD_BYTES
    stream, module = gpu.stream(), gpu.load(cubin)
    poison = POISONS[of.number // len(KINDS) % len(POISONS)]
    buffers = []
    sizes = [*[array.nbytes for array in (*of.inputs, *of.expected)], *of.code.scratch]
    for number, size in enumerate(sizes):
        buffer = gpu.reserve(max(1, size + edge_bytes))
        if not watched:
            stream.fill(buffer.address, poison, size + GUARD_BYTES)
        if number < len(of.inputs):
            if watched:  # the last word of an input is read whole
                stream.fill(buffer.address, 0, -(-size // WORD_BYTES) * WORD_BYTES)
            given = np.ascontiguousarray(of.inputs[number])  # it lives until it was copied
            stream.to_device(buffer.address, given.ctypes.data, size)
        stream.wait()
        buffers.append(buffer)
    addresses = [cuda_memory.address for cuda_memory in buffers]
    for launch in of.code.launches:
        function = module.function(launch.function, launch.shared)
        stream.launch(function, launch.grid, launch.block, launch.shared, addresses, launch.maps)
    stream.wait()
    edge = np.empty(GUARD_BYTES, np.uint8)
    for number, (buffer, size) in enumerate(
        zip(buffers, sizes, strict=True) if not watched else ()
    ):
        stream.to_host(edge.ctypes.data, buffer.address + size, GUARD_BYTES)
        stream.wait()
        if (edge != poison).any():
            return f"it writes beside its buffer {number}"
    found = []
    for buffer, meant in zip(buffers[len(of.inputs) :], of.expected, strict=False):
        ours = np.empty(meant.shape, meant.dtype)
        stream.to_host(ours.ctypes.data, buffer.address, ours.nbytes)
        found.append(ours)
    stream.wait()
    return found


def report(
    draw: Callable[[int], CudaCase | str],
    examples: int,
    seed: int,
    runner: Runner,
    *,
    first: int = 0,
    say: Say | None = None,
) -> FuzzReport[Finding]:
    """Runs a number of cases by index.

    It ends with the first fault, after which a GPU does nothing more.
    """

    def made(number: int) -> CudaCase | Skipped:
        return Skipped(drawn) if isinstance(drawn := draw(number), str) else drawn

    def oracle(drawn: CudaCase, number: int, tally: Tally) -> Finding | None:
        tally["kinds"][drawn.kind] += 1
        yields = [line for line in drawn.trace.splitlines() if "yield" in line]
        tally["steps"].update([line.split("(", 1)[0].split()[-1] for line in yields])
        kind = "meaning"
        try:
            found = runner(drawn)
        except (DeviceError, CompilerBug) as error:
            # Where a launch was refused the GPU is as good as ever.
            refused = isinstance(error, DeviceError) and error.code != "device-fault"
            found, kind = str(error), "crash" if refused else FAULT
        wrong = found if isinstance(found, str) else differs(drawn, found)
        shown = as_comment(f"{drawn.kernel}\n{drawn.trace}")
        return Finding(kind, drawn.kind, wrong, shown) if wrong else None

    def ends(found: Sequence[Finding]) -> bool:
        return any(finding.kind == FAULT for finding in found)

    campaign = Campaign(
        Finding, ByNumber(made), oracle, MAX_TRIES, ends=ends, counters={SKIPPED: ()}
    )
    return campaign.run(examples, seed, first=first, say=say)


def fuzz(
    examples: int = 200, seed: int = 0, *, first: int = 0, length: int = 6, say: Say | None = None
) -> FuzzReport[Finding]:
    """A given number of cases on the GPU of this machine, one after another."""
    gpu = device()
    return report(
        lambda number: case(seed, number, length),
        examples,
        seed,
        lambda of: on_gpu(gpu, of, built(of, gpu.architecture)),
        first=first,
        say=say,
    )
