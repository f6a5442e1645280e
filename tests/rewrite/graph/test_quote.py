from __future__ import annotations

from typing import Any

from hypothesis import given, strategies as st

from plica.ir.graph.module import Module
from plica.ir.interpret.interpreter import interpret
from plica.ir.type.term import FuncType, TupleType
from plica.rewrite.graph.quote import quote
from tests.rewrite.graph.law import VECTOR, WHOLE, agree, program, text, vector
from tests.strategies import types, values_of


@WHOLE
@given(st.data())
def test_a_quoted_value_has_that_value(data: st.DataObject) -> None:
    of = data.draw(types())
    try:
        value: Any = data.draw(values_of(of, {}))
    except AssertionError:
        return  # a type that tests make no values of
    written = quote(value, of, {}, 1 << 20)
    assert written is not None
    assert agree(interpret(program(written, (), of)), value)


def test_data_of_any_size() -> None:
    source = """
@plica.data(forall="A")
class List:
    Nil: ()
    Cons: (A, List[A])

@plica.function
def upto(n: Tensor[(), i64]) -> List[Tensor[(), i64]]:
    return Nil() if n <= 0 else Cons(n, upto(n - 1))

@plica.function
def main() -> List[Tensor[(), i64]]:
    return upto(i64(3000))
"""
    module = text(source)
    value, function = interpret(module), module.main_function()
    assert function.ret is not None
    written = quote(value, function.ret, module.definitions(), 1 << 20)
    assert written is not None
    table = dict(module.items())
    assert module.main is not None
    table[module.main] = type(function)((), (), (), function.ret, written)
    again = Module(tuple(table), tuple(table.values()), module.main)
    assert agree(interpret(again), value)


def test_what_cannot_be_written() -> None:
    assert quote(vector(1, 2), VECTOR, {}, 7) is None
    assert quote(vector(1, 2), VECTOR, {}, 8) is not None
    function = FuncType((), (), (VECTOR,), VECTOR)
    pair = TupleType((VECTOR, function))
    assert quote((vector(1, 2), lambda x: x), pair, {}, 100) is None
