from __future__ import annotations

import numpy as np
from hypothesis import given, strategies as st

from plica.core.fold import post_order
from plica.ir.graph.expression import Call, Const, Function, If, Let
from plica.ir.graph.module import Module
from plica.ir.interpret.interpreter import interpret
from plica.ir.type.infer import infer
from plica.rewrite.graph.partial import evaluate_partially
from tests.conftest import Golden
from tests.rewrite.graph.law import (
    WHOLE,
    agree,
    doubling,
    function_chain,
    keeps_laws,
    let_chain,
    means_the_same,
    text,
    vector,
)
from tests.strategies import inputs_for, modules


@WHOLE
@given(st.data())
def test_it_keeps_the_laws(data: st.DataObject) -> None:
    keeps_laws(evaluate_partially, data)


@WHOLE
@given(st.data())
def test_it_keeps_them_when_the_fuel_runs_out(data: st.DataObject) -> None:
    before = infer(data.draw(modules()))
    after = evaluate_partially(before, fuel=data.draw(st.integers(0, 3)))
    means_the_same(before, after, data.draw(inputs_for(before)))


LISTS = """
@plica.data(forall="A")
class List:
    Nil: ()
    Cons: (A, List[A])

@plica.function(forall="A B")
def fold(f: Fn[(A, B), B], start: B, items: List[A]) -> B:
    match items:
        case Nil(): return start
        case Cons(head, tail): return f(head, fold(f, start, tail))

@plica.function
def upto(n: Tensor[(), i64]) -> List[Tensor[(), i64]]:
    return Nil() if n <= 0 else Cons(n, upto(n - 1))
"""


def test_a_program_without_inputs_becomes_its_result() -> None:
    source = """
@plica.function
def main() -> Tensor[(), i64]:
    return fold(lambda a, b: a + b, i64(0), upto(i64(100)))
"""
    made = evaluate_partially(text(LISTS + source))
    body = made.main_function().body
    assert isinstance(body, Const)
    assert body.numpy() == 5050
    assert len(made.names) == 1


def test_what_is_known_is_decided(golden: Golden) -> None:
    source = """
@plica.function
def power(x: Tensor[("n",), f32], k: Tensor[(), i64]) -> Tensor[("n",), f32]:
    return x * 0 + 1 if k <= 0 else x * power(x, k - 1)

@plica.function
def main(x: Tensor[("n",), f32], c: Tensor[(), bool], n: Tensor[(), i64]):
    scaled = fold(lambda a, b: b * op.cast(a, f32), x, Cons(i64(2), Cons(n, Nil())))
    pair = (power(x, i64(3)), c)
    add = lambda v: v + scaled
    return add(pair[0]) if 1 < 2 else x
"""
    module = text(LISTS + source)
    made = evaluate_partially(module)
    means_the_same(module, made, (vector(1.5, -2), True, np.int64(5)))
    golden(str(made))


def test_recursion_that_an_input_decides_stays(golden: Golden) -> None:
    source = """
@plica.function
def main(x: Tensor[(), f32], n: Tensor[(), i64]) -> Tensor[(), f32]:
    def loop(k: Tensor[(), i64], a: Tensor[(), f32]) -> Tensor[(), f32]:
        return a if k <= 0 else loop(k - 1, a * x)
    return loop(n, 1.0) + loop(i64(2), x)
"""
    golden(str(evaluate_partially(text(source))))


def test_what_does_not_end_is_left_to_whoever_runs_it() -> None:
    source = """
@plica.function
def up(n: Tensor[(), i64]) -> Tensor[(), i64]:
    return up(n + 1)

@plica.function
def grow(n: Tensor[(), i64], x: Tensor[(2,), f32]) -> Tensor[(2,), f32]:
    return x + grow(n + 1, x)

@plica.function
def main(c: Tensor[(), bool], x: Tensor[(2,), f32]) -> Tensor[(2,), f32]:
    return x + 1 if c else grow(up(i64(0)), x)
"""
    module = text(source)
    made = evaluate_partially(module, fuel=20, calls=500)
    means_the_same(module, made, (True, vector(1, 2)))
    assert len(post_order(made)) < 500


def test_calls_stay_lazy_and_shared() -> None:
    made = evaluate_partially(function_chain(300))
    kinds = (Call, Function, Let, If)
    assert not any(isinstance(each, kinds) for each in post_order(made.main_function().body))
    assert agree(interpret(made, vector(1, 2)), vector(301, 602))


def test_deep_and_shared_terms() -> None:
    for given_ in (let_chain(2_000), doubling(60)):
        made: Module = evaluate_partially(given_)
        assert len(post_order(made)) <= len(post_order(given_))
