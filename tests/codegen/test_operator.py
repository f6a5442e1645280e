"""Every operator of the registry: compiled, it computes what it means."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import tests.ir.reference.case_neural
from plica.core.name import Name
from plica.ir.graph.expression import Expr, Function, Var
from plica.ir.graph.module import Module, module
from plica.ir.interpret.interpreter import interpret
from plica.ir.op import find, names
from plica.ir.type.term import tensor
from plica.pipeline import compile
from tests.codegen.native import assert_close
from tests.conftest import PROFILE
from tests.deep import spread
from tests.ir.reference import ELEMENTWISE
from tests.ir.reference.case import CASES, Case

assert tests.ir.reference.case_neural is not None  # imported for its entries in the table

# A case is compiled by itself, so each operator has few of them here: the law that code agrees with
# tensor expressions is tested on random expressions (test_kernel) and modules (test_pipeline).
# What works element by element goes one road; test_kernel holds its formulas to their meaning.
EXAMPLES = {"ci": 2, "dev": 20, "deep": 200}[PROFILE]
NAMES = [
    *[each for each in names() if each not in ELEMENTWISE],
    *spread(ELEMENTWISE, len(ELEMENTWISE) // 4),
]


def applied(name: str, case: Case, word: str = "x") -> tuple[tuple[Var, ...], Expr]:
    """Parameters of that name for the arguments of a case, and the operator on them."""
    record = find(name)
    assert record is not None
    params = [
        Var(Name(word, i), tensor(np.shape(arg), arg.dtype)) for i, arg in enumerate(case.args)
    ]
    body = record(params, **case.attrs) if record.variadic else record(*params, **case.attrs)
    return tuple(params), body


def module_of(name: str, case: Case) -> Module:
    """A module whose main function applies one operator to its parameters."""
    params, body = applied(name, case)
    main = Var(Name("main"), None)
    return module({main: Function((), (), params, None, body)}, main)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=EXAMPLES)
@given(data=st.data())
def test_compiled_is_interpreted(name: str, data: st.DataObject) -> None:
    case = data.draw(CASES[name])
    of = module_of(name, case)
    found: Any = compile(of)(*case.args)
    expected: Any = interpret(of, *case.args)
    if not isinstance(found, tuple):
        found, expected = (found,), (expected,)
    for ours, meant in zip(found, expected, strict=True):
        assert_close(ours, meant, case.args)
