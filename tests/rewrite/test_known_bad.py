"""Known-bad rules: every one is refused when it is made, or refuted with a small counterexample."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from plica.core.diagnostic import RuleRefused
from plica.rewrite import Rule, rule
from plica.rewrite.check.run import check
from plica.rewrite.check.verdict import Refuted
from tests.deep import spread
from tests.rewrite.known_bad.graph import GRAPH
from tests.rewrite.known_bad.index import INDEX

BUDGET = 400


def refused_or_made(
    name: str, left: Any, right: Any, options: dict[str, Any]
) -> Rule | RuleRefused:
    try:
        return rule(name, left, right, **options)
    except RuleRefused as refused:
        return refused


@pytest.mark.parametrize("bad", spread([(each,) for each in GRAPH], 26), ids=lambda bad: bad[0])
def test_a_bad_graph_rule_is_caught(bad: tuple[str, Any, Any, dict[str, Any]]) -> None:
    name, left, right, options = bad
    made = refused_or_made(name, left, right, options)
    if isinstance(made, RuleRefused):
        assert made.code == "rule-types"
        return
    verdict = check(made, examples=BUDGET)
    assert isinstance(verdict, Refuted), verdict
    example = verdict.counterexample
    assert example.nodes <= 5
    assert all(size <= 3 for _, array in example.inputs for size in np.shape(array))
    assert name in example.pytest


@pytest.mark.parametrize("bad", INDEX, ids=lambda bad: bad[0])
def test_a_bad_index_rule_is_refuted(bad: tuple[str, Any, Any]) -> None:
    name, left, right = bad
    verdict = check(rule(name, left, right))
    assert isinstance(verdict, Refuted), verdict
    assert all(abs(value) <= 16 for _, value in verdict.counterexample.inputs)


def test_there_are_at_least_forty() -> None:
    names = [bad[0] for bad in (*GRAPH, *INDEX)]
    assert len(set(names)) == len(names) >= 40
