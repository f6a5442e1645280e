"""The fold into CUDA C++: what the text computes, what it looks like, and that NVRTC takes it."""

from __future__ import annotations

import numpy as np
import pytest
from attrs import evolve

from plica.analysis.statement import LoweringRefused
from plica.codegen.cuda.fold import fold
from plica.codegen.cuda.limit import check as check_limits
from plica.codegen.cuda.toolchain import CompileError, compiled, path_of
from plica.codegen.lower.passes import lower
from plica.core.name import Name
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.define import defined
from plica.ir.loop.scalar import Buffer, index
from plica.ir.loop.stage import Each
from plica.ir.loop.stages import stages
from plica.ir.loop.statement import Alloc, For, Kernel, Seq, Store, seq
from plica.ir.loop.tensor import axis, buffer, compute, reduce
from plica.ir.text.script import from_text
from plica.ir.type.dtype import f32
from plica.runtime.cuda.code import ARCHITECTURES
from plica.runtime.error import UnsupportedError
from plica.schedule.default.gpu import Gpu, gpu_schedule
from plica.schedule.default.gpu.form import tiled as in_tiles
from plica.schedule.default.gpu.operand import operands
from plica.schedule.default.gpu.product import ProductTile
from plica.schedule.default.gpu.template import product_schedule
from tests.codegen.cuda.emulate import COMPILER, run
from tests.conftest import Golden

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler on this machine")
needs_nvrtc = pytest.mark.skipif(path_of() is None, reason="NVRTC is not installed: plica[cuda]")

SMALL = ProductTile(16, 16, 4, 2, 2)

HEAD = """
from plica.script import Buffer, alloc, block, f32, grid, i8, init, strides, thread
import plica
"""


def read(body: str) -> Kernel:
    kernel = from_text(f"{HEAD}\n@plica.kernel\n{body.strip()}\n").values[0]
    assert isinstance(kernel, Kernel)
    return kernel


