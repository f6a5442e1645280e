"""Modules: definitions sorted by name, found by name, told apart by what they are."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, strategies as st

from plica.core.binding import free_vars
from plica.core.diagnostic import IllFormed
from plica.core.digest import digest
from plica.core.name import Name
from plica.ir.graph.expression import Function, Var, const
from plica.ir.graph.module import ConstructorDef, DataDef, Module, constructors, module
from plica.ir.type.dtype import f32
from plica.ir.type.term import DataName, DataType, FuncType, TypeVar, tensor
from plica.runtime.error import PlicaError
from tests.strategies import modules

SCALAR = tensor((), f32)
ONE = Function((), (), (), SCALAR, const(1.0, f32))
F, G = (Var(Name(name), FuncType((), (), (), SCALAR)) for name in "fg")


@given(modules(), st.randoms(use_true_random=False))
def test_the_order_of_definitions_does_not_matter(whole: Module, chance: random.Random) -> None:
    items = list(whole.items())
    chance.shuffle(items)
    assert module(dict(items), whole.main) is whole


@given(modules())
def test_a_module_is_its_definitions(whole: Module) -> None:
    assert module(dict(whole.items()), whole.main) is whole
    assert [name.name for name in whole.names] == sorted(name.name for name in whole.names)
    assert whole.main_function() is whole.definitions()[whole.main]  # type: ignore[index]
    for name, value in whole.items():
        if sum(str(other.name) == str(name.name) for other in whole.names) == 1:
            assert whole.find(str(name.name)) is value
    assert free_vars(whole) == frozenset()


def test_no_name_is_defined_twice() -> None:
    other = Var(F.name, None)
    with pytest.raises(IllFormed, match="defines f twice"):
        Module((F, other), (ONE, ONE), None)
    with pytest.raises(IllFormed, match="2 names for 1 definitions"):
        Module((F, G), (ONE,), None)


def test_a_module_may_have_no_main() -> None:
    library = module({F: ONE})
    assert library.find("f") is ONE
    assert library.find("g") is None
    with pytest.raises(PlicaError, match="no main function") as caught:
        library.main_function()
    assert caught.value.code == "no-main"
    assert caught.value.diagnostics[0].suggestion is not None
    assert digest(library) == digest(module({G: ONE})) != digest(module({F: ONE}, F))


def test_constructors_are_polymorphic_functions() -> None:
    a = TypeVar(Name("A"))
    name = DataName(Name("List"))
    whole = DataType(name, (a,))
    data = DataDef(
        (a,), (ConstructorDef(Name("Nil"), ()), ConstructorDef(Name("Cons"), (a, whole)))
    )
    nil, cons = constructors(name, data)
    assert (nil.index, cons.index) == (0, 1)
    assert nil.type is FuncType((), (a,), (), whole)
    assert cons.type is FuncType((), (a,), (a, whole), whole)
