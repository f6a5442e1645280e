"""Elements put a given number of places apart mean what they did, and no place asks for its
rest."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from hypothesis import given, settings, strategies as st

import plica
from plica import op
from plica.core.name import Name
from plica.ir.graph.expression import Function, Var
from plica.ir.graph.module import Module, module
from plica.ir.loop.stages import kernel_of
from plica.ir.op.cut import unslice
from plica.ir.type.term import tensor
from plica.rewrite.fuse.to_stages import to_stages
from plica.schedule.default import Machine
from plica.schedule.default.piecewise import piecewise_schedule

Sizes: TypeAlias = tuple[int, ...]

FEW = settings(max_examples=max(4, settings().max_examples // 4))


def spread(shape: Sizes, steps: Sizes, starts: Sizes) -> Function:
    """Elements at a start and at a fixed distance from one another, and no negative ones."""
    sizes = tuple([-(-(n - a) // s) for n, s, a in zip(shape, steps, starts, strict=True)])
    x = Var(Name("x"), tensor(sizes, "f32"))
    axes, ends = tuple(range(len(shape))), (None,) * len(shape)
    put = unslice(x, starts, ends, steps, axes=axes, shape=shape)
    return Function((), (), (x,), None, op.nn.relu(put))


def whole(function: Function) -> Module:
    main = Var(Name("main"), None)
    return module({main: function}, main)


@FEW
@given(st.data())
def test_elements_put_apart_mean_the_same(data: st.DataObject) -> None:
    draw = data.draw
    rank = draw(st.integers(1, 3))
    shape = tuple([draw(st.integers(9, (700, 50, 20)[rank - 1])) for _ in range(rank)])
    steps = tuple([draw(st.sampled_from((1, 2, 3, 5, 9))) for _ in range(rank)])
    starts = tuple([draw(st.integers(0, 8)) for _ in range(rank)])
    of = whole(spread(shape, steps, starts))
    wanted = np.zeros(shape, np.float32)
    there = tuple([slice(a, None, s) for a, s in zip(starts, steps, strict=True)])
    values = np.random.default_rng(rank).standard_normal(wanted[there].shape).astype(np.float32)
    made = plica.compile(of, cache=False, threads=draw(st.sampled_from((1, 2))))
    wanted[there] = np.maximum(values, 0)
    np.testing.assert_array_equal(made(values), wanted)


def test_no_place_asks_for_its_rest() -> None:
    of = whole(spread((8, 31, 46), (1, 2, 3), (0, 1, 2)))
    text = plica.compile(of, cache=False).source("kernel")
    assert "%" not in text
    assert "//" not in text


def test_steps_that_are_long_and_tensors_that_are_short_stay() -> None:
    for shape, steps in (((900,), (9,)), ((20, 20), (2, 2))):
        made = to_stages(spread(shape, steps, (0,) * len(steps))).stages
        assert piecewise_schedule(kernel_of(made), Machine(512, 32)) is None
