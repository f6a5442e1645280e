"""Products of restored bytes are those of integers: they mean the same, others stay."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import plica
from plica.core.name import Name
from plica.ir.graph.expression import Var, const
from plica.ir.graph.module import Module
from plica.ir.op.elementwise import cast, multiply, subtract
from plica.ir.op.linear import matmul
from plica.ir.type.dtype import f32, i8, i32, u8
from plica.ir.type.term import tensor
from plica.rewrite import reassociates, rewrite
from plica.rewrite.packs.byte_product import BYTE_PRODUCTS, SHALLOWEST
from tests.schedule.default.test_grouped import whole

FEW = settings(max_examples=max(6, settings().max_examples // 8), deadline=None)


def product(
    data: tuple[int, int], weight: Any, scales: tuple[Any, Any], zeros: tuple[Any, Any]
) -> Module:
    q = Var(Name("q"), tensor(data, "u8"))
    w = const(np.asarray(weight, np.int8), i8)
    sides = []
    for side, scale, zero in zip((q, w), scales, zeros, strict=True):
        moved = cast(side, f32)
        if zero is not None:
            moved = cast(subtract(cast(side, i32), const(np.asarray(zero, np.int32), i32)), f32)
        sides.append(multiply(moved, const(np.asarray(scale, np.float32), f32)))
    return whole([q], matmul(*sides))


def steps(of: Module) -> tuple[Module, list[str]]:
    after, derivation = rewrite(of, BYTE_PRODUCTS, reassociates)
    assert isinstance(after, Module)
    return after, [each.rule.name for each in derivation.steps]


@FEW
@given(st.data())
def test_the_product_means_the_same(data: st.DataObject) -> None:
    rows, depth, columns = (data.draw(st.integers(low, 40)) for low in (1, SHALLOWEST, 1))
    rng = np.random.default_rng(data.draw(st.integers(0, 99)))
    shape = data.draw(st.sampled_from([(), (columns,), (1, columns)]))
    zero = data.draw(st.sampled_from([None, 0, 128, 255]))
    by = data.draw(st.sampled_from([None, 0, -3]))
    weight = rng.integers(-120, 121, (depth, columns))
    before = product((rows, depth), weight, (0.05, rng.random(shape) + 0.1), (zero, by))
    after, names = steps(before)
    assert len(names) == 1
    x = rng.integers(0, 256, (rows, depth)).astype(u8.numpy)
    wanted, found = plica.interpret(before, x), plica.interpret(after, x)
    scale = np.abs(wanted).max() + 1.0
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5 * scale)


def test_native_code_means_the_same() -> None:
    rng = np.random.default_rng(0)
    before = product((3, 37), rng.integers(-127, 128, (37, 21)), (0.05, 0.02), (128, 0))
    x = rng.integers(0, 256, (3, 37)).astype(u8.numpy)
    found = plica.compile(before, cache=False, threads=1)(x)
    np.testing.assert_allclose(found, plica.interpret(before, x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("scales", "zeros", "depth"),
    [
        ((0.5, np.full((20, 1), 0.5)), (128, 0), 20),
        ((np.full((3, 1), 0.5), 0.5), (128, 0), 20),
        ((np.inf, 0.5), (128, 0), 20),
        ((1e-30, 0.5), (128, 0), 20),
        ((0.5, 0.5), (1 << 20, 0), 20),
        ((0.5, 0.5), (128, 100), 20),
        ((0.5, 0.5), (128, 0), SHALLOWEST - 1),
    ],
    ids=["rows", "lines", "infinite", "tiny", "far", "no bytes", "shallow"],
)
def test_other_products_stay(scales: tuple[Any, Any], zeros: tuple[Any, Any], depth: int) -> None:
    before = product((3, depth), np.full((depth, 4), -100), scales, zeros)
    assert steps(before) == (before, [])
