from __future__ import annotations

from hypothesis import given, strategies as st

from plica.ir.graph.expression import Apply
from plica.ir.graph.module import Module
from plica.rewrite.graph.anf import to_anf
from plica.rewrite.graph.cse import merge_common
from plica.rewrite.graph.walk import expressions
from tests.conftest import Golden
from tests.rewrite.graph.law import WHOLE, doubling, keeps_laws, let_chain, text, wide_lets
from tests.strategies import modules


@WHOLE
@given(st.data())
def test_it_keeps_the_laws(data: st.DataObject) -> None:
    keeps_laws(merge_common, data)


@WHOLE
@given(modules())
def test_doing_it_twice_changes_nothing(module: Module) -> None:
    once = merge_common(module)
    assert merge_common(once) is once


@WHOLE
@given(modules())
def test_no_operator_is_added(module: Module) -> None:
    before = to_anf(module)
    after = merge_common(before)

    def count(of: Module) -> int:
        return sum(isinstance(e, Apply) for _, f in of.functions() for e in expressions(f))

    assert count(after) <= count(before)


def test_equal_lets_functions_and_definitions_are_one(golden: Golden) -> None:
    source = """
@plica.function
def double(x: Tensor[(2,), f32]) -> Tensor[(2,), f32]:
    return x + x

@plica.function
def twice(y: Tensor[(2,), f32]) -> Tensor[(2,), f32]:
    return y + y

@plica.function
def down(n: Tensor[(), i64]) -> Tensor[(), i64]:
    return n if n <= 0 else down(n - 1)

@plica.function
def under(k: Tensor[(), i64]) -> Tensor[(), i64]:
    return k if k <= 0 else under(k - 1)

@plica.function
def main(c: Tensor[(), bool], x: Tensor[(2,), f32], n: Tensor[(), i64]):
    a = op.exp(x)
    b = op.exp(x)
    f = lambda u: u * a
    g = lambda v: v * b
    if c:
        d = op.exp(x)
        return f(double(a)) + d, down(n)
    else:
        e = op.tanh(x)
        return g(twice(b)) + e, under(n)
"""
    golden(str(merge_common(text(source))))


def test_a_let_in_one_branch_is_not_seen_in_the_other() -> None:
    source = """
@plica.function
def main(c: Tensor[(), bool], x: Tensor[(2,), f32]) -> Tensor[(2,), f32]:
    if c:
        a = op.exp(x)
        return a * a
    else:
        b = op.exp(x)
        return b + b
"""
    module = text(source)
    assert merge_common(module) is module


def test_deep_and_shared_terms() -> None:
    for module in (let_chain(2_000), wide_lets(1_000), doubling(60)):
        assert merge_common(module) is module
