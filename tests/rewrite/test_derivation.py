"""Derivations: rewind, fork, provenance and bisection."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, strategies as st

from plica.core.fold import post_order
from plica.core.name import Name
from plica.core.term import Term
from plica.ir.loop.scalar import Add, Lit, Mul, Scalar, ScalarVar
from plica.ir.type.dtype import i64
from plica.rewrite import became, first_bad, fork, rewrite, rule, why
from plica.rewrite.derivation import at, provenance
from plica.runtime.error import PlicaError
from tests.rewrite.index_terms import RULES, VARIABLES, c, index_terms, x

a, b = VARIABLES[:2]


@given(index_terms(), st.data())
def test_a_fork_is_a_prefix(term: Scalar, data: st.DataObject) -> None:
    _, derivation = rewrite(term, RULES)
    k = data.draw(st.integers(0, len(derivation.steps)))
    forked = fork(derivation, k)
    assert at(forked, k) is at(derivation, k)


def test_there_is_no_state_beyond_the_end() -> None:
    _, derivation = rewrite(a + 0, RULES)
    with pytest.raises(IndexError, match="no 2"):
        at(derivation, 2)
    with pytest.raises(IndexError, match="no -1"):
        fork(derivation, -1)
    with pytest.raises(PlicaError, match="Steps are counted"):
        at(derivation, "1")  # type: ignore[arg-type]
    with pytest.raises(PlicaError) as caught:
        at(derivation, 2)
    (told,) = caught.value.diagnostics
    assert (told.code, told.expected, told.found) == ("input-value", "a number from 0 to 1", "2")
    assert told.suggestion is not None


@given(index_terms())
def test_everything_in_the_result_comes_from_the_source(term: Scalar) -> None:
    result, derivation = rewrite(term, RULES)
    origins = provenance(derivation)
    for node in post_order(result):
        assert origins[node][0], node


def test_numbers_are_no_parts_of_a_term() -> None:
    _, derivation = rewrite(a + 0, RULES)
    for ask in (why, became):
        with pytest.raises(PlicaError, match="no part of a term"):
            ask(derivation, 3)  # type: ignore[arg-type]


def test_why_names_the_source_and_the_rules() -> None:
    source = ((a + 1) + 2) * b
    result, derivation = rewrite(source, RULES)
    assert isinstance(result, Mul)
    reason = why(derivation, result.left)
    assert (a + 1) + 2 in reason.sources
    assert a + 1 in reason.sources
    assert [each.name for each in reason.rules] == ["add-fold"]
    assert result.left in became(derivation, a + 1)
    assert became(derivation, b) == (b,)


@given(st.integers(1, 200), st.data())
def test_bisection_finds_the_planted_step(count: int, data: st.DataObject) -> None:
    bad_at = data.draw(st.integers(1, count))
    good = rule("good", Mul(x, c), lambda m: m.x + m.c)
    bad = rule("bad", Mul(c, x), lambda m: m.x - m.c)
    term: Scalar = a
    for i in range(1, count + 1):
        seven, v = Lit(7, i64), ScalarVar(Name("v", i), i64)
        term = Add(term, Mul(seven, v) if i == bad_at else Mul(v, seven))
    _, derivation = rewrite(term, [good, bad])
    assert len(derivation.steps) == count
    asked = 0

    def fine(state: Term) -> bool:
        nonlocal asked
        asked += 1
        return "Sub" not in {type(node).__name__ for node in post_order(state)}

    found = first_bad(derivation, fine)
    assert found is not None
    assert found.step.rule is bad
    assert asked == found.evaluations <= math.ceil(math.log2(count)) + 1
    assert fine(found.before)
    assert not fine(found.after)


def test_nothing_is_bad_where_the_end_is_good() -> None:
    _, derivation = rewrite(a + 0, RULES)
    assert first_bad(derivation, lambda term: True) is None
