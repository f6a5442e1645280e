"""Closed terms: their values, and how little is computed to know them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from plica.core.name import Name
from plica.ir.graph.expression import Expr, Let, Literal, Var, const
from plica.ir.interpret.graph_machine import computed
from plica.ir.type.term import tensor
from plica.rewrite import closed
from plica.rewrite.closed import are_finite, value_anew, value_of

factors = st.lists(st.floats(-2, 2, width=32), min_size=1, max_size=8)


@given(factors, st.lists(st.booleans(), min_size=8, max_size=8))
def test_the_value_is_the_same_whichever_parts_were_asked_for_before(
    numbers: list[float], asked: list[bool]
) -> None:
    whole: Expr = const([1.0, -0.5], "f32")
    expected = np.array([1.0, -0.5], np.float32)
    for number, ask in zip(numbers, asked, strict=False):
        whole = whole * const(number, "f32") + Literal(1.0)
        expected = expected * np.float32(number) + np.float32(1)
        if ask:
            value_of(whole)
    found, anew = value_of(whole), value_anew(whole)
    assert found is not None
    assert anew is not None
    np.testing.assert_array_equal(found.view(np.uint32), expected.view(np.uint32))
    np.testing.assert_array_equal(anew, found)


def test_a_product_that_grows_is_not_computed_from_its_first_factor_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[list[Expr]] = []

    def noted(term: Expr, known: Mapping[Expr, Any]) -> Any:  # Any: as the interpreter gives
        told.append([*known])
        return computed(term, known)

    monkeypatch.setattr(closed, "computed", noted)
    links: list[Expr] = [const([1.25, 0.75, 3.5], "f32")]
    for step in range(1, 5):
        links.append(links[-1] * const(1.0 + step / 64, "f32"))
        assert are_finite(links[-1])
    assert told == [[], *([each] for each in links[1:-1])]


def test_what_is_no_operator_or_fails_has_no_value() -> None:
    x = Var(Name("x"), tensor((2,), "f32"))
    bound = Let(x, const([1.0, 2.0], "f32"), x)
    assert value_of(x) is None
    assert value_of(bound) is None
    assert value_anew(const([1.0, 2.0], "f32") * bound) is None
    assert not are_finite(const([1.0, 2.0], "f32") * bound)
