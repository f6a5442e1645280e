from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from plica.ir.graph.expression import Expr
from plica.ir.interpret.interpreter import interpret
from plica.ir.type.infer import infer
from plica.rewrite.graph.total import Totality
from tests.rewrite.graph.law import WHOLE, doubling, let_chain, text
from tests.strategies import inputs_for, modules

SOURCE = """
@plica.data
class Box:
    Empty: ()
    Full: (Tensor[(2,), f32],)

@plica.function
def safe(x: Tensor[(2,), f32]) -> Tensor[(2,), f32]:
    return op.exp(x) + nn.softmax(x)

@plica.function
def loop(x: Tensor[(2,), f32]) -> Tensor[(2,), f32]:
    return loop(x)

@plica.function
def main(c: Tensor[(), bool], b: Tensor[(), i64], x: Tensor[(2,), f32]) -> Tensor[(2,), f32]:
    return BODY
"""
TOTAL = ["safe(x) + 1", "x if c else safe(x)", "(x, c)[0]", "(lambda v: loop(v), x)[1]"]
PARTIAL = ["loop(x)", "safe(loop(x))", "x if c else loop(x)", "x + op.take(x, b, axis=0)"]


def body_of(source: str) -> tuple[Totality, Expr]:
    module = text(SOURCE.replace("BODY", source))
    return Totality(module), module.main_function().body


@pytest.mark.parametrize("source", TOTAL)
def test_what_surely_has_a_value(source: str) -> None:
    total, body = body_of(source)
    assert total.of(body)


@pytest.mark.parametrize("source", PARTIAL)
def test_what_may_not_have_one(source: str) -> None:
    total, body = body_of(source)
    assert not total.of(body)


@WHOLE
@given(st.data())
def test_total_programs_do_not_fail(data: st.DataObject) -> None:
    module = infer(data.draw(modules()))
    if Totality(module).of(module.main_function().body):
        interpret(module, *data.draw(inputs_for(module)))


def test_deep_and_shared_terms() -> None:
    for module in (let_chain(2_000), doubling(60)):
        assert Totality(module).of(module.main_function().body)
