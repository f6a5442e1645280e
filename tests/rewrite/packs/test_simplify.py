"""Laws of all the tables together: they end, in one normal form, and keep meaning in any order."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from plica.core.diagnostic import EvaluationError
from plica.core.name import Name
from plica.ir.graph.check import check
from plica.ir.graph.expression import Var, const
from plica.ir.graph.module import Module
from plica.ir.interpret.interpreter import interpret
from plica.ir.interpret.value import Closure, NativeFunction
from plica.ir.passes import Pipeline
from plica.ir.type.infer import infer, infer_expr
from plica.ir.type.term import tensor
from plica.rewrite import exact, pack, rewrite
from plica.rewrite.check.compare import difference
from plica.rewrite.history import begun
from plica.rewrite.packs.algebra import ALGEBRA
from plica.rewrite.packs.simplify import SIMPLIFY
from plica.rewrite.rule_pass import Setting, rules, through
from tests.rewrite.packs.dense import dense_modules
from tests.strategies import EXTERNS, inputs_for, modules, static_modules

BY_PARTS = Pipeline((rules("simplify", "An example.", "simplify"),))
STRICT = SIMPLIFY.within(exact)  # a zero's sign may grow: 1 / 0.0 is not 1 / -0.0
FEW = settings(max_examples=max(8, settings().max_examples // 3))


def simplified(before: Module, by: Any = SIMPLIFY) -> Module:
    """The module in normal form, inferred again."""
    after, _ = rewrite(before, by)
    assert isinstance(after, Module)
    return infer(after)


def means_the_same(before: Module, after: Module, args: tuple[Any, ...]) -> None:
    """Where the first module has a value the second has the same."""
    try:
        expected = interpret(before, *args, externs=EXTERNS)
    except EvaluationError:
        return
    found = interpret(after, *args, externs=EXTERNS)
    pairs = [(expected, found)]
    for left, right in pairs:
        if isinstance(left, tuple):
            assert isinstance(right, tuple)
            pairs.extend(zip(left, right, strict=True))
        elif not isinstance(left, Closure | NativeFunction) and hasattr(left, "dtype"):
            assert difference(left, right, exact, 0) is None


@FEW
@given(st.data())
def test_exact_rules_keep_the_meaning_of_any_module(data: st.DataObject) -> None:
    before = infer(data.draw(st.one_of(dense_modules(symbolic=True), modules())))
    after = simplified(before, STRICT)
    assert not check(after)
    means_the_same(before, after, data.draw(inputs_for(before)))


@FEW
@given(st.data())
def test_exact_rules_keep_the_meaning_in_any_order(data: st.DataObject) -> None:
    before = infer(data.draw(st.one_of(dense_modules(), static_modules())))
    shuffled = list(STRICT)
    random.Random(data.draw(st.integers(0, 2**16))).shuffle(shuffled)
    args = data.draw(inputs_for(before))
    means_the_same(before, simplified(before, pack("shuffled", shuffled, version="0")), args)
    means_the_same(before, simplified(before, STRICT), args)


@FEW
@given(st.data())
def test_all_rules_end_in_a_normal_form(data: st.DataObject) -> None:
    before = infer(data.draw(st.one_of(dense_modules(symbolic=True), modules())))
    after = simplified(before)
    again, derivation = rewrite(after, SIMPLIFY)
    assert [step.rule.name for step in derivation.steps] == []
    assert again is after
    assert simplified(before) is after


@FEW
@given(st.data())
def test_parts_of_a_union_that_join_as_needed_end_in_its_normal_form(data: st.DataObject) -> None:
    before = infer(data.draw(st.one_of(dense_modules(symbolic=True), modules())))
    after = through(BY_PARTS, begun(before), Setting(exact)).module
    _, derivation = rewrite(after, STRICT)
    assert [step.rule.name for step in derivation.steps] == []


@pytest.mark.parametrize("large", [3e38, -3e38, np.inf, -np.inf, np.nan])
def test_constants_are_joined_where_nothing_overflows(large: float) -> None:
    x = Var(Name("x"), tensor((2,), "f32"))

    def steps(*numbers: float) -> set[str]:
        c, e = (const([2.0, each], "f32") for each in numbers)
        forms = x * c * e, x + c + e, c - (x + e), c - (e - x), (c - x) + e
        derivations = [rewrite(infer_expr(each), ALGEBRA)[1] for each in forms]
        return {step.rule.name for each in derivations for step in each.steps}

    assert len(steps(3.0, -0.5)) == 5
    assert not steps(large, 3e38)
    assert "multiply-constants" not in steps(large, -0.007)  # 6 * 3e38 is infinite