def check(kernel: Kernel, given: Kernel | None = None, seed: int = 0) -> None:
    """The text of a lowered kernel does what the interpreter says the kernel does."""
    meaning = given or kernel
    random = np.random.default_rng(seed)
    inputs = []
    for each in meaning.params[: meaning.inputs]:
        shape = tuple([int(size.value) for size in each.shape])  # type: ignore[attr-defined]
        values = random.integers(-4, 5, shape)
        inputs.append(values.astype(each.dtype.numpy))
    expected = run_kernel(meaning, inputs)
    outputs = [np.full_like(each, -1) for each in expected]
    run(fold(kernel, "k"), [*inputs, *outputs])
    for mine, theirs in zip(outputs, expected, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_scratch_has_room_for_rows_that_are_further_apart_than_they_are_long() -> None:
    kernel = read("""
def k(x: Buffer[(3,), f32], y: Buffer[(3,), f32]):
    s = alloc(Buffer[(1 + 2,), f32, strides(4)])
    for i in thread("blockIdx.y", 3):
        with block("s", spatial=(i,)):
            s[i] = x[i]
    for j in thread("blockIdx.y", 3):
        with block("y", spatial=(j,)):
            y[j] = s[2 - j]
""")
    assert fold(lower(kernel, "gpu"), "k").scratch == (9 * 4,)


LARGE = """
def k(x: Buffer[(3, 16, 300), f32], y: Buffer[(3, 300), f32]):
    for i in range(3):
        s = alloc(Buffer[(16, 300), f32, "{scope}"])
        for a, j in grid(16, 300):
            with block("s", spatial=(i, a, j)):
                s[a, j] = x[i, a, j] * 2
        for j1, a1 in grid(300, 16):
            with block("y", spatial=(i, j1), reduce=(a1,)):
                with init():
                    y[i, j1] = 0
                y[i, j1] += s[a1, 299 - j1]
"""


@needs_compiler
@pytest.mark.parametrize("scope", ["local", "global"])
def test_large_memory_of_one_thread_is_scratch(scope: str) -> None:
    kernel = read(LARGE.format(scope=scope))
    code = fold(made := lower(kernel, "gpu"), "k")
    assert code.scratch == (4 * 16 * 300,)
    assert code.launches[0].own == 0
    check(made, kernel)


def test_large_memory_of_many_threads_is_refused() -> None:
    kernel = read("""
def k(x: Buffer[(64, 5000), f32], y: Buffer[(64,), f32]):
    for i in thread("threadIdx.x", 64):
        s = alloc(Buffer[(5000,), f32, "local"])
        for a in range(5000):
            with block("s", spatial=(i, a)):
                s[a] = x[i, a] * 2
        for a1 in range(5000):
            with block("y", spatial=(i,), reduce=(a1,)):
                with init():
                    y[i] = 0
                y[i] += s[4999 - a1]
""")
    code = fold(lower(kernel, "gpu"), "k")
    assert not code.scratch
    with pytest.raises(LoweringRefused, match="memory to itself") as caught:
        check_limits(code.launches, Gpu(), "k")
    (found,) = caught.value.diagnostics
    assert (found.expected, found.found) == ("16384 bytes at most", "20000 bytes")


def spread(kernel: Kernel) -> Kernel:
    found = gpu_schedule(kernel, Gpu(threads=8, warp=4))
    assert found is not None
    return lower(found[1], "gpu")


KERNELS = {
    "chain": """
def k(x: Buffer[(5, 7), f32], y: Buffer[(7,), f32], z: Buffer[(5, 7), f32]):
    for i, j in grid(5, 7):
        with block("z", spatial=(i, j)):
            z[i, j] = max(x[i, j] * 2.0 + y[j], 0.0) / 4.0
""",
    "wide": """
def k(x: Buffer[(6, 8), f32], z: Buffer[(6, 8), f32]):
    for i, j in grid(6, 8):
        with block("z", spatial=(i, j)):
            z[i, j] = x[i, j] * x[i, j] + 1.0
""",
    "integers": """
def k(x: Buffer[(40,), i8], z: Buffer[(40,), i8]):
    for i in grid(40):
        with block("z", spatial=(i,)):
            z[i] = x[i] * i8(100) + (x[i] // i8(3)) - (x[i] % i8(3)) + min(x[i], i8(2))
""",
    "guarded": """
def k(x: Buffer[(9,), f32], z: Buffer[(11,), f32]):
    for i in grid(11):
        with block("z", spatial=(i,)):
            z[i] = (x[i - 1] if 1 <= i and i < 10 else 0.0) + 1.0
""",
    "sums": """
def k(x: Buffer[(5, 6), f32], z: Buffer[(5,), f32]):
    for i, j in grid(5, 6):
        with block("z", spatial=(i,), reduce=(j,)):
            with init():
                z[i] = 0.0
            z[i] += x[i, j]
""",
    "long sums": """
def k(x: Buffer[(3, 130), f32], z: Buffer[(3,), f32]):
    for i, j in grid(3, 130):
        with block("z", spatial=(i,), reduce=(j,)):
            with init():
                z[i] = 0.0
            z[i] += x[i, j]
""",
}


@needs_compiler
@pytest.mark.parametrize("name", KERNELS)
def test_spread_kernels_mean_the_same(name: str) -> None:
    kernel = read(KERNELS[name])
    check(spread(kernel), kernel)


def tiled(size: int, terms: int, tile: ProductTile) -> tuple[Kernel, Kernel]:
    """A matrix product as it is, and in tiles."""
    x, w = buffer("x", (size, terms), f32), buffer("w", (terms, size), f32)
    of = compute(
        (x, w), (size, size),
        lambda i, j: reduce("sum", (terms,), lambda k: x[i, k] * w[k, j]),
    )  # fmt: skip
    out = Each(Buffer(Name("y"), of.shape, f32), of.axes, of.body)
    found = operands(stages((x, w), (out,)))
    assert found is not None
    made = product_schedule(in_tiles(found, tile.layout((True, False))), Gpu(), (tile,))
    assert made is not None
    return defined(of), lower(made[1], "gpu")


@needs_compiler
def test_a_tiled_product_means_the_same() -> None:
    kernel, lowered = tiled(32, 8, SMALL)
    check(lowered, kernel)


def test_the_text_is_readable(golden: Golden) -> None:
    _, lowered = tiled(32, 8, SMALL)
    golden(fold(lowered, "product", "matmul of x and y").text, "product")


@needs_nvrtc
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90a"])
def test_nvrtc_compiles_without_a_gpu(architecture: str) -> None:
    _, lowered = tiled(256, 64, ProductTile(128, 128, 16, 8, 16, ahead=1))
    made = compiled(fold(lowered, "product").text, architecture)
    usage = dict(made.usage)["product"]
    assert made.code.startswith(b"\x7fELF")
    assert usage.registers <= 200
    assert usage.spilled == 0


@needs_nvrtc
def test_a_text_that_is_no_program_is_refused() -> None:
    with pytest.raises(CompileError, match="expected"):
        compiled("__global__ void k( {", "sm_90")


def test_an_architecture_nobody_knows_is_refused() -> None:
    assert "sm_90a" in ARCHITECTURES
    with pytest.raises(UnsupportedError, match="architecture"):
        compiled("", "sm_12")


def test_a_loop_around_launches_is_refused() -> None:
    kernel = read("""
def k(x: Buffer[(4, 8), f32], z: Buffer[(4, 8), f32]):
    for i in range(4):
        for t in thread("threadIdx.x", 8):
            z[i, t] = x[i, t]
""")
    with pytest.raises(LoweringRefused, match="launches inside"):
        fold(kernel, "k")


def test_a_loop_of_a_thread_around_blocks_is_refused() -> None:
    """Blocks do not wait for what others wrote an iteration before."""
    kernel = read("""
def k(x: Buffer[(4, 8), f32], z: Buffer[(4, 8), f32]):
    for t in thread("threadIdx.x", 1):
        for i in range(4):
            for j in thread("blockIdx.x", 8):
                z[i, j] = x[i, j] if i < 1 or j > 6 else z[i - 1, j + 1] + x[i, j]
""")
    with pytest.raises(LoweringRefused, match="blocks do not wait for one another"):
        fold(kernel, "k")


@needs_compiler
def test_memory_that_several_launches_have_for_themselves_is_one() -> None:
    """As the copies of a loop's body have it once the loop is unrolled."""
    kernel = read("""
def k(x: Buffer[(8,), f32], z: Buffer[(2, 8), f32]):
    s = alloc(Buffer[(8,), f32, "global"])
    for t in thread("threadIdx.x", 8):
        s[t] = x[t] + x[t]
    for t in thread("threadIdx.x", 8):
        z[0, t] = s[t]
    for t in thread("threadIdx.x", 8):
        z[1, t] = s[t]
""")
    assert isinstance(kernel.body, Alloc)
    assert isinstance(kernel.body.body, Seq)
    begin, first, second = kernel.body.body.stmts
    scratch = kernel.body.buffer
    parts = [Alloc(scratch, seq(begin, first)), Alloc(scratch, seq(begin, second))]
    twice = evolve(kernel, body=seq(*parts))
    assert fold(twice, "k").functions.count("__restrict__ s") == 4  # once in each launch
    check(twice, kernel)


def test_a_long_vector_is_a_loop() -> None:
    """Thousands of lanes written out would keep the compiler busy for minutes."""
    x, y, i = buffer("x", (8192,), f32), buffer("y", (8192,), f32), axis("i")
    loop = For(i, index(8192), "vectorized", Store(y, (i,), x[i] + x[i]))
    text = fold(Kernel((), (x, y), 1, loop), "k").functions
    assert "for (" in text
    assert "unroll" not in text
    assert len(text) < 1000
