from __future__ import annotations

from hypothesis import given, strategies as st

from plica.core.digest import alpha_equal
from plica.core.fold import post_order
from plica.ir.graph.expression import Apply, Call, Function, If, Let, Match
from plica.ir.graph.module import Module
from plica.ir.interpret.interpreter import interpret
from plica.rewrite.graph.anf import is_anf, to_anf
from plica.rewrite.graph.dataflow import to_dataflow
from tests.conftest import Golden
from tests.rewrite.graph.law import (
    WHOLE,
    agree,
    doubling,
    if_chain,
    keeps_laws,
    let_chain,
    text,
    vector,
    wide_lets,
)
from tests.strategies import modules


@WHOLE
@given(st.data())
def test_it_keeps_the_laws(data: st.DataObject) -> None:
    keeps_laws(to_anf, data, is_anf)


@WHOLE
@given(modules())
def test_doing_it_twice_changes_nothing_but_names(module: Module) -> None:
    once = to_anf(module)
    assert alpha_equal(to_anf(once), once)


@WHOLE
@given(modules())
def test_pure_dataflow_comes_back(module: Module) -> None:
    source = to_dataflow(module)
    back = to_dataflow(to_anf(source)).definitions()
    for name, function in source.functions():
        inside = post_order(function.body)
        if not any(isinstance(each, Function | Let | Call | Match | If) for each in inside):
            assert alpha_equal(back[name], function)


ALIKE = """
@plica.function
def main(c: Tensor[(), bool], x: Tensor[(2,), f32]) -> Tensor[(2,), f32]:
    def plain() -> Tensor[(2,), f32]:
        return x + x
    def named() -> Tensor[(2,), f32]:
        y = x
        z = y + y
        return z
    return plain() + op.exp(x) if c else named() * op.exp(x)
"""


def test_values_that_only_lets_told_apart_become_one() -> None:
    once = to_anf(text(ALIKE))
    assert alpha_equal(to_anf(once), once)
    assert sum(isinstance(each, Function) for each in post_order(once)) == 2


SHARED = """
@plica.function
def main(c: Tensor[(), bool], x: Tensor[(2,), f32]) -> Tensor[(2,), f32]:
    both = op.exp(x)
    one = op.tanh(x)
    return both + 1 if c else both * (one + one)
"""


def test_what_one_branch_needs_is_bound_there(golden: Golden) -> None:
    golden(str(to_anf(text(SHARED))))


CAPTURED = """
@plica.function
def main(x: Tensor[(2,), f32]) -> Tensor[(2,), f32]:
    y = op.exp(x)
    def f(z: Tensor[(2,), f32]) -> Tensor[(2,), f32]:
        return z + y
    return f(f(x))
"""


def test_what_a_function_captures_stays_outside(golden: Golden) -> None:
    golden(str(to_anf(text(CAPTURED))))


LOOP = """
@plica.function
def forever(x: Tensor[(2,), f32]) -> Tensor[(2,), f32]:
    return forever(x)

@plica.function
def main(c: Tensor[(), bool], x: Tensor[(2,), f32]) -> Tensor[(2,), f32]:
    if c:
        if c:
            return x
        else:
            return forever(x)
    else:
        if c:
            return forever(x)
        else:
            return x + 1
"""


def test_what_may_not_end_waits_until_it_is_needed(golden: Golden) -> None:
    made = to_anf(text(LOOP))
    assert agree(interpret(made, True, vector(1, 2)), vector(1, 2))
    assert agree(interpret(made, False, vector(1, 2)), vector(2, 3))
    golden(str(made))


def test_tail_calls_stay_tail_calls() -> None:
    source = """
@plica.function
def count(n: Tensor[(), i64]) -> Tensor[(), i64]:
    return n if n <= 0 else count(n - 1)

@plica.function
def main(n: Tensor[(), i64]) -> Tensor[(), i64]:
    return count(n)
"""
    calls = [each for each in post_order(to_anf(text(source))) if isinstance(each, Call)]
    lets = [each.value for each in post_order(to_anf(text(source))) if isinstance(each, Let)]
    assert calls
    assert not set(calls) & set(lets)


def test_deep_and_shared_terms() -> None:
    for module in (let_chain(2_000), wide_lets(1_000), doubling(60), if_chain(200)):
        made = to_anf(module)
        assert is_anf(made)
        nodes = [each for each in post_order(made) if isinstance(each, Apply)]
        assert len(nodes) <= len(post_order(module))
