"""Products of bytes over several axes of rows, of which some are open, have one axis of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings, strategies as st

import plica
from plica.core.name import Name
from plica.ir.graph.expression import Expr, Function, Var, const
from plica.ir.graph.module import Module, module
from plica.ir.loop.scalar import ScalarVar
from plica.ir.op.elementwise import add, cast, subtract
from plica.ir.op.linear import matmul
from plica.ir.type.dim import dim_var
from plica.ir.type.dtype import i32
from plica.ir.type.term import tensor
from plica.rewrite import rewrite
from plica.rewrite.packs.byte_window import BYTE_WINDOWS

FEW = settings(max_examples=max(6, settings().max_examples // 10), deadline=None)
ROWS = st.lists(st.tuples(st.integers(1, 5), st.booleans()), min_size=1, max_size=3)
"""Sizes of rows, and whether they are open."""


def product_of(
    sizes: tuple[Any, ...], weight: Any, zero: str, shape: tuple[int, ...] = ()
) -> Module:
    """A product of bytes less a zero point that is given or known, or none."""
    q, z = Var(Name("q"), tensor(sizes, "u8")), Var(Name("z"), tensor(shape, "u8"))
    data: Expr = cast(q, i32)
    if zero == "given":
        data = subtract(data, cast(z, i32))
    elif zero == "known":
        data = add(data, const(np.int32(-7)))
    dims = tuple([each for each in sizes if isinstance(each, ScalarVar)])
    main = Var(Name("main"), None)
    return module({main: Function(dims, (), (q, z), None, matmul(data, const(weight)))}, main)


@FEW
@given(ROWS, st.sampled_from(["none", "given", "known"]), st.integers(0, 99))
def test_rows_of_any_axes_are_exact(rows: list[tuple[int, bool]], zero: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    depth, columns = int(rng.integers(1, 40)), int(rng.integers(1, 40))
    sizes = [dim_var(f"d{at}") if is_open else size for at, (size, is_open) in enumerate(rows)]
    weight = rng.integers(-128, 128, (depth, columns)).astype(np.int32)
    before = product_of((*sizes, depth), weight, zero)
    after, derivation = rewrite(before, BYTE_WINDOWS)
    mixed = len({is_open for _, is_open in rows}) == 2
    assert [each.rule.name.startswith("byte-rows") for each in derivation.steps] == [True] * mixed
    shape = tuple([size for size, _ in rows])
    x, point = rng.integers(0, 256, (*shape, depth)).astype(np.uint8), np.uint8(200)
    wanted = plica.interpret(before, x, point)
    assert isinstance(after, Module)
    np.testing.assert_array_equal(plica.interpret(after, x, point), wanted)
    if mixed:
        made = plica.compile(before, cache=False)
        np.testing.assert_array_equal(made(x, point), wanted)
        none = x[:0] if rows[0][1] else x
        np.testing.assert_array_equal(made(none, point), plica.interpret(before, none, point))


def test_zero_points_of_rows_stay() -> None:
    sizes, weight = (1, dim_var("n"), 20), np.ones((20, 8), np.int32)
    assert rewrite(product_of(sizes, weight, "given", (1, 1, 1)), BYTE_WINDOWS)[1].steps
    assert not rewrite(product_of((3, dim_var("n"), 20), weight, "given", (3, 1, 1)), BYTE_WINDOWS)[
        1
    ].steps
