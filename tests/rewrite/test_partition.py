"""Partition: regions as composites, the same meaning, and back again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from plica.core.diagnostic import RuleRefused
from plica.core.digest import digest
from plica.ir.graph.check import check
from plica.ir.graph.expression import Call, Expr, Function, If, Tuple, attr
from plica.ir.graph.module import Module
from plica.ir.type.infer import infer, type_of
from plica.rewrite import holes
from plica.rewrite.dominate import dominates
from plica.rewrite.graph.walk import expressions
from plica.rewrite.partition import composites, inline_composites, partition
from tests.conftest import Golden
from tests.rewrite.graph.law import X, means_the_same, program, text, vector
from tests.rewrite.test_dominate import PATH, PATTERN, exp, graphs, op, relu, tanh

x, y, z = holes("x y z")
PATTERNS = (
    exp(x),
    relu(x + y),
    relu(exp(x)),
    exp(x) * y,
    exp(x) + exp(y),
    PATTERN,
    dominates(exp(x), PATH, y + z),
)


def calls(module: Module) -> list[Call]:
    functions = [function for _, function in module.functions()]
    found = [node for node in expressions(*functions) if isinstance(node, Call)]
    return [call for call in found if isinstance(call.callee, Function)]


def agrees(before: Module, after: Module) -> None:
    assert not check(after)
    assert infer(after) is after
    with np.errstate(all="ignore"):
        means_the_same(before, after, (vector(-1, 0.5),))


@given(graphs(), st.sampled_from(PATTERNS))
def test_the_meaning_stays_and_inlining_goes_back(body: Expr, pattern: Any) -> None:
    before = program(body, ret=type_of(body))
    after = partition(before, pattern, "block")
    agrees(before, after)
    assert digest(inline_composites(after)) == digest(before)
    assert inline_composites(after, "other") is after
    assert partition(after, pattern, "block") is after
    for function in composites(after):
        assert attr(function, "composite") == "block"


@given(graphs(), st.sampled_from(PATTERNS), st.sampled_from(PATTERNS))
def test_two_partitions(body: Expr, first: Any, second: Any) -> None:
    before = program(body, ret=type_of(body))
    after = partition(partition(before, first, "first"), second, "second")
    agrees(before, after)
    assert digest(inline_composites(after)) == digest(before)
    again = partition(before, first, "first")
    assert digest(inline_composites(after, "second")) == digest(again)


@given(graphs(), st.sampled_from(PATTERNS))
def test_no_operator_is_written_twice(body: Expr, pattern: Any) -> None:
    """Regions are disjoint: all operators together are as many as before."""
    before = program(body, ret=type_of(body))
    after = partition(before, pattern, "block")
    inner = [node for call in calls(after) for node in _operators(_body(call))]
    outer = [n for n in expressions(after.main_function()) if _is_operator(n)]
    bodies = {n for f in composites(after) for n in _operators(f.body)}
    assert len(inner) + len([n for n in outer if n not in bodies]) == len(
        _operators(before.main_function())
    )


def _body(call: Call) -> Expr:
    assert isinstance(call.callee, Function)
    return call.callee.body


def _is_operator(node: Expr) -> bool:
    return type(node).__name__ == "Apply"


def _operators(root: Expr) -> list[Expr]:
    return [node for node in expressions(root) if _is_operator(node)]


def test_equal_regions_are_one_function() -> None:
    body = relu(X + 1) * relu(tanh(X) + 1)
    after = partition(program(body), relu(x + y), "block")
    assert len(composites(after)) == 1
    assert len(calls(after)) == 2
    (function,) = composites(after)
    assert len(function.params) == 1  # the constant came along


def test_a_value_that_leaks_blocks_the_match() -> None:
    inside = X + X
    module = program(relu(inside) * inside)
    assert partition(module, relu(x + y), "block") is module
    assert len(composites(partition(module, relu(x), "block"))) == 1


def test_control_flow_in_a_pattern_is_refused() -> None:
    with pytest.raises(RuleRefused) as error:
        partition(program(X), relu(If(x, y, z)), "block")
    assert error.value.diagnostics[0].code == "unsupported"


def test_text(golden: Golden) -> None:
    before = text(
        """
@plica.function
def main(
    x: Tensor[(1, 4, 6, 6), f32], w: Tensor[(4, 4, 1, 1), f32], b: Tensor[(4, 1, 1), f32]
) -> Tensor[(1, 4, 6, 6), f32]:
    y = nn.relu(nn.conv(x, w) + b)
    return nn.relu(nn.conv(y, w) + b) + x
"""
    )
    pattern = relu(op("nn.conv")(x, y) + z)
    golden(str(partition(before, pattern, "conv_block")), "partition")


def test_deep_and_shared_terms() -> None:
    body: Expr = X
    for _ in range(2_000):
        body = relu(body + X)
    for _ in range(60):
        body = body * body
    before = program(Tuple((body, body)), ret=type_of(Tuple((body, body))))
    after = partition(before, relu(x + y), "block")
    assert len(calls(after)) == 2_000
    assert len(composites(after)) == 2  # the first adds one value to itself
    assert digest(inline_composites(after)) == digest(before)
