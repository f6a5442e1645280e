"""Nests that kernels have in common: which they are, and that calling them changes nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings, strategies as st

import plica
from plica.codegen.llvm import common_nest
from plica.codegen.llvm.common_nest import HEAVY, common_nests
from plica.core.name import Name
from plica.ir.graph.expression import Expr, Function, Var, const
from plica.ir.graph.module import Module, module
from plica.ir.loop.scalar import Buffer, Load, ScalarVar, index, lit
from plica.ir.loop.statement import Alloc, For, Kernel, LoopKind, Seq, Stmt, Store
from plica.ir.type.dtype import f32, i64
from plica.ir.type.term import tensor
from plica.op import nn

WIDE = HEAVY + 2
ROW, STEP, COLUMN = (ScalarVar(Name(each), i64) for each in ("row", "step", "column"))
X = Buffer(Name("x"), (index(9), index(8), index(WIDE)), f32)
ROOM = Buffer(Name("room"), X.shape, f32)
TILE = Buffer(ROOM.name, (index(1), *ROOM.shape[1:]), f32, "local")
OUT = Buffer(Name("out"), (index(9),), f32)


def kernel(
    more: float, turns: int = 4, wide: int = WIDE, kind: LoopKind = "serial", *,
    room: Buffer = ROOM, own: bool = False,
) -> Kernel:  # fmt: skip
    """A nest that fills some room, and an epilogue that is not as another kernel's."""
    copied: Stmt = Store(room, (ROW, STEP, COLUMN), Load(X, (ROW, STEP, COLUMN)))
    nest = For(STEP, index(8), kind, For(COLUMN, index(wide), "unrolled", copied))
    last = Load(room, (ROW, index(7), index(0))) + lit(more, f32)
    body: Stmt = For(ROW, index(turns), "serial", Seq((nest, Store(OUT, (ROW,), last))))
    params: tuple[Buffer, ...] = (X, room, OUT)
    if own:
        body, params = Alloc(room, body), (X, OUT)
    return Kernel((), params, 1, body)


def test_a_nest_of_two_kernels_is_told_the_loops_around_it() -> None:
    found = common_nests([(kernel(1.0), None), (kernel(2.0), None), (kernel(3.0, turns=5), None)])
    (nest,) = found[0]
    assert found == [(nest,), (nest,), ()]
    assert nest.kernel.dims == (ROW,)
    assert nest.bounds == ((0, 3),)
    assert nest.kernel.params == (X, ROOM)
    assert nest.kernel.inputs == 1


@pytest.mark.parametrize("own", [False, True])
def test_memory_that_kernels_allocate_is_told(own: bool) -> None:
    ((nest,), _) = common_nests([(kernel(more, own=own), None) for more in (1.0, 2.0)])
    assert nest.kernel.params == (X, ROOM)


@pytest.mark.parametrize(
    "pair",
    [
        (kernel(1.0), kernel(1.0, turns=5)),  # within other bounds
        (kernel(1.0, wide=HEAVY - 1), kernel(2.0, wide=HEAVY - 1)),  # not worth a function
        (kernel(1.0, room=TILE, own=True), kernel(2.0, room=TILE, own=True)),  # registers
        (kernel(1.0, kind="parallel"), kernel(2.0, kind="parallel")),
    ],
)
def test_what_is_no_nest(pair: tuple[Kernel, Kernel]) -> None:
    assert common_nests([(each, None) for each in pair]) == [(), ()]


def test_memory_of_two_names_is_not_told() -> None:
    one, two = (Kernel((), (X, ROOM), 1, kernel(each).body) for each in (1.0, 2.0))
    assert common_nests([(one, 0), (two, 0)]) == [(), ()]


def residual(channels: int, image: tuple[int, int], weights: list[Any]) -> Module:
    """Convolutions of one shape with other epilogues."""
    x = Var(Name("x"), tensor((1, channels, *image), "f32"))
    y: Expr = nn.relu(nn.conv(x, const(weights[0]), padding=1))
    y = nn.relu(nn.conv(y, const(weights[1]), padding=1) + x)
    y = nn.conv(y, const(weights[2]), padding=1)
    main = Var(Name("main"), None)
    return module({main: Function((), (), (x,), None, y)}, main)


@given(
    st.sampled_from((16, 24)),
    st.tuples(st.integers(8, 14), st.integers(8, 14)),
    st.integers(1, 2),
    st.sampled_from(("default", "fast")),
)
@example(24, (9, 13), 2, "fast")
@settings(max_examples=max(1, settings().max_examples // 100), deadline=None)
def test_kernels_that_call_nests_give_the_same_bits(
    channels: int, image: tuple[int, int], threads: int, effort: str
) -> None:
    random = np.random.default_rng(channels)
    shape = (channels, channels, 3, 3)
    weights = [random.standard_normal(shape).astype(np.float32) / 16 for _ in range(3)]
    of = residual(channels, image, weights)
    x = random.standard_normal((1, channels, *image)).astype(np.float32)
    made = []
    for heavy in (1, 10**9):  # all that is common, and nothing
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(common_nest, "HEAVY", heavy)
            made.append(plica.compile(of, threads=threads, effort=effort, cache=False))
    apart, whole = made
    assert len(apart.artefact.objects) > len(whole.artefact.objects)
    np.testing.assert_array_equal(np.asarray(apart(x)), np.asarray(whole(x)))
