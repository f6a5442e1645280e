"""Operator records: binding of arguments, refusals, registration."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from plica.core.diagnostic import IllTyped
from plica.core.name import Name
from plica.ir.graph.expression import Apply, Const, Literal, Var, attr
from plica.ir.op import Attribute, Mismatch, Operator, find, names, register
from plica.ir.op.record import pointwise
from plica.ir.type.dtype import f32
from plica.ir.type.term import tensor
from tests.ir.reference import run

X = Var(Name("x"), tensor((2, 3), "f32"))


def record_of(name: str) -> Operator:
    found = find(name)
    assert found is not None
    return found


def codes(error: IllTyped) -> list[str]:
    return [each.code for each in error.diagnostics]


# --- binding -------------------------------------------------------------------------------------


def test_attributes_come_by_position_or_name() -> None:
    total = record_of("sum")
    assert total(X, (0,)) is total(X, axis=0) is total(x=X, axis=[0], keepdims=False)
    assert attr_of(total(X), "axis") is None


def attr_of(term: Any, name: str) -> Any:
    assert isinstance(term, Apply)
    return attr(term, name)


def test_aliases_build_the_same_term() -> None:
    assert record_of("sub")(X, 1) is record_of("subtract")(X, 1)


def test_numpy_values_are_brought_to_pythons() -> None:
    total = record_of("sum")
    assert total(X, axis=np.int64(1), keepdims=np.bool_(True)) is total(X, axis=1, keepdims=True)
    cast = record_of("cast")
    assert cast(X, dtype=np.float32) is cast(X, dtype="float32") is cast(X, dtype=f32)


def test_numbers_and_arrays_become_terms() -> None:
    term = record_of("add")(np.array([1, 2], np.float32), 1)
    assert isinstance(term, Apply)
    assert isinstance(term.args[0], Const)
    assert isinstance(term.args[1], Literal)


def test_any_number_of_arguments_comes_as_a_tuple() -> None:
    term = record_of("concat")((X, X, X), axis=1)
    assert isinstance(term, Apply)
    assert term.args == (X, X, X)


# --- refusals ------------------------------------------------------------------------------------


def test_an_unknown_attribute_is_refused_with_a_suggestion() -> None:
    with pytest.raises(IllTyped) as caught:
        record_of("sum")(X, axes=0)
    assert codes(caught.value) == ["unknown-attribute"]
    assert caught.value.diagnostics[0].suggestion == "Did you mean 'axis'?"


@pytest.mark.parametrize(
    ("args", "given", "found"),
    [((), {}, "no x"), ((X, 0, True, 7), {}, "4 arguments"), ((X, 0), {"axis": 1}, "axis twice")],
)
def test_wrong_arity_is_refused(args: Any, given: Any, found: str) -> None:
    with pytest.raises(IllTyped) as caught:
        record_of("sum")(*args, **given)
    assert codes(caught.value) == ["wrong-arity"]
    assert caught.value.diagnostics[0].found == found


def test_a_missing_attribute_is_refused() -> None:
    with pytest.raises(IllTyped) as caught:
        record_of("reshape")(X)
    assert codes(caught.value) == ["wrong-arity"]


def test_all_mistakes_are_reported_together() -> None:
    with pytest.raises(IllTyped) as caught:
        record_of("sum")(axis="x", keepdim=True)
    assert sorted(codes(caught.value)) == ["bad-attribute", "unknown-attribute", "wrong-arity"]


# --- registration --------------------------------------------------------------------------------


def nothing(*_: Any) -> Any:
    return Mismatch("unsupported", "It has no type.")


def test_a_name_is_taken_once() -> None:
    for name, aliases in (("add", ()), ("sub", ()), ("mine", ("add",))):
        with pytest.raises(ValueError, match="already"):
            register(Operator(name, ("x",), nothing, compute=nothing, aliases=aliases))


def test_a_record_says_in_one_way_what_it_computes() -> None:
    for how in (None, nothing):
        with pytest.raises(ValueError, match="either"):
            register(Operator("mine", ("x",), nothing, compute=how, decompose=how))


def test_others_can_add_operators() -> None:
    record = pointwise("mine.triple", ("x",), lambda x: x * 3, "Three times x.", aliases=("three",))
    assert find("three") is record
    assert "mine.triple" in names()
    assert "three" not in names()
    (found,) = run(record, [np.array([1, 2], np.float32)], {})
    assert found.tolist() == [3, 6]


def test_an_attribute_without_a_default_is_required() -> None:
    assert Attribute("a", int).required
    assert not Attribute("a", int, None).required
