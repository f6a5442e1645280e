"""Rows by blocks of threads: the same numbers for any cut, each row read once."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from plica.codegen.cuda.fold import fold
from plica.codegen.cuda.toolchain import compiled, path_of
from plica.codegen.lower.passes import lower
from plica.ir.interpret.kernel import run_kernel
from plica.ir.loop.define import define, defined
from plica.ir.loop.scalar import Buffer, Intrinsic, Load, Max, Reduce, Scalar, ScalarVar, index, lit
from plica.ir.loop.stage import Each
from plica.ir.loop.statement import Alloc, Kernel, statements
from plica.ir.loop.tensor import axis, buffer, compute, reduce
from plica.ir.type.dtype import f32
from plica.schedule.default.gpu import Gpu, gpu_schedule
from plica.schedule.default.gpu.row import RowShape, shape_of
from plica.schedule.replay import replay
from plica.schedule.trace import Trace
from tests.codegen.cuda.emulate import COMPILER, run as emulated

SMALL = Gpu(processors=1, threads=8, warp=4)

needs_compiler = pytest.mark.skipif(COMPILER is None, reason="no C++ compiler on this machine")
needs_nvrtc = pytest.mark.skipif(path_of() is None, reason="NVRTC is not installed: plica[cuda]")


class Stages:
    """Stages over the rows of an input, one after another."""

    def __init__(self, *shape: int) -> None:
        self.shape = shape
        self.x = buffer("x", shape, f32)
        self.rows = tuple([axis(f"i{n}") for n in range(len(shape) - 1)])
        self.j, self.k = axis("j"), axis("k")
        self.made: list[Each] = []

    def at(self, of: Buffer, last: ScalarVar) -> Scalar:
        return Load(of, (*self.rows, last))

    def reduced(self, name: str, word: str, value: Scalar) -> Scalar:
        out = buffer(name, (*self.shape[:-1], 1), f32)
        one = axis(f"{name}_one")
        body = Reduce(word, (self.k,), (index(self.shape[-1]),), value)  # type: ignore[arg-type]  # a word of one
        self.made.append(Each(out, (*self.rows, one), body))
        return Load(out, (*self.rows, index(0)))

    def each(self, name: str, value: Scalar) -> Buffer:
        out = buffer(name, self.shape, f32)
        self.made.append(Each(out, (*self.rows, self.j), value))
        return out

    def kernel(self) -> Kernel:
        return define(*self.made, inputs=(self.x,), outputs=(self.made[-1].out,))


def softmax(*shape: int) -> Kernel:
    of = Stages(*shape)
    top = of.reduced("top", "max", of.at(of.x, of.k))
    e = of.each("e", Intrinsic("exp", (of.at(of.x, of.j) - top,)))
    total = of.reduced("total", "sum", of.at(e, of.k))
    of.each("y", of.at(e, of.j) / total)
    return of.kernel()


def norm(*shape: int) -> Kernel:
    of = Stages(*shape)
    length = float(shape[-1])
    mean = of.reduced("total", "sum", of.at(of.x, of.k)) / lit(length, f32)
    away = of.each("away", of.at(of.x, of.j) - mean)
    square = of.reduced("square", "sum", of.at(away, of.k) * of.at(away, of.k))
    of.each("y", of.at(away, of.j) / (square / lit(length, f32) + lit(1.0, f32)))
    return of.kernel()


def above_least(*shape: int) -> Kernel:
    of = Stages(*shape)
    least = of.reduced("least", "min", of.at(of.x, of.k))
    of.each("y", Max(of.at(of.x, of.j) - least, lit(1.0, f32)))
    return of.kernel()


def total(*shape: int) -> Kernel:
    of = Stages(*shape)
    sums = buffer("sums", shape[:-1], f32)
    body = Reduce("sum", (of.k,), (index(shape[-1]),), of.at(of.x, of.k))
    return define(Each(sums, of.rows, body), inputs=(of.x,), outputs=(sums,))


def mean(*shape: int) -> Kernel:
    """The mean over the last two axes."""
    of = Stages(*shape)
    rows, terms = of.rows[:-1], shape[-2] * shape[-1]
    sums, means = (buffer(name, shape[:-2], f32) for name in ("sums", "means"))
    extents = index(shape[-2]), index(shape[-1])
    body = Reduce("sum", (of.rows[-1], of.k), extents, of.at(of.x, of.k))
    one, two = Each(sums, rows, body), Each(means, rows, Load(sums, rows) / lit(float(terms), f32))
    return define(one, two, inputs=(of.x,), outputs=(means,))


MAKERS = {"softmax": softmax, "norm": norm, "above least": above_least}
SHAPES = [(3, 64), (2, 3, 32), (5, 7), (64, 12), (2, 30), (24, 4)]


def compared(kernel: Kernel, shape: tuple[int, ...], gpu: Gpu, *, emulate: bool = False) -> Trace:
    """Whether a kernel, scheduled and lowered, means the same; its schedule."""
    made = gpu_schedule(kernel, gpu)
    assert made is not None
    x = np.random.default_rng(0).integers(-3, 4, shape).astype(np.float32)
    (expected,) = run_kernel(kernel, [x])
    lowered = lower(made[1], "gpu")
    code = fold(lowered, "k")
    assert len(code.launches) == 1
    if emulate:
        found = np.full_like(expected, -7)
        emulated(code, [x, found])
    else:  # the interpreter looks for races, too
        (found,) = run_kernel(lowered, [x])
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    return made[0]


@needs_compiler
@pytest.mark.parametrize("name", MAKERS)
def test_rows_mean_the_same(name: str) -> None:
    compared(MAKERS[name](6, 64), (6, 64), SMALL, emulate=True)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_rows_of_any_shape_mean_the_same(shape: tuple[int, ...]) -> None:
    compared(softmax(*shape), shape, SMALL)


@settings(max_examples=max(3, settings().max_examples // 100))
@given(st.sampled_from([*MAKERS]), st.integers(40, 100), st.sampled_from((24, 32, 40, 96)))
def test_rows_beside_one_another_of_any_number(name: str, rows: int, length: int) -> None:
    compared(MAKERS[name](rows, length), (rows, length), Gpu(processors=1, threads=16, warp=8))


@needs_compiler
def test_blocks_are_whole_whatever_the_number_of_rows() -> None:
    kernel = norm(1061, 64)
    made = gpu_schedule(kernel, Gpu())
    assert made is not None
    code = fold(lower(made[1], "gpu"), "k")
    (launch,) = code.launches
    assert prod(launch.block) >= 128
    assert "__shfl_xor_sync" in code.text
    assert f"float x_global[{64 // launch.block[0]}]" in code.text  # registers, not shared memory
    compared(kernel, (1061, 64), Gpu(), emulate=True)


@pytest.mark.parametrize("name", MAKERS)
def test_the_lowered_kernel_means_the_same(name: str) -> None:
    trace = compared(MAKERS[name](4, 16), (4, 16), SMALL)
    kernel = MAKERS[name](4, 16)
    assert replay(trace, kernel) == replay(trace, kernel)  # every step by itself is legal, too


@pytest.mark.parametrize("shape", [(6, 64), (3, 2, 36)], ids=str)
def test_sums_of_rows(shape: tuple[int, ...]) -> None:
    assert "cache_read" in compared(total(*shape), shape, SMALL).to_python()


def test_means_of_images() -> None:
    compared(mean(1, 6, 7, 7), (1, 6, 7, 7), SMALL)


@pytest.mark.parametrize("shape", [(150, 10), (2, 130, 9)], ids=str)
def test_sums_down_columns(shape: tuple[int, ...]) -> None:
    x = buffer("x", shape, f32)
    of = compute(
        (x,), (*shape[:-2], shape[-1]),
        lambda *at: reduce("sum", (shape[-2],), lambda k: x[(*at[:-1], k, at[-1])]),
    )  # fmt: skip
    trace = compared(defined(of), shape, Gpu(warp=8, threads=64))
    assert "threadIdx.y" in trace.to_python()


def test_rows_are_kept_in_registers() -> None:
    made = gpu_schedule(softmax(8192, 8192), Gpu())
    assert made is not None
    lowered = lower(made[1], "gpu")
    made_inside = [each.buffer for each in statements(lowered.body) if isinstance(each, Alloc)]
    scopes = {str(each.name): each.scope for each in made_inside}
    assert scopes["e"] == "local"
    text = fold(lowered, "k").functions
    assert text.count("&x[") == 1
    assert text.count("&y[") == 1


@needs_nvrtc
@pytest.mark.parametrize("name", MAKERS)
def test_nothing_is_spilled(name: str) -> None:
    made = gpu_schedule(MAKERS[name](8192, 8192), Gpu())
    assert made is not None
    code = fold(lower(made[1], "gpu"), "k")
    ((_, usage),) = compiled(code.text, "sm_90").usage
    assert usage.spilled == 0
    assert usage.registers <= 128


def test_cuts() -> None:
    assert shape_of(8192, 8192, 4, Gpu()) == RowShape(256, 4, 1)
    assert shape_of(1, 1000, 4, Gpu()) == RowShape(250, 4, 1)
    assert shape_of(100000, 128, 2, Gpu()) == RowShape(4, 8, 50)
    assert shape_of(1, 4099, 4, Gpu()) is None


def test_a_vector_that_all_sums_share_is_kept_in_vectors() -> None:
    x, w = buffer("x", (1, 1024), f32), buffer("w", (64, 1024), f32)
    i, n, k = axis("i"), axis("n"), axis("k")
    times = Reduce("sum", (k,), (index(1024),), x[i, k] * w[n, k])
    dense = Each(buffer("y", (1, 64), f32), (i, n), times)
    made = gpu_schedule(define(dense, inputs=(x, w), outputs=(dense.out,)), Gpu())
    assert made is not None
    code = fold(lower(made[1], "gpu"), "k")
    assert len(code.launches) == 1
    assert code.text.count("= *((const uint4*)&") == 2
    assert "p_lanes_sum_f32<32, 1>" in code.text
