"""Linking modules."""

from __future__ import annotations

import pytest
from hypothesis import given

from plica.core.diagnostic import Malformed
from plica.core.name import Name
from plica.ir.graph.expression import Call, Function, Var, const
from plica.ir.graph.link import merge
from plica.ir.graph.module import ConstructorDef, DataDef, Module, module
from plica.ir.interpret.interpreter import interpret
from plica.ir.prelude import prelude
from plica.ir.text.script import from_text
from plica.ir.type.term import DataName
from tests.strategies import modules


def variable(name: str) -> Var:
    return Var(Name(name), None)


def constant(name: str, value: float) -> Module:
    return module({variable(name): Function((), (), (), None, const(value, "f32"))})


@given(modules())
def test_importing_twice_changes_nothing(of: Module) -> None:
    assert merge(of, of) is of
    assert merge(of) is of
    assert merge(merge(of, constant("new", 1)), constant("new", 1)) is merge(of, constant("new", 1))


def test_the_order_matters_only_for_main() -> None:
    one, two = constant("one", 1), constant("two", 2)
    assert merge(one, two) is merge(two, one)
    left = Module(one.names, one.values, variable("one"))
    right = Module(two.names, two.values, variable("two"))
    assert merge(left, right).main is left.main
    assert merge(right, left).main is right.main
    assert merge(one, right).main is right.main


def test_nothing_from_nothing() -> None:
    assert merge() is module({})


def test_clashes_are_all_reported() -> None:
    with pytest.raises(Malformed) as caught:
        merge(merge(constant("a", 1), constant("b", 1)), merge(constant("a", 2), constant("b", 2)))
    assert [each.code for each in caught.value.diagnostics] == ["duplicate-name"] * 2
    assert [each.place and each.place.node for each in caught.value.diagnostics] == ["a", "b"]


def test_definitions_equal_up_to_names_do_not_clash() -> None:
    def identity(name: str) -> Module:
        x = variable(name)
        return module({variable("id"): Function((), (), (x,), None, x)})

    assert merge(identity("x"), identity("y")) is identity("x")


def test_data_types_and_functions_share_their_names() -> None:
    data = module({DataName(Name("a")): DataDef((), (ConstructorDef(Name("Leaf"), ()),))})
    with pytest.raises(Malformed):
        merge(data, constant("a", 1))


def test_a_free_variable_is_linked_to_the_definition() -> None:
    main = variable("main")
    uses = module({main: Function((), (), (), None, Call(variable("one"), ()))}, main)
    assert interpret(merge(uses, constant("one", 1))) == 1
    typed = from_text("@plica.function\ndef one() -> f32:\n    return f32(1.0)\n")
    assert interpret(merge(uses, typed)) == 1
    assert interpret(merge(typed, uses)) == 1


def test_the_prelude_can_be_linked() -> None:
    own = from_text("@plica.function\ndef main(x: f32) -> f32:\n    return x + x\n")
    both = merge(own, prelude(), prelude())
    assert both.find("map") is prelude().find("map")
    assert interpret(both, 2.0) == 4
