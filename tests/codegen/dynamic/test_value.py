"""Values of data types as inputs: what both the interpreter and native code take and refuse."""

from __future__ import annotations

from functools import cache
from typing import Any

import attrs
import numpy as np
import pytest

import plica
from plica.ir.graph.module import Module
from plica.ir.interpret.value import build
from plica.runtime.dynamic.value import Datum

SOURCE = """
import plica
from plica.script import Tensor, f64

@plica.data
class T:
    Leaf: (f64,)
    Pair: (tuple[f64, T],)
    Both: (T, Tensor[(3,), f64], T)

@plica.function
def main(t: T) -> f64:
    match t:
        case Leaf(x):
            return x
        case Pair(p):
            return p[0] + main(p[1])
        case Both(a, x, b):
            return main(a) * main(b) + plica.op.sum(x)
"""


@cache
def program() -> tuple[Module, Any]:
    module = plica.from_text(SOURCE)
    return module, plica.compile(module)


@pytest.mark.parametrize("number", [0.5, np.float64(0.5), np.asarray(0.5)])
def test_numbers_in_data_stand_for_tensors(number: Any) -> None:
    module, native = program()
    leaf = build(module, "Leaf", 0.25)
    built = build(module, "Pair", (number, leaf))
    bare = attrs.evolve(built, fields=((number, attrs.evolve(leaf, fields=(number,))),))
    for value, expected in ((built, 0.75), (bare, 1.0)):
        assert plica.interpret(module, value) == native(value) == expected


def test_shared_values_and_tensors_of_all_sizes_arrive() -> None:
    module, native = program()
    value = build(module, "Leaf", 2.0)
    for step in range(6):
        value = build(module, "Both", value, np.arange(3.0) + step, value)
        value = build(module, "Pair", (0.125, value))
    assert native(value) == plica.interpret(module, value)


@pytest.mark.parametrize(
    ("value", "expected", "found"),
    [
        (Datum("Leaf", 1, (0.5,)), "of which Pair has index 1", "Leaf with index 1"),
        (Datum("Leaf", 7, (0.5,)), "whose indices are 0 to 2", "Leaf with index 7"),
        (Datum("Leaf", 0, ()), "Leaf of 1 fields", "Leaf of 0"),
        (Datum("Leaf", -1, (0.5,)), "whose indices are 0 to 2", "Leaf with index -1"),
        (Datum("Pair", 1, ((0.5,),)), "a tuple of 2", "a tuple of 1"),
        (0.5, "a value of the data type T", "float"),
    ],
)
def test_what_is_wrong_with_a_value_is_said(value: object, expected: str, found: str) -> None:
    with pytest.raises(plica.InputError) as refused:
        program()[1](value)
    (reason,) = refused.value.diagnostics
    assert reason.code == "input-type"
    assert expected in str(reason.expected)
    assert reason.found == found


def test_the_interpreter_refuses_numbers_that_do_not_fit() -> None:
    module, _ = program()
    wrong: Any = (True,)
    value = attrs.evolve(build(module, "Leaf", 0.5), fields=wrong)
    with pytest.raises(plica.InputError, match="no value of its data type"):
        plica.interpret(module, value)
