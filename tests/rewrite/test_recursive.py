"""Recursive patterns: against a definition by hand, deep and shared terms, refusals."""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytest
from hypothesis import given, strategies as st

import plica
from plica import op
from plica.core.diagnostic import RuleRefused
from plica.ir.graph.expression import Apply, Expr, Let
from plica.rewrite import either, holes, match, pack, recursive, rewrite, rule
from plica.rewrite.check.verdict import Refuted, Tested
from plica.rewrite.match import covered
from plica.rewrite.near_miss import near_miss
from plica.rewrite.saturate import saturate
from tests.rewrite.graph.law import X

x, y = holes("x y")
relu, exp, tanh = op.nn.relu, op.exp, op.tanh
CHAIN = recursive("chain", lambda again: either(relu(again), tanh(again)), ends=exp(x))
SUM = recursive("sum", lambda again: either(again + again, x))


@st.composite
def terms(draw: st.DrawFn) -> Expr:
    """A random dataflow graph with much sharing."""
    nodes: list[Expr] = [X]
    for _ in range(draw(st.integers(1, 10))):
        name = draw(st.sampled_from(["add", "nn.relu", "tanh", "exp"]))
        count = 2 if name == "add" else 1
        nodes.append(
            Apply(name, tuple(draw(st.sampled_from(nodes[-3:])) for _ in range(count)), ())
        )
    return nodes[-1]


def is_chain(term: Any) -> bool:
    """The definition, by hand."""
    if isinstance(term, Apply) and term.op in {"nn.relu", "tanh"}:
        return is_chain(term.args[0])
    return isinstance(term, Apply) and term.op == "exp"


def leaves(term: Any) -> list[Expr]:
    if isinstance(term, Apply) and term.op == "add":
        return [each for arg in term.args for each in leaves(arg)]
    return [term]


@given(terms())
def test_a_recursive_pattern_matches_what_its_definition_does(term: Expr) -> None:
    found = match(CHAIN, term)
    assert (found is not None) == is_chain(term)
    if found is not None:
        assert found.x is found.chain[-1].x  # the hole of the end is one of the whole match
        assert found.chain.terms[0] is term
        assert set(covered(CHAIN, term)) == set(found.chain.terms)
    whole = match(SUM, term)
    assert whole is not None
    assert whole.sum.fold(lambda turn, inside: [*chain(*inside)] or [turn.x]) == leaves(term)
    assert {turn.x for turn in whole.sum if "x" in turn.filling} == set(leaves(term))


def test_deep_and_shared_terms_are_matched_in_linear_time() -> None:
    deep: Expr = exp(X)
    for _ in range(20_000):
        deep = relu(deep)
    found = match(CHAIN, deep)
    assert found is not None
    assert len(found.chain) == 20_001
    shared: Expr = X
    for _ in range(60):
        shared = shared + shared
    total = match(SUM, shared)
    assert total is not None
    assert total.sum.fold(lambda turn, inside: sum(inside) or 1) == 2**60


def test_the_end_is_the_same_on_all_ways_to_it() -> None:
    tree = recursive("tree", lambda again: again + again, ends=exp(y))
    assert match(tree, exp(X) + exp(X)) is not None
    assert match(tree, exp(X) + exp(-X)) is None
    assert match(CHAIN + x, relu(exp(X)) + X) is not None  # x, outside and at the end
    assert match(CHAIN + x, relu(exp(X)) + exp(X)) is None


def test_rules_with_recursive_patterns_are_checked_and_used() -> None:
    right = rule("relu-chain", relu(recursive("c", relu, ends=exp(x))), relu(exp(x)))
    wrong = rule("lost", relu(recursive("c", lambda a: either(relu(a), -a), ends=exp(x))), exp(x))
    assert isinstance(plica.check(right, examples=20), Tested)
    assert isinstance(plica.check(wrong, examples=20), Refuted)
    made, derivation = rewrite(relu(relu(relu(relu(exp(X))))) + X, pack("p", right, version="1"))
    assert made is relu(exp(X)) + X
    assert {step.rule for step in derivation.steps} == {right}
    assert saturate(relu(relu(relu(exp(X)))), [right])[0] is relu(exp(X))
    miss = near_miss(right, relu(tanh(X)))
    assert miss is not None
    assert "a turn of c, found tanh" in str(miss)


def test_a_recursion_inside_a_step_is_a_pattern_of_its_own() -> None:
    inner = recursive("inner", relu, ends=exp(y))
    outer = recursive("outer", lambda again: inner + again, ends=tanh(x))
    assert match(outer, relu(exp(X)) + (exp(-X) + tanh(X))) is not None
    even = rule("even", op.absolute(-outer), lambda m: op.absolute(m.outer.terms[0]))
    assert isinstance(plica.check(even, examples=5), Tested)


def test_printing_a_recursive_pattern_ends() -> None:
    assert "Recursive" in repr(CHAIN)
    assert CHAIN is recursive("chain", lambda a: either(relu(a), tanh(a)), ends=exp(x))


def one(step: Any, ends: Any = None) -> Any:
    return recursive("r", step, ends)


# fmt: off
REFUSED: list[tuple[str, Any]] = [
    ("has a function for its step", lambda: one(relu(x))),
    ("must be an identifier",       lambda: recursive("a b", relu, ends=x)),
    ("is made of expressions",      lambda: one(lambda a: None, ends=x)),
    ("takes a step",                lambda: one(lambda a: either(relu(a), a), ends=x)),
    ("says again somewhere",        lambda: one(lambda a: relu(x), ends=y)),
    ("ends.",                       lambda: one(relu)),
    ("does not go on",              lambda: one(lambda a: recursive("s", relu, ends=a))),
    ("of itself only",              lambda: one(lambda a: recursive("s", lambda b: b + a, x), y)),
    ("binds no variables",          lambda: one(lambda a: Let(x, a, y), ends=x)),
    ("filled anew on each turn",    lambda: one(lambda a: a + x, ends=x)),
    ("filled anew on each turn",    lambda: rule("n", one(lambda a: a + x, ends=y) + x, x)),
    ("beside bound variables",      lambda: rule("n", Let(x, CHAIN, y), y)),
    ("two things of the name",      lambda: rule("n", -SUM + recursive("sum", exp, y), y)),
    ("does not bind",               lambda: rule("n", relu(SUM), x)),
]
# fmt: on


@pytest.mark.parametrize(("words", "make"), REFUSED, ids=[words for words, _ in REFUSED])
def test_what_can_be_no_recursive_pattern_is_refused(words: str, make: Any) -> None:
    with pytest.raises(RuleRefused, match=words):
        make()
