"""Contractions as tiled products for threads: the same numbers, whatever the sizes."""

from __future__ import annotations

import numpy as np
import pytest

from plica.codegen.cuda.fold import fold
from plica.codegen.lower.passes import lower
from plica.ir.define import defined
from plica.ir.dtype import f32
from plica.ir.run import run_kernel
from plica.ir.scalar import And, Buffer, Le, Lt, Scalar, Select, index, lit
from plica.ir.tensor import Compute, buffer, compute, reduce
from plica.schedule.default.contraction import Work, contraction
from plica.schedule.default.gpu.form import product_form
from plica.schedule.default.gpu.machine import BLOCKS, Gpu
from plica.schedule.default.gpu.product import Tile, product
from plica.schedule.default.gpu.shape import stages
from plica.schedule.default.gpu.spread import spread
from plica.schedule.do import Body, do, run
from plica.schedule.replay import begin
from tests.codegen.cuda.emulate import COMPILER
from tests.codegen.cuda.emulate import run as emulated

SMALL = Gpu(threads=8, warp=4)
TILE = Tile(8, 32, 4, 2, 4)


def matrices(m: int, n: int, k: int) -> Compute:
    x, w = buffer("x", (m, k), f32), buffer("w", (k, n), f32)
    return compute((x, w), (m, n), lambda i, j: reduce("sum", (k,), lambda t: x[i, t] * w[t, j]))


def batch(b: int, m: int, n: int, k: int) -> Compute:
    x, w = buffer("x", (b, m, k), f32), buffer("w", (b, k, n), f32)
    return compute(
        (x, w), (b, m, n),
        lambda q, i, j: reduce("sum", (k,), lambda t: x[q, i, t] * w[q, t, j]),
    )  # fmt: skip


def image(size: int, inside: int, outside: int, stride: int) -> Compute:
    x, w = buffer("x", (1, inside, size, size), f32), buffer("w", (outside, inside, 3, 3), f32)
    there = (size - 1) // stride + 1

    def padded(of: Buffer, c: Scalar, i: Scalar, j: Scalar) -> Scalar:
        test = And(
            And(Le(index(0), i), Lt(i, index(size))), And(Le(index(0), j), Lt(j, index(size)))
        )
        return Select(test, of[0, c, i, j], lit(0, f32))

    return compute(
        (x, w), (1, outside, there, there),
        lambda n, o, i, j: reduce(
            "sum", (inside, 3, 3),
            lambda c, k, q: padded(x, c, i * stride + k - 1, j * stride + q - 1) * w[o, c, k, q],
        ),
    )  # fmt: skip


def ended(size: int) -> Compute:
    """A window of one element, over data that is padded at its end alone."""
    x, w = buffer("x", (1, 3, size, size), f32), buffer("w", (9, 3, 1, 1), f32)
    return compute(
        (x, w), (1, 9, size, size + 1),
        lambda n, o, i, j: reduce(
            "sum", (3, 1, 1),
            lambda c, k, q: Select(Lt(j, index(size)), x[0, c, i, j], lit(0, f32)) * w[o, c, k, q],
        ),
    )  # fmt: skip


CASES = {
    "padded at the end": ended(5),
    "matrices": matrices(16, 16, 8),
    "odd matrices": matrices(9, 21, 7),
    "batch": batch(3, 10, 9, 6),
    "image": image(7, 3, 10, 1),
    "strided image": image(8, 2, 9, 2),
}


@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler on this machine")
@pytest.mark.parametrize(
    ("name", "parts"), [*[(name, 1) for name in CASES], ("odd matrices", 3), ("image", 3)]
)
def test_tiled_products_mean_the_same(name: str, parts: int) -> None:
    of = contraction(Work(CASES[name]))
    assert of is not None
    form = product_form(of, TILE, parts)
    every = stages(begin(form.kernel).kernel)
    assert every is not None

    @do
    def whole() -> Body:
        yield spread(every[-1], every[3:-1], SMALL, wide=False)
        yield product(TILE, form.labels, form.along, form.sizes[0])

    _, state, _ = run(whole(), form.kernel, 0, {})
    plain = defined(CASES[name])
    random = np.random.default_rng(0)
    inputs = [
        random.integers(-3, 4, [int(size.value) for size in each.shape]).astype(np.float32)  # type: ignore[attr-defined]  # sizes are numbers here
        for each in plain.params[: plain.inputs]
    ]
    (expected,) = run_kernel(plain, inputs)
    found = np.full_like(expected, -1)
    emulated(fold(lower(state.kernel, "gpu"), "k"), [*inputs, found])
    np.testing.assert_array_equal(found, expected)


@pytest.mark.skipif(COMPILER is None, reason="no C++ compiler on this machine")
@pytest.mark.parametrize(
    ("count", "grid"),
    [((3, 2), (1, 2, 3)), ((BLOCKS + 1, 2), (2, 1, 3)), ((2, BLOCKS + 1), (1, 2, 3)),
     ((BLOCKS + 1, BLOCKS + 1), (6, 1, 1))],
)  # fmt: skip
def test_long_axes_of_a_launch_are_the_first(
    count: tuple[int, int], grid: tuple[int, int, int]
) -> None:
    of = contraction(Work(batch(3, 10, 9, 6)))
    assert of is not None
    form = product_form(of, TILE, 1)
    every = stages(begin(form.kernel).kernel)
    assert every is not None

    @do
    def whole() -> Body:
        yield spread(every[-1], every[3:-1], SMALL, wide=False)
        yield product(TILE, form.labels, form.along, 3, count=count)

    plain, random = defined(CASES["batch"]), np.random.default_rng(0)
    inputs = [random.integers(-3, 4, shape).astype(np.float32) for shape in ((3, 10, 6), (3, 6, 9))]
    (expected,) = run_kernel(plain, inputs)
    found = np.full_like(expected, -1)
    code = fold(lower(run(whole(), form.kernel, 0, {})[1].kernel, "gpu"), "k")
    assert code.launches[0].grid == grid
    if count[0] > BLOCKS:  # as it is usually is tried above
        emulated(code, [*inputs, found])
        np.testing.assert_array_equal(found, expected)


def test_a_constant_weight_is_turned() -> None:
    of = contraction(Work(CASES["image"]))
    assert of is not None
    (packing,) = product_form(of, TILE, 1, constant=True).packings
    weight = np.arange(10 * 3 * 9).reshape(10, 3, 3, 3)
    np.testing.assert_array_equal(packing.apply(weight)[..., 0], weight.transpose(1, 2, 3, 0))
