"""Views: chains of arrangements and layers come to an end in a normal form, and mean the same."""

from __future__ import annotations

from math import prod

import numpy as np
from hypothesis import given, settings, strategies as st

import plica
from plica.core.name import Name
from plica.ir.graph.expression import Expr, Function, Var, const
from plica.ir.graph.module import module
from plica.ir.op.cut import slice_
from plica.ir.op.elementwise import add
from plica.ir.op.linear import dense
from plica.ir.op.shape import reshape, transpose
from plica.ir.type.dtype import f32
from plica.ir.type.infer import infer
from plica.ir.type.term import tensor
from plica.rewrite.pack import rewrite
from plica.rewrite.packs.view import VIEWS


@st.composite
def chains(draw: st.DrawFn) -> tuple[Expr, tuple[int, ...]]:
    """A tensor that is arranged, cut and multiplied in some order, and the shape it begins with."""
    start = tuple(draw(st.lists(st.sampled_from((1, 2, 3, 4)), min_size=2, max_size=4)))
    value: Expr = Var(Name("x"), tensor(start, "f32"))
    shape = start
    for kind in draw(st.lists(st.sampled_from("rrttsdb"), min_size=2, max_size=7)):
        if kind == "r":
            cuts = draw(st.lists(st.sampled_from((1, 2, 3)), max_size=3))
            parts = [each for each in cuts if prod(shape) % prod(cuts) == 0]
            rest = prod(shape) // prod(parts)
            shape = tuple(draw(st.permutations([*parts, rest])))
            value = reshape(value, shape)
        elif kind == "t":
            order = tuple(draw(st.permutations(range(len(shape)))))
            value, shape = transpose(value, order), tuple([shape[at] for at in order])
        elif kind == "s":
            at = draw(st.integers(0, len(shape) - 1))
            first = draw(st.integers(0, shape[at] - 1))
            last = draw(st.integers(first + 1, shape[at]))
            value = slice_(value, (first,), (last,), None, (at,))
            shape = (*shape[:at], last - first, *shape[at + 1 :])
        elif kind == "d" and len(shape) > 1:
            wide = draw(st.integers(1, 4))
            weight = np.arange(wide * shape[-1], dtype=np.float32).reshape(wide, -1) % 5 - 2
            value, shape = dense(value, const(weight, f32)), (*shape[:-1], wide)
        elif kind == "b":
            value = add(value, const(np.arange(shape[-1], dtype=np.float32), f32))
    return value, start


@settings(max_examples=40)
@given(chains())
def test_chains_mean_the_same(given: tuple[Expr, tuple[int, ...]]) -> None:
    value, start = given
    after, _ = rewrite(value, VIEWS)
    assert isinstance(after, Expr)
    x, main = Var(Name("x"), tensor(start, "f32")), Var(Name("main"), None)
    data = np.arange(prod(start), dtype=np.float32).reshape(start) % 7 - 3
    old, new = (
        plica.interpret(infer(module({main: Function((), (), (x,), None, each)}, main)), data)
        for each in (value, after)
    )
    np.testing.assert_array_equal(old, new)
