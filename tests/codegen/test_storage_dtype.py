"""Dtypes that only keep numbers: every code read, every rounding, on the CPU and as CUDA text."""

from __future__ import annotations

import itertools
import shutil
from typing import Any

import numpy as np
import pytest

import plica
from plica.codegen.cuda.fold import fold
from plica.codegen.lower.passes import lower
from plica.ir.graph.expression import const
from plica.ir.interpret.array_arithmetic import cast as meant
from plica.ir.loop.define import defined
from plica.ir.loop.scalar import Cast, Scalar, Select
from plica.ir.loop.statement import Kernel
from plica.ir.loop.tensor import buffer, compute
from plica.ir.loop.verify import well_formed
from plica.ir.type.dtype import DTYPES, DType, f16, f32, f64, i8, i32
from plica.ir.type.float_code import float_code
from plica.rewrite.packs.cast import keeps
from plica.schedule.default.gpu import Gpu, gpu_schedule
from tests.codegen.cuda.emulate import COMPILER, run as emulated
from tests.codegen.native import assert_same, native_all, native_kernel
from tests.deep import spread

Array = np.ndarray[Any, Any]
STORAGE = [each for each in DTYPES if each.is_storage]
FLOATS = [each for each in STORAGE if each.is_float]


def codes(of: DType) -> Array:
    """Every element there is."""
    return np.arange(1 << of.bits).astype(np.uint8).view(of.numpy)


def halfway(of: DType) -> Array:
    """Every value, the middle to the next, and what lies just beside it; all as f32."""
    values = np.unique(codes(of).astype(np.float64))
    values = values[np.isfinite(values)]
    middles = (values[1:] + values[:-1]) / 2
    over = [of.overflow, -of.overflow, 2 * of.greatest, -2 * of.greatest, np.inf, -np.inf, np.nan]
    near = [np.nextafter(np.float32(m), np.float32(s)) for m in middles for s in (np.inf, -np.inf)]
    return np.array([*values, *middles, *near, *over, 1e-30, -0.0], np.float32)


def converted(given: Array, source: DType, to: DType) -> Kernel:
    x = buffer("x", given.shape, source)
    return defined(compute((x,), given.shape, lambda i: Cast(x[i], to)))


def on_cuda(kernel: Kernel, given: Array, to: DType) -> Array:
    made = gpu_schedule(kernel, Gpu(threads=8, warp=4))
    assert made is not None
    found = np.zeros(given.shape, to.numpy)
    emulated(fold(lower(made[1], "gpu"), "k"), [given, found])
    return found


@pytest.mark.parametrize("of", spread(STORAGE, 5), ids=str)
def test_every_code_is_read(of: DType) -> None:
    given = codes(of)
    x, every = buffer("x", given.shape, of), (f32, f64, f16, i8, i32)
    with np.errstate(all="ignore"):
        expected = [meant(given, to) for to in every]
    wholes = [compute((x,), given.shape, lambda i, to=to: Cast(x[i], to)) for to in every]
    for found, wanted in zip(native_all(wholes, given), expected, strict=True):
        assert_same(found, wanted)
    if COMPILER is not None:
        assert_same(on_cuda(defined(wholes[0]), given, f32), expected[0])


@pytest.mark.parametrize("of", spread(FLOATS, 3), ids=str)
def test_every_rounding_is_to_even(of: DType) -> None:
    given = halfway(of)
    with np.errstate(all="ignore"):
        expected = given.astype(of.numpy)
    kernel = converted(given, f32, of)
    code, (found,) = native_kernel(lower(kernel), [given])
    assert code == 0
    assert_same(found, expected)
    if COMPILER is not None:
        assert_same(on_cuda(kernel, given, of), expected)


@pytest.mark.parametrize("of", spread([of for of in STORAGE if of.is_integer], 2), ids=str)
def test_integers_wrap_and_floats_saturate(of: DType) -> None:
    low, high = of.bounds
    for given, source in (
        (np.arange(-40, 40, dtype=np.int32), i32),
        (np.array([low - 1, low, high, high + 1, 2.5, -2.5, np.nan, np.inf], np.float32), f32),
    ):
        expected = meant(given, of)
        kernel = converted(given, source, of)
        code, (found,) = native_kernel(lower(kernel), [given])
        assert code == 0
        assert_same(found, expected)
        if COMPILER is not None:
            assert_same(on_cuda(kernel, given, of), expected)


@pytest.mark.parametrize("of", STORAGE, ids=str)
def test_arithmetic_wants_a_cast(of: DType) -> None:
    x = buffer("x", (4,), of)
    for wrong in (lambda i: x[i] + x[i], lambda i: Select(x[i] < x[i], x[i], x[i] * x[i])):
        (found,) = {each.message for each in well_formed(defined(compute((x,), (4,), wrong)))}
        assert found.startswith(f"{of} only keeps numbers: cast before a ")

    def right(i: Scalar) -> Scalar:
        return Select(x[i] < x[0], x[i], Cast(Cast(x[i], f32) * Cast(x[i], f32), of))

    assert well_formed(defined(compute((x,), (4,), right))) == ()


@pytest.mark.parametrize("of", spread(STORAGE, 5), ids=str)
def test_a_model_of_them_is_compiled_printed_and_read(of: DType) -> None:
    weight = np.resize(codes(of)[1:], (2, 3))
    text = f"""
import plica
from plica.script import Tensor, {of}, f32
from plica.op import cast, transpose
@plica.function
def f(x: Tensor[(3, 2), {of}]) -> Tensor[(2, 3), f32]:
    return cast(transpose(x, (1, 0)), "f32")
"""
    module = plica.from_text(text)
    assert plica.digest(plica.from_text(str(plica.from_text(text)))) == plica.digest(module)
    given = weight.reshape(3, 2)
    expected = given.T.astype(np.float32)
    for target in ("cpu", "c") if shutil.which("cc") else ("cpu",):
        exe = plica.compile(module, target=target, cache=False)
        np.testing.assert_array_equal(exe(given), expected)
    np.testing.assert_array_equal(plica.interpret(module, given), expected)
    assert const(weight, of).numpy().dtype == of.numpy


def test_the_numbers_of_a_format_are_those_of_the_machine() -> None:
    code = float_code(f16)
    assert np.array([code.greatest, code.overflow], np.uint16).view(np.float16).tolist() == [
        65504.0,
        np.inf,
    ]
    assert np.array([1], np.uint16).view(np.float16)[0] == code.step


def test_what_keeps_every_value() -> None:
    one, two, *_ = FLOATS
    assert keeps(one, f16)
    assert keeps(two, f16)
    assert not keeps(one, two)
    assert not keeps(two, one)
    assert all(keeps(each, f32) for each in FLOATS)
    for each, other in itertools.permutations(FLOATS, 2):
        values = codes(each).astype(np.float32)
        with np.errstate(all="ignore"):
            there = values.astype(other.numpy).astype(np.float32)
        same = (np.isnan(there) == np.isnan(values)) & (np.signbit(there) == np.signbit(values))
        kept = bool((same & ((there == values) | np.isnan(values)))[~np.isnan(values)].all())
        nan = each.row.special == "none" or other.row.special != "none"
        assert keeps(each, other) == (kept and nan), (each, other)
    assert all(keeps(each, i8) for each in STORAGE if each.is_integer)
