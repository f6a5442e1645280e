"""Products of bytes that are given: zero points of all kinds leave the sum, exactly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import plica
from plica.core.name import Name
from plica.ir.graph.expression import Expr, Var, const
from plica.ir.graph.module import Module
from plica.ir.op.convolution import conv
from plica.ir.op.elementwise import cast, subtract
from plica.ir.op.linear import matmul
from plica.ir.type.dtype import DType, i8, i32, u8
from plica.ir.type.term import tensor
from plica.pipeline import lower
from plica.rewrite import rewrite
from plica.rewrite.packs.byte_middle import MIN_TERMS, byte_middles_for
from plica.rewrite.packs.byte_product import BYTE_PRODUCTS
from plica.schedule.default.machine import GIVEN_ROWS
from tests.schedule.default.test_dot_product import HERE, PLAIN, TARGETS, kernels
from tests.schedule.default.test_grouped import whole

Array = np.ndarray[Any, Any]
FEW = settings(max_examples=max(3, settings().max_examples // 10), deadline=None)
BYTES = st.sampled_from([u8, i8])
KINDS = ("none", "known", "middle", "given", "each", "each given")


def bytes_of(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> Array:
    """Bytes, some of them the least and the greatest, or all of them one of these."""
    low, high = map(int, dtype.bounds)
    drawn = rng.integers(low, high, shape, endpoint=True)
    if rng.random() < 0.2:
        drawn = np.full(shape, rng.choice([low, high]))
    ends = rng.choice([low, high], shape)
    return np.where(rng.random(shape) < 0.2, ends, drawn).astype(dtype.numpy)


class Side:
    """A side of a product less its zero points, as a term and as numbers."""

    def __init__(self, rng: np.random.Generator, name: str, given_: Array, kind: str) -> None:
        dtype = u8 if given_.dtype == np.uint8 else i8
        self.params = [Var(Name(name), tensor(given_.shape, str(dtype)))]
        self.arrays = [given_]
        self.term: Expr = cast(self.params[0], i32)
        self.numbers = given_.astype(np.int64)
        if kind == "none":
            return
        shape = (1, given_.shape[-1]) if name == "w" else (*given_.shape[:-1], 1)
        zero = bytes_of(rng, shape if kind.startswith("each") else (), dtype)
        if kind == "middle":
            zero = np.asarray(128 if dtype is u8 else 0, dtype.numpy)
        self.numbers = self.numbers - zero.astype(np.int64)
        if kind in ("given", "each given"):
            of = Var(Name(f"{name}_zero"), tensor(zero.shape, str(dtype)))
            self.params, self.arrays = [*self.params, of], [*self.arrays, zero]
            self.term = subtract(self.term, cast(of, i32))
        else:
            self.term = subtract(self.term, const(zero.astype(np.int32), i32))


def kept(of: Module) -> tuple[Module, list[str]]:
    after, derivation = rewrite(of, byte_middles_for(GIVEN_ROWS))
    assert isinstance(after, Module)
    return after, [each.rule.name for each in derivation.steps]


@FEW
@given(
    st.tuples(st.integers(1, 30), st.integers(1, 70), st.integers(1, 40)),
    st.tuples(BYTES, BYTES), st.tuples(st.sampled_from(KINDS), st.sampled_from(KINDS)),
    st.integers(0, 99),
)  # fmt: skip
def test_products_are_exact(
    sizes: tuple[int, int, int], dtypes: tuple[DType, DType], kinds: tuple[str, str], seed: int
) -> None:
    rng, (m, k, n) = np.random.default_rng(seed), sizes
    (of_data, of_weight), (zero, point) = dtypes, kinds
    batch = [(), (2,), (2, 3)][int(rng.integers(3))]
    left = Side(rng, "x", bytes_of(rng, (*batch, m, k), of_data), zero)
    both = batch if rng.random() < 0.5 else ()
    right = Side(rng, "w", bytes_of(rng, (*both, k, n), of_weight), point)
    before = whole([*left.params, *right.params], matmul(left.term, right.term))
    arrays = [*left.arrays, *right.arrays]
    exact = (left.numbers @ right.numbers).astype(np.int32)
    after, names = kept(before)
    assert len(names) <= 1
    np.testing.assert_array_equal(plica.interpret(after, *arrays), exact)
    made = plica.compile(before, target=PLAIN if seed % 2 else HERE, cache=False)
    np.testing.assert_array_equal(made(*arrays), exact)


@FEW
@given(
    st.tuples(st.integers(1, 5), st.integers(1, 20), st.integers(4, 7), st.integers(1, 3)),
    st.tuples(BYTES, BYTES),
    st.tuples(st.sampled_from(KINDS[:3]), st.sampled_from(["none", "known", "middle", "each"])),
    st.integers(0, 99),
)  # fmt: skip
def test_windows_are_exact(
    sizes: tuple[int, int, int, int], dtypes: tuple[DType, DType], kinds: tuple[str, str], seed: int
) -> None:
    rng, (outputs, each, size, taps) = np.random.default_rng(seed), sizes
    groups = int(rng.integers(1, 4))
    outputs, channels = outputs * groups, each * groups
    of_data, of_weight = dtypes
    x = Var(Name("x"), tensor((2, channels, size, size), str(of_data)))
    w = Var(Name("w"), tensor((outputs, each, taps, taps), str(of_weight)))
    given_ = [bytes_of(rng, (2, channels, size, size), of_data),
              bytes_of(rng, (outputs, each, taps, taps), of_weight)]  # fmt: skip
    sides: list[Expr] = []
    for of, kind, dtype in zip((x, w), kinds, dtypes, strict=True):
        side: Expr = cast(of, i32)
        number = bytes_of(rng, (outputs, 1, 1, 1) if kind == "each" else (), dtype)
        if kind == "middle":
            number = np.asarray(128 if dtype is u8 else 0, dtype.numpy)
        if kind != "none":
            side = subtract(side, const(number.astype(np.int32), i32))
        sides.append(side)
    attrs = {"padding": int(rng.integers(0, 2)), "strides": int(rng.integers(1, 3))}
    attrs["groups"] = groups
    before = whole([x, w], conv(*sides, **attrs))
    after, names = kept(before)
    assert len(names) <= 1
    wanted = plica.interpret(before, *given_)
    np.testing.assert_array_equal(plica.interpret(after, *given_), wanted)
    np.testing.assert_array_equal(plica.compile(before, cache=False)(*given_), wanted)


@pytest.mark.parametrize("name", TARGETS)
def test_all_of_them_have_dot_products(name: str) -> None:
    rng = np.random.default_rng(3)
    for of_data, of_weight, zero, point in (
        (u8, u8, "known", "given"), (i8, u8, "each", "known"), (u8, i8, "given", "each given"),
    ):  # fmt: skip
        left = Side(rng, "x", bytes_of(rng, (9, 40), of_data), zero)
        right = Side(rng, "w", bytes_of(rng, (40, 32), of_weight), point)
        of = whole([*left.params, *right.params], matmul(left.term, right.term))
        assert kernels(lower(of, target=TARGETS[name]))


@pytest.mark.parametrize("name", ["sdot", "vnni512", "pairs256"])
def test_products_of_a_batch_and_groups_have_dot_products(name: str) -> None:
    rng = np.random.default_rng(5)
    left = Side(rng, "x", bytes_of(rng, (3, 9, 40), u8), "known")
    right = Side(rng, "w", bytes_of(rng, (3, 40, 32), u8), "given")
    of = whole([*left.params, *right.params], matmul(left.term, right.term))
    assert kernels(lower(of, target=TARGETS[name]))
    x = Var(Name("x"), tensor((1, 12, 9, 9), "u8"))
    data = subtract(cast(x, i32), const(np.int32(5), i32))
    weight = const(rng.integers(-128, 128, (32, 6, 3, 3)).astype(np.int32))
    of = whole([x], conv(data, weight, groups=2, padding=1))
    assert kernels(lower(of, target=TARGETS[name]))


@pytest.mark.parametrize(("outputs", "length", "zero"), [(1, 12, 3), (1, 12, 128), (13, 6, 3)])
def test_constant_windows_in_groups_have_their_sums_as_one_more_result(
    outputs: int, length: int, zero: int
) -> None:
    """One result in a group becomes two; rows of four results are read with their sums."""
    rng = np.random.default_rng(7)
    x = Var(Name("x"), tensor((1, 120, length), "u8"))
    weight = const(bytes_of(rng, (4 * outputs, 30, 3), u8).astype(np.int32) - zero, i32)
    before = whole([x], conv(subtract(cast(x, i32), const(255, i32)), weight, groups=4))
    after, derivation = rewrite(before, BYTE_PRODUCTS)
    assert isinstance(after, Module)
    assert [each.rule.name for each in derivation.steps] == ["byte-window-moved"]
    for target in TARGETS.values():
        assert kernels(lower(before, target=target))
    data = bytes_of(rng, (1, 120, length), u8)
    wanted = plica.interpret(before, data)
    np.testing.assert_array_equal(plica.interpret(after, data), wanted)
    np.testing.assert_array_equal(plica.compile(before, cache=False)(data), wanted)


def test_what_stays() -> None:
    """Short sums, few rows, zero points along the terms, and what is about its middle already."""
    rng = np.random.default_rng(0)

    def names(m: int, k: int, zero: str, point: str, *, along: bool = False) -> list[str]:
        left = Side(rng, "x", bytes_of(rng, (m, k), u8), zero)
        right = Side(rng, "w", bytes_of(rng, (k, 9), u8), point)
        term = right.term
        if along:
            term = subtract(cast(right.params[0], i32), const(np.ones((k, 1), np.int32), i32))
        return kept(whole([*left.params, *right.params], matmul(left.term, term)))[1]

    assert names(9, MIN_TERMS, "given", "given")
    assert not names(9, MIN_TERMS - 1, "given", "given")
    assert not names(GIVEN_ROWS - 1, 40, "given", "given")
    assert not names(9, 40, "middle", "none", along=True)
    assert not names(9, 40, "middle", "middle")
