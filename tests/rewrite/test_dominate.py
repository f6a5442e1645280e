"""Dominator patterns: regions that leak nothing, against the definition."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from plica.core.diagnostic import RuleRefused
from plica.ir.graph.check import check
from plica.ir.graph.expression import Apply, Expr, Function, Tuple
from plica.ir.op import find
from plica.ir.type.infer import infer, type_of
from plica.ir.type.term import TupleType
from plica.rewrite import Rule, either, first_bad, holes, optional, rewrite, rule, why
from plica.rewrite.check.region import chains
from plica.rewrite.check.run import check as check_rule
from plica.rewrite.check.verdict import Refuted, Tested
from plica.rewrite.derivation import at
from plica.rewrite.dominate import Dataflow, dominates, matches, regions, rewrite_dominated
from plica.rewrite.graph.walk import expressions, operands
from tests.rewrite.graph.law import VECTOR, X, means_the_same, program, vector

x, y, z = holes("x y z")


def op(name: str) -> Any:
    found = find(name)
    assert found is not None
    return found


exp, relu, tanh, negative = op("exp"), op("nn.relu"), op("tanh"), op("negative")
PATH = either(-x, x + y, x * y)
PATTERN = dominates(exp(x), PATH, relu(y))
OPERATORS = (exp, relu, negative, op("add"), op("multiply"), tanh)


@st.composite
def graphs(draw: st.DrawFn) -> Expr:
    """A random dataflow graph of parents, paths, children and others."""
    nodes: list[Expr] = [X]
    for _ in range(draw(st.integers(1, 14))):
        record = draw(st.sampled_from(OPERATORS))
        near = nodes[-4:]
        args = [draw(st.sampled_from(near)) for _ in record.inputs]
        nodes.append(record(*args))
    count = draw(st.integers(1, 2))
    return nodes[-1] if count == 1 else Tuple(tuple(nodes[-2:]))


def ways(parent: Expr, child: Expr) -> list[tuple[Expr, ...]]:
    """Every way from a child down to a parent, both included; by hand, over all paths."""
    found: list[tuple[Expr, ...]] = []
    stack: list[tuple[Expr, ...]] = [(child,)]
    while stack:
        way = stack.pop()
        if way[-1] is parent:
            found.append(way)
            continue
        stack.extend((*way, part) for part in dict.fromkeys(operands(way[-1])))
    return found


def is_region(pattern: Any, root: Expr, parent: Expr, child: Expr) -> bool:
    """The definition."""
    if parent is child or not matches(pattern.parent, parent) or not matches(pattern.child, child):
        return False
    between = {node for way in ways(parent, child) for node in way[1:-1]}
    if not ways(parent, child) or not all(matches(pattern.path, node) for node in between):
        return False
    inside = between | {child}
    users = [node for node in expressions(root) if set(operands(node)) & (between | {parent})]
    return all(node in inside for node in users) and root not in between | {parent}


@given(graphs())
def test_regions_are_those_of_the_definition(root: Expr) -> None:
    nodes = expressions(root)
    found = {region.child: region for region in regions(PATTERN, root)}
    for child in nodes:
        parents = [each for each in nodes if is_region(PATTERN, root, each, child)]
        assert (child in found) == bool(parents)
        if child in found:
            region = found[child]
            assert region.parent in parents
            # The nearest: no other parent is made of it alone, along the path.
            assert not any(
                is_region(PATTERN, root, region.parent, each)
                and each is not child
                and each in parents
                for each in parents
            )
            assert set(region.path) == {n for w in ways(region.parent, child) for n in w[1:-1]}


def test_a_value_that_leaks_blocks_the_match() -> None:
    inside = exp(X)
    whole = relu(-inside + inside * 2)
    assert [region.parent for region in regions(PATTERN, whole)] == [inside]
    assert list(regions(PATTERN, whole + inside)) == []
    assert list(regions(PATTERN, Tuple((whole, -inside)))) == []
    assert [region.child for region in regions(PATTERN, whole + whole)] == [whole]


def test_a_function_that_returns_the_parent_blocks_the_match() -> None:
    inside = exp(X)
    module = program(Tuple((relu(-inside), inside)), ret=_pair())
    assert rewrite_dominated(module, (FUSE,))[1].steps == ()


def _pair() -> Any:
    return TupleType((VECTOR, VECTOR))


def test_what_is_not_on_the_path_blocks_the_match() -> None:
    assert list(regions(PATTERN, relu(tanh(exp(X))))) == []
    assert list(regions(PATTERN, relu(exp(X) + tanh(exp(X))))) == []
    assert len(list(regions(PATTERN, relu(exp(X) + tanh(X))))) == 1


def test_holes_of_both_ends_agree() -> None:
    residual = dominates(exp(x), either(-y, y * z), y + x)
    assert len(list(regions(residual, -exp(X) + X))) == 1
    assert list(regions(residual, -exp(X) + tanh(X))) == []


# --- rules ---------------------------------------------------------------------------------------

FUSE = rule("region-of-exp", PATTERN, lambda m: tanh(m.child) if len(m.path) == 1 else None)
KEEP = rule("relu-after-exp", dominates(exp(x), either(x + y, relu(y)), relu(relu(z))), relu(z))


def test_rules_rewrite_regions_and_record_steps() -> None:
    body = relu(relu(exp(X) + X))
    module = program(body)
    after, derivation = rewrite_dominated(module, (KEEP,))
    assert [step.rule.name for step in derivation.steps] == ["relu-after-exp"]
    assert after.main_function().body is relu(exp(X) + X)
    assert at(derivation, 1) is after
    assert at(derivation, 0) is module
    means_the_same(module, after, (vector(-1, 2),))
    assert why(derivation, after.main_function().body).rules == (KEEP,)


@given(graphs())
def test_rewriting_keeps_the_meaning(body: Expr) -> None:
    module = program(body, ret=type_of(body))
    either_way = rule(
        "relu-of-region",
        dominates(exp(x), PATH, relu(y)),
        lambda m: op("maximum")(m.y, op("zeros_like")(m.y)),
    )
    after, derivation = rewrite_dominated(module, (either_way,))
    assert not check(after)
    assert infer(after) is after
    with np.errstate(all="ignore"):
        means_the_same(module, after, (vector(-1, 0.5),))
    assert at(derivation, len(derivation.steps)) is after
    assert not any(True for _, f in after.functions() for _ in regions(PATTERN, f))


def test_a_wrong_rule_is_found() -> None:
    wrong = rule("relu-gone", dominates(exp(x), -y, relu(z)), lambda m: m.z)
    module = program(relu(-exp(X)) + relu(-exp(X + 1)) + X)
    derivation = rewrite_dominated(module, (wrong,))[1]
    assert len(derivation.steps) == 2

    def good(term: Any) -> bool:
        return sum(isinstance(n, Apply) and n.op == "nn.relu" for n in _nodes(term)) == 2

    bad = first_bad(derivation, good)
    assert bad is not None
    assert bad.number == 1


def _nodes(term: Any) -> list[Expr]:
    functions: list[Function] = [function for _, function in term.functions()]
    return expressions(*functions)


def test_optional_parts_and_the_outer_region_first() -> None:
    pattern = dominates(exp(x), optional(lambda inner: -inner, x + y), relu(y))
    shown = [r.path for r in regions(pattern, relu(-(exp(X) + X)))]
    assert shown == [(exp(X) + X, -(exp(X) + X))]


def test_rules_of_regions_are_checked_on_chains() -> None:
    right = rule("relu-by-maximum", PATTERN, lambda m: op("maximum")(m.y, op("zeros_like")(m.y)))
    wrong = rule("relu-forgotten", PATTERN, lambda m: m.y)
    assert len(chains(right)) > 5
    found = check_rule(right, examples=24)
    assert isinstance(found, Tested)
    assert found.cases > 10
    refuted_ = check_rule(wrong, examples=200)
    assert isinstance(refuted_, Refuted)
    assert refuted_.counterexample.nodes <= 3


# --- refusals ------------------------------------------------------------------------------------


def refused(make: Any) -> str:
    with pytest.raises(RuleRefused) as error:
        make()
    return error.value.diagnostics[0].code


def test_refusals() -> None:
    module = program(relu(-exp(X)))
    plain = rule("relu-relu-here", relu(relu(x)), relu(x))
    loose = dominates(exp(x), -y, relu(z))
    loop = rule(
        "one-more", dominates(exp(x), either(-y, relu(y)), relu(z)), lambda m: relu(m.child)
    )
    typed = rule("typed", loose, lambda m: Tuple((m.z, m.z)))
    assert refused(lambda: rewrite_dominated(module, (plain,))) == "bad-rule"
    assert refused(lambda: rewrite(relu(exp(X)), (KEEP,))) == "bad-rule"
    assert refused(lambda: rule("loose", loose, relu(y))) == "unbound-hole"
    assert refused(lambda: rewrite_dominated(module, (loop,))) == "looping-rules"
    assert refused(lambda: rewrite_dominated(module, (typed,))) == "rule-types"
    assert isinstance(KEEP, Rule)


def test_deep_and_shared_terms() -> None:
    body: Expr = exp(X)
    for _ in range(3_000):
        body = relu(body + X)
    chain = dominates(exp(x), either(x + y, relu(x)), relu(y))
    assert sum(1 for _ in _ends(chain, body)) == 3_000
    for _ in range(60):
        body = body + body
    assert len(list(regions(dominates(exp(x), either(x + y, relu(x)), y + y), body))) == 60


def _ends(pattern: Any, root: Expr) -> Any:
    return Dataflow(root).ends(pattern)
