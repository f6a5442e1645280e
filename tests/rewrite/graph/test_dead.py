from __future__ import annotations

import attrs
from hypothesis import given, strategies as st

from plica.ir.graph.expression import Let
from plica.ir.graph.module import Module, module
from plica.rewrite.graph.dead import remove_dead, remove_unreachable
from tests.conftest import Golden
from tests.rewrite.graph.law import WHOLE, doubling, keeps_laws, let_chain, text, wide_lets
from tests.strategies import modules


@WHOLE
@given(st.data())
def test_it_keeps_the_laws(data: st.DataObject) -> None:
    keeps_laws(remove_dead, data)


@WHOLE
@given(modules())
def test_doing_it_twice_changes_nothing(module: Module) -> None:
    once = remove_dead(module)
    assert remove_dead(once) is once


def test_what_nobody_needs_is_gone(golden: Golden) -> None:
    source = """
@plica.data
class Unused:
    Empty: ()

@plica.function
def helper(x: Tensor[(2,), f32]) -> Tensor[(2,), f32]:
    return helper(x)

@plica.function
def main(x: Tensor[(2,), f32], y: Tensor[(2,), f32]) -> Tensor[(2,), f32]:
    only = op.exp(y)
    def loop(n: Tensor[(), i64], a: Tensor[(2,), f32], b: Tensor[(2,), f32]) -> Tensor[(2,), f32]:
        return a if n <= 0 else loop(n - 1, a + x, b + only)
    def never(a: Tensor[(2,), f32]) -> Tensor[(2,), f32]:
        return helper(a)
    return loop(i64(3), x, only)
"""
    golden(str(remove_dead(text(source))))


def test_without_a_main_everything_is_needed() -> None:
    known = doubling(3)
    library = module(dict(known.items()))
    assert remove_unreachable(library).names == known.names


def test_nothing_dead_is_the_same_object() -> None:
    for given_ in (let_chain(2_000), wide_lets(1_000), doubling(60)):
        assert remove_dead(given_) is given_


def test_one_function_let_twice_needs_the_arguments_of_all_calls() -> None:
    source = """
@plica.function
def main(x: Tensor[(2,), f32], y: Tensor[(2,), f32]) -> Tensor[(2,), f32]:
    unused = op.exp(x)
    def one(a: Tensor[(2,), f32]) -> Tensor[(2,), f32]:
        return a * a
    def two(a: Tensor[(2,), f32]) -> Tensor[(2,), f32]:
        return a * a
    return one(op.sin(x)) + two(op.cos(y))
"""
    known = text(source)
    assert known.main is not None
    shared = known.main_function()
    assert isinstance(shared.body, Let)
    one = shared.body.body
    assert isinstance(one, Let)
    assert isinstance(one.body, Let)
    same = Let(one.var, one.value, Let(one.body.var, one.value, one.body.body))
    body = Let(shared.body.var, shared.body.value, same)
    made = remove_dead(module({known.main: attrs.evolve(shared, body=body)}, known.main))
    assert str(made).count("op.sin") == str(made).count("op.cos") == 1
