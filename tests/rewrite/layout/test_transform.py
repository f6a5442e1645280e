"""Transforms of layouts as terms, and the rules that cancel them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from plica.core.diagnostic import IllTyped
from plica.core.name import Name
from plica.ir.contract import exact
from plica.ir.graph.expression import Apply, Const, Expr, Var, const
from plica.ir.interpret.interpreter import interpret
from plica.ir.loop.layout import Layout, as_it_is, permuted, read_layout
from plica.ir.type.dim import dim, dim_var
from plica.ir.type.infer import type_of
from plica.ir.type.term import tensor
from plica.rewrite.check.run import check
from plica.rewrite.check.verdict import Tested
from plica.rewrite.layout.rules import LAYOUT
from plica.rewrite.layout.transform import shape_of, transform
from plica.rewrite.pack import rewrite
from tests.ir.loop.test_layout import layouts, shapes
from tests.rewrite.graph.law import program


@given(layouts(3), layouts(3), shapes(3, 5))
def test_it_means_packing(a: Layout, b: Layout, shape: tuple[int, ...]) -> None:
    value = np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
    before = a.pack(value)
    x = Var(Name("x"), tensor(before.shape, "f32"))
    term = transform(x, a, b, [dim(size) for size in shape])
    found = interpret(program(term, (x,), type_of(term)), before)
    assert np.array_equal(np.asarray(found), b.pack(value))
    folded = transform(const(before), a, b, [dim(size) for size in shape])
    assert isinstance(folded, Const)
    assert np.array_equal(folded.numpy(), b.pack(value))


@given(layouts(3), shapes(3, 5))
def test_there_and_back_cancels(a: Layout, shape: tuple[int, ...]) -> None:
    if a.shape_of([dim(size) for size in shape]) is None:
        return  # padding is cut off again, and cutting is no transform
    x = Var(Name("x"), tensor(shape, "f32"))
    plain = as_it_is(3)
    there = transform(x, plain, a, shape_of(x))
    back = transform(there, a, plain, shape_of(x))
    if a.is_permutation:
        assert rewrite(back, LAYOUT)[0] is x
    assert transform(there, a, a, shape_of(x)) is there


def test_a_permutation_is_one_transpose_and_blocks_are_two_operators() -> None:
    x = Var(Name("x"), tensor((1, 8, 5, 5), "f32"))
    moved = transform(x, as_it_is(4), permuted((0, 2, 3, 1)), shape_of(x))
    assert isinstance(moved, Apply)
    assert moved.op == "transpose"
    assert moved.args == (x,)
    blocked = transform(x, as_it_is(4), read_layout("NCHW4c", "NCHW"), shape_of(x))
    assert isinstance(blocked, Apply)
    assert blocked.op == "transpose"
    assert isinstance(blocked.args[0], Apply)
    assert blocked.args[0].op == "reshape"
    assert blocked.args[0].args == (x,)


def test_blocks_that_do_not_divide_are_padded_and_cut() -> None:
    x = Var(Name("x"), tensor((1, 3, 2, 2), "f32"))
    layout = read_layout("NCHW4c", "NCHW")
    there = transform(x, as_it_is(4), layout, shape_of(x))
    assert [size.value for size in shape_of(there)] == [1, 1, 2, 2, 4]  # type: ignore[attr-defined]
    back = transform(there, layout, as_it_is(4), shape_of(x))
    assert shape_of(back) == shape_of(x)


def test_an_axis_of_unknown_size_is_refused() -> None:
    x = Var(Name("x"), tensor((1, dim_var("n"), 2, 2), "f32"))
    with pytest.raises(IllTyped) as error:
        transform(x, as_it_is(4), read_layout("NCHW4c", "NCHW"), shape_of(x))
    assert error.value.diagnostics[0].code == "bad-layout"


@pytest.mark.parametrize("rule", LAYOUT.rules, ids=lambda rule: rule.name)
def test_the_rules_hold(rule: object) -> None:
    found = next(each for each in LAYOUT if each is rule)
    assert found.contract == exact
    assert isinstance(check(found, examples=20), Tested)


@given(st.permutations(range(3)), st.permutations(range(3)), shapes(3, 3))
def test_transposes_compose(p: list[int], q: list[int], shape: tuple[int, ...]) -> None:
    x = Var(Name("x"), tensor(shape, "f32"))
    inner = transform(x, as_it_is(3), permuted(p), shape_of(x))
    both = transform(inner, as_it_is(3), permuted(q), shape_of(inner))
    done, derivation = rewrite(both, LAYOUT)
    assert isinstance(done, Expr)
    value = np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
    found = interpret(program(done, (x,), type_of(done)), value)
    assert np.array_equal(np.asarray(found), value.transpose(p).transpose(q))
    assert rewrite(done, LAYOUT)[1].steps == ()
    assert derivation.contract == exact
