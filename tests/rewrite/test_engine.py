"""Laws of the engine: meaning kept, normal forms, order of rules, loops named, sharing linear."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, strategies as st

from plica.core.diagnostic import RuleRefused
from plica.core.name import Name
from plica.ir.loop.scalar import Lit, Scalar, ScalarVar
from plica.ir.type.dtype import i64
from plica.rewrite import index_holes, pack, rewrite, rule
from plica.rewrite.derivation import at
from tests.rewrite.index_terms import RULES, VARIABLES, index_terms, value, x, y

PACK = pack("test", *RULES, version="1")
points = st.fixed_dictionaries({name: st.integers(-5, 5) for name in "abcd"})


@given(index_terms(), points)
def test_rewriting_keeps_the_meaning(term: Scalar, point: dict[str, int]) -> None:
    result, _ = rewrite(term, PACK)
    assert isinstance(result, Scalar)
    assert value(result, point) == value(term, point)


@given(index_terms())
def test_the_result_is_a_normal_form(term: Scalar) -> None:
    result, _ = rewrite(term, PACK)
    again, derivation = rewrite(result, PACK)
    assert again is result
    assert derivation.steps == ()


@given(index_terms(), st.permutations(RULES), points)
def test_the_order_of_rules_does_not_change_the_meaning(
    term: Scalar, rules: list[object], point: dict[str, int]
) -> None:
    result, _ = rewrite(term, rules)  # type: ignore[arg-type]  # permutations forget the type
    assert isinstance(result, Scalar)
    assert value(result, point) == value(term, point)


@given(index_terms())
def test_every_state_of_the_derivation_can_be_found_again(term: Scalar) -> None:
    result, derivation = rewrite(term, PACK)
    assert at(derivation, 0) is term
    assert at(derivation, len(derivation.steps)) is result


def test_a_deep_chain_and_a_doubling_chain_are_linear() -> None:
    chain: Scalar = VARIABLES[0]
    for i in range(4_000):
        chain = (chain + 0) * 1 + ScalarVar(Name("v", i), i64)
    _, derivation = rewrite(chain, PACK)
    assert len(derivation.steps) == 8_000
    double: Scalar = VARIABLES[0]
    for _ in range(60):
        double = (double + 0) + double
    _, derivation = rewrite(double, PACK)
    assert len(derivation.steps) == 60


def test_rules_that_undo_one_another_are_named() -> None:
    there = rule("swap-there", x + (y * 2), (y * 2) + x)
    back = rule("swap-back", (y * 2) + x, x + (y * 2))
    a, b = VARIABLES[:2]
    with pytest.raises(RuleRefused) as refused:
        rewrite(a + b * 2, [there, back])
    assert refused.value.code == "looping-rules"
    assert "swap-there" in str(refused.value)
    assert "swap-back" in str(refused.value)


def test_rules_that_grow_for_ever_are_named() -> None:
    grow = rule("grow", x * y, (x * y) * 1 + 0)
    a, b = VARIABLES[:2]
    with pytest.raises(RuleRefused) as refused:
        rewrite(a * b, [grow])
    assert "grow" in str(refused.value)


def test_an_unbound_hole_is_refused_at_birth() -> None:
    (unbound,) = index_holes("unbound")
    with pytest.raises(RuleRefused) as refused:
        rule("loose", x + 0, unbound)
    assert refused.value.code == "unbound-hole"
    place = refused.value.diagnostics[0].place
    assert place is not None
    assert place.file == __file__


@pytest.mark.parametrize("left", [x, 3])
def test_a_left_side_without_structure_is_refused(left: object) -> None:
    with pytest.raises(RuleRefused) as refused:
        rule("all", left, Lit(0, i64))
    assert refused.value.code == "bad-rule"


def test_a_right_side_that_is_neither_term_nor_function_is_refused() -> None:
    with pytest.raises(RuleRefused) as refused:
        rule("number", x + 0, 3)
    assert refused.value.code == "bad-rule"


def test_two_rules_of_one_name_are_refused() -> None:
    with pytest.raises(RuleRefused) as refused:
        pack("twice", RULES[0], RULES[0], version="1")
    assert refused.value.code == "duplicate-name"


def test_rules_are_found_in_their_order() -> None:
    first, second = rule("first", x + 0, x), rule("second", x + 0, x + x)
    for order in itertools.permutations([first, second]):
        _, derivation = rewrite(VARIABLES[0] + 0, list(order))
        assert derivation.steps[0].rule is order[0]
