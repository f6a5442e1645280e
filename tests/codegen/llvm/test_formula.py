"""Formulas: every function within 4 units in the last place of the true value, for every f32."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from plica.codegen.llvm import toolchain
from plica.codegen.target import Target
from plica.ir.loop.array_formula import turns
from plica.ir.loop.formula import FORMULAS, NEAR_FORMULAS
from plica.ir.loop.scalar import Intrinsic, Lit, Pow, index
from plica.ir.loop.scalar_meaning import array_power
from plica.ir.loop.scalar_table import INTRINSICS
from plica.ir.loop.statement import For, Kernel, Stmt, Store
from plica.ir.loop.tensor import axis, buffer
from plica.ir.type.dtype import f32
from tests.codegen.native import native_kernels

Array = np.ndarray[Any, Any]

ERF = np.vectorize(math.erf, otypes=[np.float64])
REFERENCE: dict[str, Callable[[Array], Array]] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log1p": np.log1p,
    "tanh": np.tanh,
    "erf": ERF,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}
LANES = 16


@lru_cache(maxsize=1)
def sample() -> Array:
    """Every exponent and both signs with many significands, and what is dense where it matters."""
    random = np.random.default_rng(0)
    exponents = np.arange(256, dtype=np.uint32) << 23
    significands = random.integers(0, 2**23, 48, np.uint32)
    significands[:3] = 0, 1, 2**23 - 1
    bits = (exponents[:, None] | significands[None, :]).ravel()
    near = random.uniform(-110, 110, 20_000).astype(np.float32)
    close = random.uniform(-2, 2, 20_000).astype(np.float32)
    around = np.concatenate([c + random.uniform(-1e-3, 1e-3, 500) for c in (1, -1, 0.92, 88.7)])
    turned = (np.arange(0, 24_000, 9) * (math.pi / 2)).astype(np.float32)
    parts = [bits.view(np.float32), -bits.view(np.float32), near, close, around, turned]
    whole = np.concatenate([part.astype(np.float32) for part in parts])
    return whole[: len(whole) // LANES * LANES]


def kernel(name: str, count: int, lanes: int) -> Kernel:
    """The function applied to every element, a given number of lanes at once."""
    x, y, i, j = buffer("x", (count,), f32), buffer("y", (count,), f32), axis("i"), axis("j")
    at = i * lanes + j
    if name == "sigmoid":
        exp = Intrinsic("exp", (Lit(0, f32) - x[at],))
        store = Store(y, (at,), Lit(1, f32) / (Lit(1, f32) + exp))
    else:
        store = Store(y, (at,), Intrinsic(name, (x[at],)))
    inner: Stmt = For(j, index(lanes), "vectorized" if lanes > 1 else "serial", store)
    return Kernel((), (x, y), 1, For(i, index(count // lanes), "serial", inner))


def units_apart(found: Array, true: Array) -> Array:
    """How far f32s lie from true values, in units of the last place there."""
    with np.errstate(all="ignore"):
        nearest = true.astype(np.float32)
        unit = np.spacing(np.abs(nearest)).astype(np.float64)
        distance = np.abs(found.astype(np.float64) - true) / unit
    same = (found == nearest) | (np.isnan(found) & np.isnan(nearest))
    return np.where(same, 0.0, np.where(np.isnan(distance), np.inf, distance))


def plain() -> Target:
    """This machine without the instruction that multiplies and adds at once."""
    host = toolchain.host()
    if host.architecture != "x86_64":
        pytest.skip("every such machine has it")
    return Target("cpu", host.triple, "x86-64")


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "plain"])
def test_every_function_is_within_four_units(fused: bool) -> None:
    values = sample()
    kernels = [kernel(name, len(values), 1) for name in REFERENCE]
    code, found = native_kernels(kernels, [values], None if fused else plain(), contract=fused)
    assert code == 0
    with np.errstate(all="ignore"):
        for (name, meant), ours in zip(REFERENCE.items(), found, strict=True):
            apart = units_apart(ours, meant(values.astype(np.float64)))
            if name == "sigmoid":  # a quotient: below this exp(-x) is infinite in f32
                apart[values < -87] = 0
            worst = int(np.argmax(apart))
            assert apart[worst] <= 4, (name, values[worst], ours[worst], apart[worst])


def pairs() -> tuple[Array, Array]:
    """Bases and exponents: all special values together, any bits, and results of every size."""
    random = np.random.default_rng(1)
    positive = [0, 1, 2, 3, 0.5, 2.5, 1e-40, 1e38, 2**23 + 1, 2**24 + 2, 2**31, math.inf]
    special = np.array([*positive, *[-each for each in positive], math.nan], np.float32)
    bits = random.integers(0, 2**32, 20_000, np.uint32).view(np.float32)
    x = [np.repeat(special, len(special)), bits, np.exp(random.uniform(-80, 80, 20_000))]
    y = [np.tile(special, len(special)), random.permutation(bits), random.uniform(-9, 9, 20_000)]
    x += [random.uniform(0.9, 1.1, 20_000), random.integers(-20, 20, 20_000)]
    y += [random.uniform(-900, 900, 20_000), random.integers(-9, 9, 20_000)]
    with np.errstate(all="ignore"):
        whole = [np.concatenate(each).astype(np.float32) for each in (x, y)]
    return whole[0][: len(whole[0]) // LANES * LANES], whole[1][: len(whole[1]) // LANES * LANES]


def power_kernel(count: int, lanes: int) -> Kernel:
    """Powers, a given number of lanes at once."""
    x, y, z = (buffer(name, (count,), f32) for name in "xyz")
    i, j = axis("i"), axis("j")
    at = i * lanes + j
    store = Store(z, (at,), Pow(x[at], y[at]))
    inner = For(j, index(lanes), "vectorized" if lanes > 1 else "serial", store)
    return Kernel((), (x, y, z), 2, For(i, index(count // lanes), "serial", inner))


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "plain"])
def test_powers_are_within_one_unit(fused: bool) -> None:
    x, y = pairs()
    kernels = [power_kernel(len(x), lanes) for lanes in (1, LANES)]
    code, found = native_kernels(kernels, [x, y], None if fused else plain(), contract=fused)
    assert code == 0
    with np.errstate(all="ignore"):
        true = np.power(x.astype(np.float64), y.astype(np.float64))
        exact = true.astype(np.float32) == true
    apart = units_apart(found[0], true)
    worst = int(np.argmax(apart))
    assert apart[worst] <= 1, (x[worst], y[worst], found[0][worst], true[worst])
    zero = (found[0] == 0) & (true == 0)
    assert np.array_equal(np.signbit(found[0][zero]), np.signbit(true[zero]))
    assert np.array_equal(found[0][exact], true[exact])
    meant = found[0] if fused else array_power(x, y)
    for each in (found[1], meant):
        np.testing.assert_array_equal(each, found[0])


@pytest.mark.parametrize("name", sorted(NEAR_FORMULAS))
def test_small_angles_beside_large_ones_have_the_same_bits(name: str) -> None:
    values = np.random.default_rng(5).permutation(sample())
    made = [kernel(name, len(values), lanes) for lanes in (1, LANES)]
    _, (alone, beside) = native_kernels(made, [values], contract=True)
    np.testing.assert_array_equal(alone.view(np.int32), beside.view(np.int32))


def test_code_has_the_bits_of_the_interpreter() -> None:
    """Products are rounded before they are added to unless a contract allows otherwise."""
    values = sample()
    kernels = [kernel(name, len(values), LANES) for name in FORMULAS]
    _, found = native_kernels(kernels, [values])
    for name, ours in zip(FORMULAS, found, strict=True):
        meant = INTRINSICS[name].array(values)
        sure = ~np.isnan(meant)
        np.testing.assert_array_equal(np.isnan(ours), ~sure, err_msg=name)
        np.testing.assert_array_equal(
            ours[sure].view(np.uint32), meant[sure].view(np.uint32), err_msg=name
        )


def test_single_numbers_mean_what_arrays_do() -> None:
    for name in FORMULAS:
        one, two = INTRINSICS[name].array(np.float32(0.3)), INTRINSICS[name].array(np.float64(0.3))
        assert (one.dtype, two.dtype) == (np.float32, np.float64)
        many = INTRINSICS[name].array(np.full((2, 2), 0.3, np.float32))
        assert np.array_equal(one, many[1, 1], equal_nan=True)


def test_lanes_give_the_same_bits_as_single_values() -> None:
    values = sample()[: LANES * 3000]
    for lanes in (LANES, 12):
        count = len(values) // lanes * lanes
        kernels = [kernel(name, count, n) for name in REFERENCE for n in (1, lanes)]
        _, found = native_kernels(kernels, [values[:count]])
        for name, one, many in zip(REFERENCE, found[::2], found[1::2], strict=True):
            np.testing.assert_array_equal(one, many, err_msg=name)
            sure = ~np.isnan(one)
            np.testing.assert_array_equal(
                one[sure].view(np.uint32), many[sure].view(np.uint32), err_msg=name
            )


@pytest.mark.parametrize("fused", [True, False])
def test_zeros_keep_their_sign(fused: bool) -> None:
    even = ("exp", "exp2", "log", "log2", "cos", "acos", "cosh", "acosh")
    odd = [name for name in FORMULAS if name not in even]
    zeros = np.array([0.0, -0.0] * 8, np.float32)
    _, found = native_kernels([kernel(name, 16, 1) for name in odd], [zeros], contract=fused)
    for made in found:
        np.testing.assert_array_equal(made.view(np.uint32), zeros.view(np.uint32))


def test_the_table_of_turns() -> None:
    """Two over pi modulo 4, from the digits of pi."""
    high, low = turns()
    assert high[0] + low[0] == 2 / math.pi
    for each in high:
        assert math.frexp(each)[0] * 2**29 % 1 == 0
    for place in (1, 7, 100):
        assert 0 <= high[place] * 2**place < 4
