"""Laws of the strategies."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from plica.core.diagnostic import RuleRefused
from plica.core.term import Term
from plica.ir.loop.scalar import Scalar
from plica.rewrite import (
    Derivation,
    Strategy,
    all_,
    at,
    attempt,
    bottom_up,
    choice,
    fail,
    identity,
    one,
    repeat,
    rule,
    seq,
    some,
    top_down,
    use,
    where,
)
from plica.rewrite.derivation import at as state
from tests.rewrite.index_terms import RULES, VARIABLES, index_terms, x, y

a, b = VARIABLES[:2]
some_strategies: st.SearchStrategy[Strategy] = st.sampled_from(
    [use(each) for each in RULES] + [identity, fail, one(RULES[0]), bottom_up(RULES[4])]
)


def outcome(strategy: Strategy, term: Term) -> Term | None:
    done = strategy(term)
    return None if done is None else done.term


@given(some_strategies, index_terms())
def test_identity_is_neutral_in_a_sequence(s: Strategy, term: Scalar) -> None:
    assert outcome(seq(identity, s), term) is outcome(s, term)
    assert outcome(seq(s, identity), term) is outcome(s, term)


@given(some_strategies, some_strategies, some_strategies, index_terms())
def test_sequence_and_choice_are_associative(
    s: Strategy, t: Strategy, u: Strategy, term: Scalar
) -> None:
    assert outcome(seq(s, seq(t, u)), term) is outcome(seq(seq(s, t), u), term)
    assert outcome(choice(s, choice(t, u)), term) is outcome(choice(choice(s, t), u), term)


@given(some_strategies, index_terms())
def test_fail_is_neutral_in_a_choice_and_absorbs_in_a_sequence(s: Strategy, term: Scalar) -> None:
    assert outcome(choice(fail, s), term) is outcome(s, term)
    assert outcome(choice(s, fail), term) is outcome(s, term)
    assert outcome(seq(fail, s), term) is None


@given(some_strategies, index_terms())
def test_attempt_always_applies(s: Strategy, term: Scalar) -> None:
    assert outcome(attempt(s), term) is (outcome(s, term) or term)


@given(index_terms())
def test_repeat_ends_where_the_strategy_does_not_apply(term: Scalar) -> None:
    s = bottom_up(choice(*RULES))
    done = repeat(s)(term)
    assert done is not None
    assert s(done.term) is None


@given(some_strategies, index_terms())
def test_all_is_some_where_every_child_is_changed(s: Strategy, term: Scalar) -> None:
    every, few, first = all_(s)(term), some(s)(term), one(s)(term)
    if every is not None and term._children:
        assert few is not None
        assert few.term is every.term
    assert (few is None) == (first is None)


@given(
    st.sampled_from(
        [
            bottom_up(choice(*RULES)),
            top_down(choice(*RULES)),
            repeat(one(choice(*RULES))),
            some(choice(*RULES)),
            bottom_up(seq(RULES[0], attempt(RULES[1]))),
        ]
    ),
    index_terms(),
)
def test_the_steps_of_a_strategy_replay_to_its_result(s: Strategy, term: Scalar) -> None:
    done = s(term)
    if done is not None:
        assert state(Derivation(term, done.steps), len(done.steps)) is done.term


def test_at_and_where_choose_the_place() -> None:
    term = (a + 0) * (b + 0)
    zero = RULES[0]
    assert outcome(at((1,), zero), term) is (a + 0) * b
    assert outcome(at((2,), zero), term) is None
    assert outcome(where(lambda t: t is term, zero), term) is None
    assert outcome(bottom_up(where(lambda t: t is a + 0, zero)), term) is a * (b + 0)


def test_top_down_sees_the_parent_first() -> None:
    outer = rule("outer", (x + 0) + 0, x)
    inner = rule("inner", x + 0, x + x)
    assert outcome(top_down(choice(outer, inner)), (a + 0) + 0) is a
    assert outcome(bottom_up(choice(outer, inner)), (a + 0) + 0) is (a + a) + (a + a)


def test_repeat_names_rules_that_never_end() -> None:
    swap = rule("swap", x + y, y + x)
    with pytest.raises(RuleRefused) as refused:
        repeat(swap, fuel=10)(a + b)
    assert refused.value.code == "looping-rules"
    assert "swap" in str(refused.value)
