from __future__ import annotations

from importlib import import_module
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from plica.core.fold import post_order
from plica.core.name import Name
from plica.ir.graph.expression import Call, Function, Var
from plica.ir.graph.module import Defined, Definition, module
from plica.ir.interpret.interpreter import interpret
from plica.ir.type.infer import infer
from plica.ir.type.term import FuncType
from plica.rewrite.graph.inline import inline
from plica.rewrite.graph.walk import expressions
from tests.conftest import Golden
from tests.rewrite.graph.law import (
    VECTOR,
    WHOLE,
    X,
    agree,
    doubling,
    function_chain,
    keeps_laws,
    let_chain,
    text,
    vector,
)


@WHOLE
@given(st.data())
def test_it_keeps_the_laws(data: st.DataObject) -> None:
    keeps_laws(inline, data)


SOURCE = """
@plica.function
def small(x: Tensor[("n",), f32]) -> Tensor[("n",), f32]:
    return op.reshape(x + x, ("n",))

@plica.function(attrs={"inline": False})
def kept(x: Tensor[(2,), f32]) -> Tensor[(2,), f32]:
    return x * x

@plica.function
def loop(n: Tensor[(), i64], x: Tensor[(2,), f32]) -> Tensor[(2,), f32]:
    return x if n <= 0 else loop(n - 1, small(x))

@plica.function
def main(x: Tensor[(2,), f32]) -> Tensor[(2,), f32]:
    y = op.exp(x)
    def local(z: Tensor[(2,), f32]) -> Tensor[(2,), f32]:
        def inner(w: Tensor[(2,), f32]) -> Tensor[(2,), f32]:
            return w + z
        return inner(y)
    return loop(i64(2), small(kept(x))) + local(op.tanh(x))
"""


def test_suitable_calls_are_replaced(golden: Golden) -> None:
    golden(str(inline(text(SOURCE))))


@pytest.mark.parametrize("name", ["kept", "loop"])
def test_others_are_not(name: str) -> None:
    after = inline(text(SOURCE))
    called = {each.callee for each in post_order(after) if isinstance(each, Call)}
    assert any(str(each.name) == name for each in called if isinstance(each, Var))


def test_inlining_ends_however_much_it_could_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_module("plica.rewrite.graph.inline"), "GROWTH", 10_000)
    names = [Var(Name("f", i), FuncType((), (), (VECTOR,), VECTOR)) for i in range(60)]
    marked = (("inline", True),)
    table: dict[Defined, Definition] = {names[0]: Function((), (), (X,), VECTOR, X + X, marked)}
    for before, name in pairwise(names):
        twice = Call(before, (Call(before, (X,)),))
        table[name] = Function((), (), (X,), VECTOR, twice, marked)
    main = Var(Name("main"), names[0].type)
    table[main] = Function((), (), (X,), VECTOR, Call(names[-1], (X,)))
    made = inline(infer(module(table, main)))
    sizes = [len(expressions(each)) for each in made.values if isinstance(each, Function)]
    assert 1_000 < sum(sizes) < 20_000


def test_deep_and_shared_terms() -> None:
    for given_ in (let_chain(2_000), doubling(60)):
        assert inline(given_) is given_
    chain = function_chain(300)
    made = inline(chain)
    assert not any(isinstance(each, Call) for each in expressions(made.main_function()))
    args = vector(1, 2)
    assert agree(interpret(made, args), interpret(chain, args))
